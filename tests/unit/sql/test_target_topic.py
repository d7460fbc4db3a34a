"""How long the topic of a query keeps records that have the times of what was read."""

from __future__ import annotations

import pytest

from penstock.sql.catalog.target_topic import Retention, ignored, output_retention, topic_config

DAY = 86_400_000
DEFAULT = Retention(7 * DAY, own=False)


@pytest.mark.promise(
    "sql",
    "CREATE STREAM … AS keeps old records: its topic has the retention of its source, and no retention "
    "limit if a column sets the timestamps of records",
)
@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ([DEFAULT], None),
        ([Retention(-1, own=False)], None),
        ([Retention(-1, own=True)], -1),
        ([DEFAULT, Retention(-1, own=True)], -1),
        ([Retention(30 * DAY, own=True), Retention(60 * DAY, own=True)], 60 * DAY),
        ([Retention(DAY, own=True)], None),
        ([], None),
    ],
)
def test_a_record_is_kept_as_long_as_the_one_it_comes_from(
    sources: list[Retention], expected: int | None
) -> None:
    assert output_retention(sources, event_time=False) == expected


@pytest.mark.promise(
    "sql",
    "CREATE STREAM … AS keeps old records: its topic has the retention of its source, and no retention "
    "limit if a column sets the timestamps of records",
)
@pytest.mark.parametrize("sources", [[DEFAULT], [Retention(DAY, own=True)], []])
def test_a_record_with_the_time_of_a_column_is_kept_for_ever(sources: list[Retention]) -> None:
    assert output_retention(sources, event_time=True) == -1


def test_where_the_cluster_keeps_everything_nothing_has_to_be_set() -> None:
    assert output_retention([Retention(-1, own=False)], event_time=True) is None


@pytest.mark.promise(
    "sql",
    "CREATE … AS does not write to a topic that already has records unless the statement asks for it, "
    "and it names the options that had no effect",
)
def test_options_that_a_topic_does_not_take_are_named() -> None:
    assert ignored("t", ["format", "topic"]) is None
    told = ignored("t", ["retention", "format", "partitions"])
    assert told == "Note: the topic `t` already exists, so partitions, retention had no effect"


@pytest.mark.promise(
    "sql",
    "Table rows that were not updated within `retention` are deleted, and pull queries do not return them",
)
def test_rows_of_a_table_expire_where_that_is_asked_for() -> None:
    assert topic_config("table", None) == {"cleanup.policy": "compact"}
    assert topic_config("table", -1) == {"cleanup.policy": "compact", "retention.ms": "-1"}
    assert topic_config("table", 2 * DAY) == {
        "cleanup.policy": "compact,delete",
        "retention.ms": str(2 * DAY),
        "segment.ms": str(DAY // 2),
    }
    assert topic_config("table", 1000)["segment.ms"] == "60000"
    assert topic_config("stream", DAY) == {"retention.ms": str(DAY)}
