"""Which topics a sink reads: those that it names, or those whose whole name matches `topics.regex`.

The expressions are Python's, nearly Java's. librdkafka's own are POSIX's, where `\\d` is the letter d.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from penstock.connect.runtime.clients import WorkerSettings

_INTERNAL = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))
_AGAIN_SECONDS = 1.0
_AGE = "metadata.max.age.ms"
_AGE_MS = "300000"


class Subscription:
    """`seconds` is the interval in which new topics are looked for."""

    def __init__(self, topics: Sequence[str], regex: str, seconds: float) -> None:
        self._named = list(topics)
        self._regex = re.compile(regex) if regex and not topics else None
        self._seconds = seconds
        self._subscribed: list[str] = []
        self._due = 0.0

    def changed(self, existing: Callable[[], Iterable[str]], now: float) -> list[str] | None:
        """The topics, if they have changed. `existing` is called when it is time to look."""
        found = self._named
        if self._regex is not None:
            if now < self._due:
                return None
            self._due = now + _AGAIN_SECONDS
            matches = self._regex.fullmatch
            found = sorted(name for name in existing() if matches(name) and name not in _INTERNAL)
            if found:
                self._due = now + self._seconds
        if not found or found == self._subscribed:
            return None  # missing topics: the consumer waits for them
        self._subscribed = found
        return found


def seconds_between_looks(worker: WorkerSettings, config: Mapping[str, str]) -> float:
    """The consumer's `metadata.max.age.ms`, as in Kafka Connect."""
    given = config.get(f"consumer.override.{_AGE}") or worker.properties.get(f"consumer.{_AGE}") or _AGE_MS
    return int(given) / 1000 if given.strip().isdecimal() else int(_AGE_MS) / 1000


def problems_of_topics(topics: Sequence[str], regex: str, dead_letters: str) -> dict[str, list[str]]:
    """What is wrong with the topics of a sink, by the name of the setting."""
    if not topics and not regex:
        text = "Must configure one of topics or topics.regex"
        return {"topics": [text], "topics.regex": [text]}
    if topics and regex:
        text = "topics and topics.regex are mutually exclusive options, but both are set."
        return {"topics": [text], "topics.regex": [text]}
    if dead_letters and dead_letters in topics:
        shown = ", ".join(topics)
        text = (
            f"The DLQ topic '{dead_letters}' may not be included in the list of topics ('topics=[{shown}]') "
            "consumed by the connector"
        )
        return {"topics": [text]}
    try:
        if dead_letters and regex and re.fullmatch(regex, dead_letters):
            text = (
                f"The DLQ topic '{dead_letters}' may not be matched by the regex for the topics "
                f"('topics.regex={regex}') consumed by the connector"
            )
            return {"topics.regex": [text]}
        re.compile(regex)
    except re.error as error:
        return {
            "topics.regex": [f"Invalid value {regex} for configuration topics.regex: Invalid regex: {error}"]
        }
    return {}
