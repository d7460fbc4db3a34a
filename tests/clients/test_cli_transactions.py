"""`penstock transactions` against a real broker: what is open is shown, what hangs is found and ended."""

import json
import uuid

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException, Producer

from penstock.cli.main import cli
from penstock.testing import PenstockBroker
from tests.console.stuck import UNVERIFIED, leave_hanging


@pytest.fixture(scope="module")
def broker():
    settings = {
        "transaction.state.log.num.partitions": 2,
        **UNVERIFIED,
    }
    with PenstockBroker(settings) as process:
        yield process


@pytest.fixture
def run(broker):
    def run(*arguments, expect=0):
        result = CliRunner().invoke(cli, arguments, env={"PENSTOCK_BOOTSTRAP": broker.bootstrap})
        assert result.exit_code == expect, (result.output, result.exception)
        if expect == 1:
            assert len([line for line in result.stderr.splitlines() if line.startswith("Error: ")]) == 1
        return result

    return run


@pytest.fixture
def run_json(run):
    return lambda *arguments, **options: json.loads(run(*arguments, "--json", **options).stdout)


@pytest.fixture
def topic(broker):
    name = f"t-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name, 2)
    return name


@pytest.fixture
def producer(broker, topic):
    """A producer, named as the topic, with an open transaction of one record in partition 1."""
    made = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    made.init_transactions()
    made.begin_transaction()
    made.produce(topic, b"x", partition=1)
    made.flush()
    return made


@pytest.fixture
def hanging(broker, topic):
    """Opens a transaction in partition 0 that no coordinator knows; gives its producer id."""
    producer_id = 4000 + int(uuid.uuid4().hex[:4], 16)
    leave_hanging(broker, topic, producer_id)
    return producer_id


@pytest.mark.promise(
    "group commands",
    "`penstock transactions` lists and describes transactions, and finds and aborts hanging ones",
)
def test_an_open_transaction_is_listed_and_described(run, run_json, topic, producer):
    (listed,) = [each for each in run_json("transactions", "list") if each["transactional_id"] == topic]
    assert listed["state"] == "Ongoing"
    assert listed in run_json("transactions", "list", "--state", "ongoing")
    assert listed in run_json("transactions", "list", "--producer-id", str(listed["producer_id"]))
    assert listed not in run_json("transactions", "list", "--state", "Empty")
    assert listed not in run_json("transactions", "list", "--longer-than", "1h")
    assert topic in run("transactions", "list").stdout

    (described,) = run_json("transactions", "describe", topic)
    assert described["state"] == "Ongoing" and described["timeout_ms"] == 60_000
    assert described["producer_id"] == listed["producer_id"]
    assert described["partitions"] == [{"topic": topic, "partition": 1}]
    assert described["age_seconds"] >= 0
    assert f"{topic}: Ongoing" in run("transactions", "describe", topic).stdout
    producer.commit_transaction()


@pytest.mark.promise(
    "group commands",
    "`penstock transactions` lists and describes transactions, and finds and aborts hanging ones",
)
def test_aborting_by_id_ends_the_transaction_and_fences_its_producer(broker, run, run_json, topic, producer):
    assert run("transactions", "abort", topic).stdout == f"{topic}: aborted\n"
    assert broker.consume(topic, isolation="read_committed") == []
    with pytest.raises(KafkaException):
        producer.commit_transaction()
    (described,) = run_json("transactions", "describe", topic)
    assert described["start_ms"] is None and described["partitions"] == []
    assert "has no open transaction" in run("transactions", "abort", topic, expect=1).stderr


@pytest.mark.promise(
    "group commands",
    "`penstock transactions` lists and describes transactions, and finds and aborts hanging ones",
)
def test_a_transaction_that_hangs_is_found_and_ended(broker, run, run_json, topic, hanging):
    broker.produce(topic, ["after"])
    assert broker.consume(topic, partition=0, isolation="read_committed") == []  # it blocks its readers

    find = ("transactions", "list", "--hanging", "--topic", topic, "--older-than", "0s")
    (found,) = run_json(*find)
    assert (found["partition"], found["start_offset"], found["producer_id"]) == (0, 0, hanging)
    assert str(hanging) in run(*find).stdout
    assert run_json("transactions", "list", "--hanging", "--topic", topic, "--older-than", "1h") == []

    result = run_json("transactions", "abort", "--topic", topic, "-p", "0", "--start-offset", "0")
    assert (result["result"], result["producer_id"]) == ("aborted", hanging)
    assert run_json(*find) == []
    values = [record.value for record in broker.consume(topic, partition=0, isolation="read_committed")]
    assert values == [b"after"]


def test_one_that_hangs_can_be_named_by_its_producer(run_json, topic, hanging):
    where = ("transactions", "abort", "--topic", topic, "--partition", "0")
    assert run_json(*where, "--producer-id", str(hanging))["start_offset"] == 0


@pytest.mark.promise(
    "group commands",
    "`penstock transactions` lists and describes transactions, and finds and aborts hanging ones",
)
def test_a_transaction_with_a_coordinator_does_not_hang(broker, run, run_json, topic, producer):
    assert run_json("transactions", "list", "--hanging", "--topic", topic, "--older-than", "0s") == []
    where = ("--topic", topic, "--partition", "1", "--start-offset", "0")
    refused = run("transactions", "abort", *where, expect=1).stderr
    assert "does not hang" in refused and f"penstock transactions abort {topic}" in refused
    producer.commit_transaction()
    assert len(broker.consume(topic, isolation="read_committed")) == 1


@pytest.mark.promise("group commands", "Failures print one clear line with a hint")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("describe", "no-such-id"), "no transactional id 'no-such-id'"),
        (("abort", "no-such-id"), "no transactional id 'no-such-id'"),
        (("abort", "--topic", "TOPIC", "-p", "0", "--start-offset", "9"), "no open transaction of offset 9"),
        (("abort", "--topic", "TOPIC", "-p", "9", "--start-offset", "0"), "has no partition 9"),
        (("abort", "--topic", "no-such-topic", "-p", "0", "--start-offset", "0"), "no topic 'no-such-topic'"),
        (("list", "--hanging", "--topic", "no-such-topic"), "no topic 'no-such-topic'"),
    ],
)
def test_what_is_not_there_is_said(arguments, says, run, topic):
    words = [topic if word == "TOPIC" else word for word in arguments]
    assert says in run("transactions", *words, expect=1).stderr
