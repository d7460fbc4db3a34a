"""Where reading starts: what `--from` and `--at` accept, and the offsets that they come to."""

from datetime import datetime

import click
import pytest

from penstock.admin.positions import Position, iso_time, parse_position, parse_time, resolve_start
from penstock.admin.reader import Remaining
from penstock.cli.failure import CommandFailed

NOW = 1_700_000_000_000
EARLIEST = {0: 10, 1: 0}
LATEST = {0: 50, 1: 20}


def start(text, at_time=None):
    return resolve_start(parse_position(text, NOW), "t", EARLIEST, LATEST, at_time or {})


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", Position("earliest")),
        ("latest", Position("latest")),
        ("17", Position("offset", 17)),
        ("-5", Position("last", 5)),
        ("@1700000000000", Position("time", 1_700_000_000_000)),
        ("@2023-11-14T22:13:20Z", Position("time", 1_700_000_000_000)),
        ("@-15m", Position("time", NOW - 15 * 60_000)),
    ],
)
def test_from_accepts_names_offsets_times_and_the_last_n(text, position):
    assert parse_position(text, NOW) == position


@pytest.mark.parametrize("text", ["", "first", "--5", "@", "@yesterday", "1.5", "@-5x", f"@{2**63}"])
def test_anything_else_is_a_usage_error(text):
    with pytest.raises(click.BadParameter):
        parse_position(text, NOW)


def test_a_time_without_an_offset_is_local_time():
    local = datetime(2024, 5, 1, 12).timestamp() * 1000
    assert parse_time("2024-05-01T12:00:00", NOW) == int(local)


def test_times_are_shown_in_utc_and_impossible_ones_as_numbers():
    assert iso_time(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert iso_time(2**62) == str(2**62)


def test_starts_are_within_each_partition():
    assert start("earliest") == EARLIEST
    assert start("latest") == LATEST
    assert start("-15") == {0: 35, 1: 5}
    assert start("-1000") == EARLIEST
    assert start("15") == {0: 15, 1: 15}
    assert start("5") == {0: 10, 1: 5}
    assert start("30") == {0: 30, 1: 20}


def test_a_time_after_the_last_record_starts_at_the_end():
    assert start("@5", at_time={0: 12, 1: -1}) == {0: 12, 1: 20}


def test_an_offset_that_no_partition_has_is_a_failure_that_names_the_ranges():
    with pytest.raises(CommandFailed, match=r"offset 51 is out of range \(t-0: 10 to 50, t-1: 0 to 20\)"):
        start("51")


def test_reading_to_the_end_finishes_at_the_offsets_that_were_the_end_at_the_start():
    remaining = Remaining({0: 0, 1: 5, 2: 0}, {0: 2, 1: 5, 2: 3})
    assert remaining.open == {0, 2}
    assert remaining.accept(0, 0) and remaining.open == {0, 2}
    assert remaining.accept(0, 1) and remaining.open == {2}
    assert not remaining.accept(0, 2)


def test_a_partition_whose_last_offsets_hold_no_record_finishes_at_its_end():
    remaining = Remaining({0: 0}, {0: 10})
    remaining.reached(0, 9)
    assert remaining.open == {0}
    remaining.reached(0, 10)
    assert not remaining.open


def test_a_follower_never_finishes():
    remaining = Remaining({0: 0}, None)
    remaining.reached(0, 10)
    assert remaining.accept(0, 10**9) and remaining.open == {0}
