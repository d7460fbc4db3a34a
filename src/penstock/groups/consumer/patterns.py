"""The compiled patterns of a shard, and the topics that each matches. Forgotten and made again as needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.groups.consumer.regex import Regex
from penstock.groups.group import TopicsView

_KEPT = 500


class Patterns:
    __slots__ = ("_compiled", "_matched", "_topics")

    def __init__(self) -> None:
        self._compiled: dict[str, Regex] = {}
        self._topics: Mapping[str, Any] | None = None
        self._matched: dict[str, frozenset[str]] = {}

    def check(self, pattern: str) -> None:
        """Raises InvalidRegularExpression."""
        self._regex(pattern)

    def matching(self, pattern: str, view: TopicsView) -> frozenset[str]:
        """The names of the topics there are that match. Internal topics are left out: a group that reads what
        its own commits write would never come to an end."""
        topics = view.topics
        if topics is not self._topics:
            self._topics = topics
            self._matched.clear()
        found = self._matched.get(pattern)
        if found is None:
            regex = self._regex(pattern)
            found = regex.matching(name for name, topic in topics.items() if not topic.is_internal)
            self._matched[pattern] = found
        return found

    def _regex(self, pattern: str) -> Regex:
        found = self._compiled.get(pattern)
        if found is None:
            found = Regex(pattern)
            if len(self._compiled) >= _KEPT:
                self._compiled.clear()
            self._compiled[pattern] = found
        return found
