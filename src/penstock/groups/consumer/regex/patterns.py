"""The patterns of a shard, and the topics that each matches. Forgotten and created again as needed.

Each name is matched once with each pattern: a new topic costs one match. What is more than a turn's work is
left for the next one. A pattern is resolved with the heartbeat after the one that brings it (`advance`), as
Kafka resolves patterns beside heartbeats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.groups.group import TopicsView
from penstock.regex.matching import Regex, Work

_COMPILED = 10
_RESOLVED = 2_000


class _Resolved:
    """What is known of a pattern: of all `topics`, those that matched and those not looked at yet."""

    __slots__ = ("matched", "topics", "unknown")

    def __init__(self) -> None:
        self.topics: Mapping[str, Any] = {}
        self.matched: frozenset[str] = frozenset()
        self.unknown: list[str] = []


class Patterns:
    __slots__ = ("_compiled", "_resolved")

    def __init__(self) -> None:
        self._compiled: dict[str, Regex] = {}
        self._resolved: dict[str, _Resolved] = {}

    def check(self, pattern: str) -> None:
        """Raises InvalidRegularExpression."""
        if pattern not in self._resolved:
            self._regex(pattern)

    def matching(self, pattern: str, view: TopicsView, before: frozenset[str], work: Work) -> frozenset[str]:
        """The names of the topics there are that match. Internal topics are left out: a group that reads what
        its own commits write would never come to an end.

        Where `work` is over, names that were not looked at count as they did `before`.
        """
        known = self._resolved.get(pattern)
        if known is None:
            if len(self._resolved) >= _RESOLVED:
                del self._resolved[next(iter(self._resolved))]
            known = self._resolved[pattern] = _Resolved()
        if known.topics is not view.topics:
            _renew(known, view)
        if known.unknown and not work.is_over:
            self._look(known, pattern, work)
        if not known.unknown:
            return known.matched
        return known.matched | before.intersection(known.unknown)

    def forget(self, pattern: str) -> None:
        """A group has it no more. What is kept of it keeps all names of its time in memory."""
        self._resolved.pop(pattern, None)
        self._compiled.pop(pattern, None)

    def _look(self, known: _Resolved, pattern: str, work: Work) -> None:
        regex = self._regex(pattern)
        found = []
        unknown = known.unknown
        while unknown:
            name = unknown.pop()
            if regex.matches(name, work):
                found.append(name)
            if work.is_over:
                break
        known.matched = known.matched.union(found)
        regex.forget()  # what it remembers is large, and seldom of use to the next topic

    def _regex(self, pattern: str) -> Regex:
        found = self._compiled.get(pattern)
        if found is None:
            found = Regex(pattern)
            if len(self._compiled) >= _COMPILED:
                del self._compiled[next(iter(self._compiled))]
            self._compiled[pattern] = found
        return found


def _renew(known: _Resolved, view: TopicsView) -> None:
    topics, old = view.topics, known.topics
    known.matched = frozenset(name for name in known.matched if name in topics)
    known.unknown = [name for name in known.unknown if name in topics]
    known.unknown += [name for name in topics if name not in old and not topics[name].is_internal]
    known.topics = topics
