"""The patterns of a shard, and the topics that each matches. A cache: entries are dropped and created again
as needed.

Each name is matched once with each pattern: a new topic costs one match. Work beyond the limit of a turn is
left for the next one. A pattern is resolved with the heartbeat after the one that introduces it (`advance`),
because Kafka resolves patterns asynchronously, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.groups.group import TopicsView
from penstock.regex.matching import Regex, Work

_COMPILED = 10
_RESOLVED = 2_000


class _Resolved:
    """The results of a pattern: of all `topics`, those that matched and those that were not checked yet."""

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
        """The names of existing topics that match. Internal topics are left out: a group that reads the
        records of its own commits would never reach an end.

        When `work` is exhausted, unchecked names keep their result of `before`.
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
        """A group no longer uses it. Its results would keep all topic names of that time in memory."""
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
        regex.forget()  # its cache is large, and rarely useful for the next topic

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
