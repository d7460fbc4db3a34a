"""The topic of CREATE … AS: its retention, and which options have no effect if it exists."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
KAFKA_DEFAULT_MS = 7 * _DAY_MS
_OF_NEW_TOPICS = ("partitions", "replicas", "retention")


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention of a topic: milliseconds, -1 forever; `own` if it is not the cluster's default."""

    ms: int
    own: bool


def topic_config(kind: str, retention: int | None) -> dict[str, str]:
    """The settings of a new topic for a stream or table.

    A table is compacted. With a `retention`, rows that were not updated for that time are deleted, too; its
    segments are rolled often enough for that to happen soon after.
    """
    config = {} if kind == "stream" else {"cleanup.policy": "compact"}
    if retention is not None:
        config["retention.ms"] = str(retention)
        if kind == "table" and retention >= 0:
            config["cleanup.policy"] = "compact,delete"
            config["segment.ms"] = str(min(max(retention // 4, _MINUTE_MS), KAFKA_DEFAULT_MS))
    return config


def output_retention(sources: Iterable[Retention], *, event_time: bool) -> int | None:
    """The retention.ms of a topic whose records have the timestamps of the input; None: use the default.

    Retention counts from a record's timestamp. With the timestamp of the source record, the retention of the
    source applies. A timestamp from a column (`event_time`) can be arbitrarily old: with the default, old
    records would be deleted within minutes.
    """
    known = list(sources)
    if event_time:
        return None if any(each.ms == -1 and not each.own for each in known) else -1
    own = [each.ms for each in known if each.own]
    if -1 in own:
        return -1
    return max((each for each in own if each > KAFKA_DEFAULT_MS), default=None)


def kept_for_ever(topic: str, columns: Iterable[str]) -> str:
    """The message for a topic that got retention.ms=-1 because of these columns."""
    times = ", ".join(f"`{name}`" for name in columns)
    return (
        f"Note: the topic `{topic}` keeps its records forever, because their times are those of {times}, "
        "which may be old: limit that with WITH (retention = '30 days')"
    )


def ignored(topic: str, given: Iterable[str]) -> str | None:
    """The message for options that only apply to a new topic, if the topic exists."""
    names = [name for name in _OF_NEW_TOPICS if name in set(given)]
    if not names:
        return None
    return f"Note: the topic `{topic}` already exists, so {', '.join(names)} had no effect"
