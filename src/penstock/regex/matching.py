"""Regular expressions that clients and administrators send, matched against whole texts with bounded work.

Python's `re` backtracks: a pattern of ten characters can block it, and the broker, for years. Here a pattern
is compiled to an automaton that tracks all its states at the same time. A character costs at most one check
of every transition, and nothing if the same states have met the same character before. As in RE2 there are no
back references and no lookaround; such patterns are rejected, as are patterns that are too large.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import InvalidRegularExpression
from penstock.regex.syntax import (
    Alternatives,
    Characters,
    Edge,
    Node,
    Repeat,
    Sequence,
    edge_like,
    parse,
)

_MOST_ARROWS = 6_000
_EDGE = 8
"""To ask whether a place is an edge costs as much as so many arrows."""
_KEPT_STATES = 20_000
"""The states in all sets that are remembered."""

_USUAL_WORK = 500_000
_MOST_OVERWORK = 2_000_000
"""More than the longest name of a topic (249 characters) can cost with the largest pattern."""


class Work:
    """The work limit of one turn, in checked transitions (about 0.1 microseconds each).

    The last name may exceed it; only a text too long for a topic name is aborted.
    """

    __slots__ = ("left",)

    def __init__(self, left: int = _USUAL_WORK) -> None:
        self.left = left

    @property
    def is_over(self) -> bool:
        return self.left <= 0


class _Class(NamedTuple):
    """A class of characters that a pattern does not distinguish: the labels that match them, and a
    representative for edges.
    """

    labels: frozenset[int]
    edge: str


class _States:
    """A set of states of the automaton, with the preceding character, and the next set for each class."""

    __slots__ = ("accepts", "before", "states", "to")

    def __init__(self, states: frozenset[int], before: str) -> None:
        self.states = states
        self.before = before
        self.to: dict[_Class, _States] = {}
        self.accepts: bool | None = None


class Regex:
    """A compiled pattern. Sets of states are created on demand, and kept while they are few."""

    __slots__ = (
        "_accept", "_arrows", "_classes", "_costs", "_edges", "_first", "_kept", "_labels", "_reads", "_sets",
        "_skips", "pattern",
    )  # fmt: skip

    def __init__(self, pattern: str) -> None:
        """Raises InvalidRegularExpression."""
        self.pattern = pattern
        self._arrows = 0
        self._labels: dict[Characters, int] = {}
        self._reads: list[list[tuple[int, int]]] = []
        """By state: the characters that have to be read (a number in `_labels`) to go to that state."""
        self._skips: list[list[tuple[Edge | None, int]]] = []
        """By state: where to go without reading; where there is an Edge, only at such a place."""
        self._costs: list[int] = []
        """By state: what it costs to look at its arrows."""
        self._edges = False
        try:
            tree = parse(pattern)
            start, self._accept = self._state(), self._state()
            self._add(tree, start, self._accept)
        except RecursionError:
            raise InvalidRegularExpression("the pattern is nested too deeply") from None
        self._classes: dict[str, _Class] = {}
        self._sets: dict[tuple[frozenset[int], str], _States] = {}
        self._kept = 0
        self._first = _States(frozenset((start,)), "")

    def matches(self, text: str, work: Work | None = None) -> bool:
        """Whether the whole text matches, as with Kafka's `matches`. Subtracts the cost from `work`. Raises
        InvalidRegularExpression if it is far too high.
        """
        work = Work() if work is None else work
        work.left -= len(text)
        here = self._first
        classes = self._classes
        for char in text:
            kind = classes.get(char)
            if kind is None:
                kind = self._class(char, work)
            there = here.to.get(kind)
            if there is None:
                there = self._step(here, kind, work)
            if not there.states:
                return False
            here = there
        if here.accepts is None:
            here.accepts = self._accept in self._closure(here, "", work)
        return here.accepts

    # running

    def _class(self, char: str, work: Work) -> _Class:
        work.left -= _EDGE * len(self._labels)
        labels = frozenset(number for label, number in self._labels.items() if char in label)
        # The characters before and after matter only for edges; without edges more sets are equal.
        found = self._classes[char] = _Class(labels, edge_like(char) if self._edges else "")
        return found

    def _step(self, here: _States, kind: _Class, work: Work) -> _States:
        reads, labels = self._reads, kind.labels
        found = frozenset(
            target
            for state in self._closure(here, kind.edge, work)
            for label, target in reads[state]
            if label in labels
        )
        key = (found, kind.edge)
        there = self._sets.get(key)
        if there is None:
            there = _States(*key)
            self._kept += len(found) + 1
            if self._kept > _KEPT_STATES:
                self.forget()
            self._sets[key] = there
        here.to[kind] = there
        return there

    def forget(self) -> None:
        """Drops the existing sets and the references between them; they are created again on demand."""
        for kept in self._sets.values():
            kept.to.clear()
        self._sets.clear()
        self._first.to.clear()
        self._classes.clear()
        self._kept = 0

    def _closure(self, here: _States, after: str, work: Work) -> list[int]:
        """Adds all states that can be reached without another character."""
        before = here.before
        reached = set(here.states)
        queue = list(here.states)
        skips, costs = self._skips, self._costs
        cost = 0
        for state in queue:
            cost += costs[state]
            for edge, target in skips[state]:
                if target not in reached and (edge is None or edge.holds(before, after)):
                    reached.add(target)
                    queue.append(target)
        work.left -= cost
        if work.left < -_MOST_OVERWORK:
            raise InvalidRegularExpression("the pattern takes too long with so long a text")
        return queue

    # building

    def _state(self) -> int:
        self._costs.append(0)
        self._reads.append([])
        self._skips.append([])
        state = len(self._costs) - 1
        self._count(state, 1)
        return state

    def _count(self, state: int, cost: int) -> None:
        self._costs[state] += cost
        self._arrows += cost
        if self._arrows > _MOST_ARROWS:
            raise InvalidRegularExpression("the pattern is too large")

    def _skip(self, start: int, end: int, edge: Edge | None = None) -> None:
        self._count(start, 1 if edge is None else _EDGE)
        self._skips[start].append((edge, end))

    def _add(self, node: Node, start: int, end: int) -> None:
        match node:
            case Characters():
                self._count(start, 1)
                self._reads[start].append((self._labels.setdefault(node, len(self._labels)), end))
            case Edge():
                self._edges = True
                self._skip(start, end, node)
            case Sequence(()):
                self._skip(start, end)
            case Sequence(items):
                here = start
                for item in items[:-1]:
                    there = self._state()
                    self._add(item, here, there)
                    here = there
                self._add(items[-1], here, end)
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
            # A separate state for the loop: other paths go through `start` and `end`.
            loop = self._state()
            self._skip(here, loop)
            after = self._state()
            self._add(item, loop, after)
            self._skip(after, loop)
            here = loop
        else:
            for _ in range(most - least):
                self._skip(here, end)
                there = self._state()
                self._add(item, here, there)
                here = there
        self._skip(here, end)
