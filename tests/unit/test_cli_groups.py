"""The group and transaction commands without a cluster: usage errors, plans, totals."""

import pytest
from click.testing import CliRunner

from penstock.admin.groups.model import PartitionLag
from penstock.admin.groups.reset import shifted
from penstock.cli.groups.commands import longest_lag, total_lag
from penstock.cli.main import cli
from penstock.cli.transactions.commands import DurationType

NOWHERE = "127.0.0.1:1"


def invoke(*arguments):
    return CliRunner().invoke(cli, [*arguments, "--bootstrap", NOWHERE], prog_name="penstock")


@pytest.mark.parametrize(
    "arguments",
    [
        ("groups", "describe"),
        ("groups", "delete"),
        ("groups", "list", "--state", "sleepy"),
        ("groups", "list", "--type", "club"),
        ("groups", "lag", "--interval", "0"),
        ("groups", "reset"),
        ("groups", "reset", "g"),
        ("groups", "reset", "g", "--to-earliest", "--to-latest"),
        ("groups", "reset", "g", "--to-offset", "-1"),
        ("groups", "reset", "g", "--to-time", "yesterday"),
        ("groups", "reset", "g", "--shift", "some"),
        ("groups", "reset", "g", "--to-latest", "--partition", "1"),
        ("groups", "reset", "g", "--to-latest", "--partition", "1", "--topic", "a", "--topic", "b"),
        ("transactions", "list", "--longer-than", "15"),
        ("transactions", "list", "--state", "Sleepy"),
        ("transactions", "list", "--topic", "t"),
        ("transactions", "list", "--hanging", "--state", "Ongoing"),
        ("transactions", "describe"),
        ("transactions", "abort"),
        ("transactions", "abort", "--topic", "t"),
        ("transactions", "abort", "--topic", "t", "--partition", "0"),
        ("transactions", "abort", "--topic", "t", "-p", "0", "--start-offset", "1", "--producer-id", "2"),
        ("transactions", "abort", "id", "--topic", "t"),
    ],
)
def test_wrong_usage_is_refused_before_any_broker_is_asked(arguments):
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output


@pytest.mark.promise("group commands", "Failures print one clear line with a hint")
@pytest.mark.parametrize(
    "arguments",
    [
        ("groups", "list"),
        ("groups", "describe", "g"),
        ("groups", "lag"),
        ("groups", "reset", "g", "--to-latest"),
        ("groups", "delete", "g"),
        ("transactions", "list"),
        ("transactions", "list", "--hanging"),
        ("transactions", "describe", "t"),
        ("transactions", "abort", "t"),
        ("transactions", "abort", "--topic", "t", "-p", "0", "--start-offset", "1"),
    ],
)
def test_a_cluster_that_is_not_there_is_one_line_and_code_1(arguments):
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: cannot reach a broker at {NOWHERE}")


@pytest.mark.promise("group commands", "Failures print one clear line with a hint")
def test_security_settings_that_do_not_fit_are_one_line_and_code_1():
    result = invoke("transactions", "list", "-X", "security.protocol=SASL_SSL")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: sasl.mechanism=GSSAPI: must be one of")


@pytest.mark.promise(
    "group commands",
    "`penstock groups reset` shows the changes, applies them only with `--execute`, and refuses while "
    "the group has members",
)
def test_a_shift_stays_within_what_the_partition_has():
    earliest, latest = {0: 5, 1: 0, 2: 0}, {0: 20, 1: 20, 2: 20}
    assert shifted({0: 10, 1: 10}, 3, earliest, latest) == {0: 13, 1: 13}
    assert shifted({0: 10, 1: 10}, -7, earliest, latest) == {0: 5, 1: 3}
    assert shifted({0: 10, 1: 19}, 100, earliest, latest) == {0: 20, 1: 20}


def partition(lag, seconds):
    return PartitionLag("t", 0, 0, 0, lag, seconds, None)


@pytest.mark.promise(
    "group commands", "`penstock groups lag` shows the lag in records and seconds, once or repeatedly"
)
def test_the_lag_of_a_topic_is_the_sum_in_records_and_the_worst_in_seconds():
    known = [partition(3, 1.5), partition(0, 0.0), partition(None, None), partition(4, 0.2)]
    assert (total_lag(known), longest_lag(known)) == (7, 1.5)
    unknown = [partition(None, None)]
    assert (total_lag(unknown), longest_lag(unknown)) == (None, None)


@pytest.mark.parametrize(("text", "ms"), [("0s", 0), ("500ms", 500), ("15m", 900_000), ("2h", 7_200_000)])
def test_a_duration_has_a_unit(text, ms):
    assert DurationType().convert(text, None, None) == ms
