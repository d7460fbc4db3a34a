"""Compares two graphs of types pair by pair, without recursion: shared by the rules of two formats.

Types that refer to each other form chains of pairs, hundreds long in real schemas and longer than Python's
stack allows. So a rule is a generator: it yields the pair whose result it needs and gets the differences
back.
"""

from __future__ import annotations

import abc
from collections.abc import Generator
from typing import Generic, TypeVar

Side = TypeVar("Side")
Found = TypeVar("Found")

MAX_COMPARISONS = 50_000
"""The maximum number of pairs in one check: beyond any real schema, and a few seconds of work."""

MAX_DIFFERENCES = 1_000
"""The maximum number of differences per pair. Types that share types can multiply them without limit."""


class TooComplex(Exception):
    """The check needs more pairs than allowed."""


class PairChecker(abc.ABC, Generic[Side, Found]):
    """Compares pairs of (reader, writer) or (new, old), each pair once, even if types are recursive."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[Found]] = {}
        self._order: list[tuple[int, int]] = []
        self._keep: list[tuple[Side, Side]] = []
        self._asked = 0

    @abc.abstractmethod
    def rule(self, first: Side, second: Side) -> Generator[tuple[Side, Side], list[Found], list[Found]]:
        """The incompatible differences of a pair, their paths relative to it."""

    def run(self, first: Side, second: Side) -> list[Found]:
        open_: set[tuple[int, int]] = set()
        stack: list[tuple[tuple[int, int], int, Generator[tuple[Side, Side], list[Found], list[Found]]]] = []
        answer: list[Found] | None = None
        request: tuple[Side, Side] | None = (first, second)
        while True:
            if request is not None:
                pair = (id(request[0]), id(request[1]))
                self._asked += 1
                if self._asked > MAX_COMPARISONS:
                    raise TooComplex
                if pair in self._known:
                    answer = self._known[pair]
                elif pair in open_:
                    # The pair is in progress further up: assume compatible here, the result is found there.
                    answer = []
                else:
                    open_.add(pair)
                    stack.append((pair, len(self._order), self.rule(*request)))
                    self._order.append(pair)
                    self._keep.append(request)  # keep them alive, so that their ids stay unique
                    answer = None
                request = None
            if not stack:
                return answer or []
            pair, mark, rule = stack[-1]
            try:
                request = next(rule) if answer is None else rule.send(answer)
            except StopIteration as end:
                stack.pop()
                open_.discard(pair)
                answer = self._close(pair, mark, end.value)
                if not stack:
                    return answer

    def _close(self, pair: tuple[int, int], mark: int, found: list[Found]) -> list[Found]:
        found = list(dict.fromkeys(found))[:MAX_DIFFERENCES]
        if found:
            # Results that assumed this pair to be compatible may be wrong: forget them, so that another
            # branch of a union computes them again.
            for later in self._order[mark + 1 :]:
                if self._known.get(later) == []:
                    del self._known[later]
            del self._order[mark + 1 :]
        self._known[pair] = found
        return found
