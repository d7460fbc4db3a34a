"""Regular expressions of subscriptions, in RE2's syntax, matched against whole topic names in linear time.

Python's `re` tries alternatives one after the other: a pattern of ten characters can keep it busy for years,
and the broker with it. Here a pattern becomes an automaton that is in all its states at once. As in RE2 there
are no back references and no looking around; both are refused, as is a pattern that needs too many states.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import InvalidRegularExpression
from penstock.groups.consumer.regex_syntax import (
    Alternatives,
    Characters,
    Edge,
    Node,
    Repeat,
    Sequence,
    parse,
)

_MOST_STATES = 10_000
_KEPT_SETS = 2_000

_Arrow = tuple[Characters | Edge | None, int]
"""What has to be read, or stood at, to go to that state; None for nothing."""


class Regex:
    """A compiled pattern. Sets of states are made when they are first met, and kept."""

    __slots__ = ("_accept", "_arrows", "_sets", "_start", "pattern")

    def __init__(self, pattern: str) -> None:
        """Raises InvalidRegularExpression."""
        self.pattern = pattern
        self._arrows: list[list[_Arrow]] = []
        try:
            tree = parse(pattern)
            start, self._accept = self._state(), self._state()
            self._add(tree, start, self._accept)
        except RecursionError:
            raise InvalidRegularExpression("the pattern is nested too deeply") from None
        self._start = start
        self._sets: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, text: str) -> bool:
        """Whether the whole text is matched, as Kafka's `matches` asks."""
        current: frozenset[int] = frozenset((self._start,))
        before = ""
        for char in text:
            current = self._step(self._closure(current, before, char), char)
            if not current:
                return False
            before = char
        return self._accept in self._closure(current, before, "")

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(name for name in names if self.matches(name))

    # running

    def _step(self, states: frozenset[int], char: str) -> frozenset[int]:
        key = (states, char)
        found = self._sets.get(key)
        if found is None:
            found = frozenset(
                target
                for state in states
                for label, target in self._arrows[state]
                if isinstance(label, Characters) and char in label
            )
            if len(self._sets) >= _KEPT_SETS:
                self._sets.clear()
            self._sets[key] = found
        return found

    def _closure(self, states: frozenset[int], before: str, after: str) -> frozenset[int]:
        """With all states that can be reached here without reading on."""
        key = (states, f"{before}\n{after}")
        found = self._sets.get(key)
        if found is None:
            reached = set(states)
            queue = list(states)
            for state in queue:
                for label, target in self._arrows[state]:
                    if target not in reached and not isinstance(label, Characters):
                        if label is None or label.holds(before, after):
                            reached.add(target)
                            queue.append(target)
            found = self._sets[key] = frozenset(reached)
        return found

    # building

    def _state(self) -> int:
        if len(self._arrows) >= _MOST_STATES:
            raise InvalidRegularExpression("the pattern is too large")
        self._arrows.append([])
        return len(self._arrows) - 1

    def _add(self, node: Node, start: int, end: int) -> None:
        match node:
            case Characters() | Edge():
                self._arrows[start].append((node, end))
            case Sequence(items):
                here = start
                for item in items:
                    there = self._state()
                    self._add(item, here, there)
                    here = there
                self._arrows[here].append((None, end))
            case Alternatives(items):
                for item in items:
                    self._add(item, start, end)
            case Repeat(item, least, most):
                self._add_repeat(item, least, most, start, end)

    def _add_repeat(self, item: Node, least: int, most: int | None, start: int, end: int) -> None:
        here = start
        for _ in range(least):
            there = self._state()
            self._add(item, here, there)
            here = there
        if most is None:
            # A state of its own to come back to: `start` and `end` have other ways through them.
            loop = self._state()
            self._arrows[here].append((None, loop))
            after = self._state()
            self._add(item, loop, after)
            self._arrows[after].append((None, loop))
            here = loop
        else:
            for _ in range(most - least):
                self._arrows[here].append((None, end))
                there = self._state()
                self._add(item, here, there)
                here = there
        self._arrows[here].append((None, end))
