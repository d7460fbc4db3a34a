"""The automaton over the ordered rows of one partition: takes rows, returns matches.

Pure. Between two rows it is a plain value (`saved`), which the state of a query can store.

Matches are those of SQL:2016: a match starts at the earliest possible row, and of the matches that start
there the preferred one is returned (greedy or reluctant, alternatives from left to right). So there is one
attempt at a time, at the earliest row; when it fails, the next row is tried. The state of an attempt is an
ordered list of threads: a position of the automaton that expects the next row, and the registers that
conditions use. A thread that equals an earlier one can only give the same result, and is dropped.

If no condition uses registers, a list of threads is a state of a finite automaton, which is built lazily: a
row costs one table lookup. And an attempt that reaches a state of the previous, failed attempt continues from
there, and does not process the rows again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.spark.patterns.registers import Register, Values
from penstock.spark.patterns.syntax import ACCEPT, Automaton

Condition = Callable[[Values, tuple[Any, ...]], bool | None]
"""Of the values of a row and of the registers, in which that row is already."""
Row = tuple[int, int, Values]
"""Time, the variables whose plain conditions hold (a bit for each), and values."""

_HELD = -2
"""In a list of threads, a match that has ended at an earlier row; ACCEPT is one that ends at this row."""
_NEVER = 1 << 63


@dataclass(frozen=True, slots=True)
class Skip:
    """AFTER MATCH: where the next match may start. `first` and `last` are rows of variables; if there is no
    such row, or it is the first row of the match, the next match starts at the next row.
    """

    to: Literal["past last row", "next row", "first", "last"] = "past last row"
    variables: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Program:
    """A pattern, ready to run."""

    automaton: Automaton
    asking: Mapping[int, Condition] = field(default_factory=dict)
    """By variable: conditions that use registers, in addition to the plain ones."""
    registers: tuple[Register, ...] = ()
    """The registers of the conditions."""
    within: int | None = None
    """The longest time from the first to the last row of a match."""
    skip: Skip = Skip()


@dataclass(frozen=True, slots=True)
class Match:
    number: int
    """The number of the match in its partition, from 1."""
    rows: Sequence[tuple[int, Row]]
    """The rows, each with its variable."""


class Matcher:
    """Shared by all partitions."""

    def __init__(self, program: Program) -> None:
        self.program = program
        auto = program.automaton
        self._start, self._follow = auto.start, auto.follow
        self._variable_of = auto.variable_of
        self._updates = tuple(
            tuple(
                (number, register.updater())
                for number, register in enumerate(program.registers)
                if register.concerns(variable)
            )
            for variable in range(len(auto.variables))
        )
        self.plain = not program.asking
        empty = tuple(each.start() for each in program.registers)
        self.begin: tuple[Any, ...] = (
            auto.start if self.plain else tuple((position, empty) for position in auto.start)
        )
        self._table: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}
        self.step = self._step_plain if self.plain else self._step_asking

    # From a list of threads and a row to the next list

    def _step_plain(self, threads: tuple[Any, ...], row: Row) -> tuple[Any, ...]:
        key = (threads, row[1])
        found = self._table.get(key)
        if found is None:
            if len(self._table) > 100_000:
                self._table.clear()
            found = self._table[key] = self._made(threads, row[1])
        return found

    def _made(self, threads: tuple[int, ...], holds: int) -> tuple[int, ...]:
        following: dict[int, None] = {}
        for position in threads:
            if position < 0:
                following[_HELD] = None
                break
            if not holds >> self._variable_of[position] & 1:
                continue
            for each in self._follow[position]:
                following[each] = None
                if each == ACCEPT:
                    return tuple(following)
        return tuple(following)

    def _step_asking(self, threads: tuple[Any, ...], row: Row) -> tuple[Any, ...]:
        _, holds, values = row
        following: dict[Any, None] = {}
        for thread in threads:
            position, registers = thread
            if position < 0:
                following[(_HELD, ())] = None
                break
            after = self._taken(position, registers, holds, values)
            if after is None:
                continue
            for each in self._follow[position]:
                if each == ACCEPT:
                    following[(ACCEPT, ())] = None
                    return tuple(following)
                following[(each, after)] = None
        return tuple(following)

    def _taken(
        self, position: int, registers: tuple[Any, ...], holds: int, values: Values
    ) -> tuple[Any, ...] | None:
        """The registers after mapping a row to the variable of a position; None if its condition fails."""
        variable = self._variable_of[position]
        if not holds >> variable & 1:
            return None
        updates = self._updates[variable]
        if updates:
            changed = list(registers)
            for number, update in updates:
                changed[number] = update(changed[number], values, variable)
            registers = tuple(changed)
        condition = self.program.asking.get(variable)
        return registers if condition is None or condition(values, registers) else None

    def ended(self, threads: tuple[Any, ...]) -> bool:
        """A match ended at the row that produced this list."""
        return bool(threads) and threads[-1] == (ACCEPT if self.plain else (ACCEPT, ()))

    def decided(self, threads: tuple[Any, ...]) -> bool:
        """No later row can change the match."""
        return bool((threads[0] if self.plain else threads[0][0]) < 0)

    def labelled(self, rows: Sequence[Row]) -> list[int]:
        """The variable of each row of a match: runs the threads again and records their paths."""
        empty = tuple(each.start() for each in self.program.registers)
        threads: list[tuple[int, tuple[Any, ...], Any]] = [(each, empty, None) for each in self._start]
        for _, holds, values in rows:
            following: list[tuple[int, tuple[Any, ...], Any]] = []
            seen: set[Any] = set()
            for position, registers, way in threads:
                if position < 0:
                    break  # it ended before; this row belongs to a preferred match
                after = self._taken(position, registers, holds, values)
                if after is None:
                    continue
                longer = (way, self._variable_of[position])
                for each in self._follow[position]:
                    if (each, after) not in seen:
                        seen.add((each, after))
                        following.append((each, after, longer))
                    if each == ACCEPT:
                        break
                if following and following[-1][0] == ACCEPT:
                    break
            threads = following
        way = threads[-1][2]
        labels: list[int] = []
        while way is not None:
            way, label = way
            labels.append(label)
        labels.reverse()
        return labels


class PatternPartition:
    """The rows of one key, with the current attempt at the first of them."""

    __slots__ = ("_accepted", "_fed", "_hint", "_matcher", "_rows", "_threads", "_trace", "number")

    def __init__(self, matcher: Matcher, saved: tuple[Any, ...] | None = None) -> None:
        self._matcher = matcher
        self._rows: list[Row] = []
        self._threads = matcher.begin
        self._fed = 0
        """How many of the rows the attempt has seen."""
        self._accepted = 0
        """How many of them the best match has that the attempt has found; 0: none yet."""
        self._trace: list[tuple[Any, ...]] | None = []
        """The threads after each row of the attempt. None after a restart: it is not saved."""
        self._hint: list[tuple[Any, ...]] | None = None
        """Those of an earlier attempt that has failed, after the same rows. What leads to the same threads
        goes on alike."""
        self.number = 0
        """Of the last match."""
        if saved is not None:
            self.number, rows, self._threads, self._fed, self._accepted = saved
            self._rows = list(rows)
            self._trace = None if self._rows else []

    def saved(self) -> tuple[Any, ...]:
        return (self.number, tuple(self._rows), self._threads, self._fed, self._accepted)

    @property
    def idle(self) -> bool:
        """No attempt is in progress."""
        return not self._rows

    @property
    def deadline(self) -> int:
        """The time from which no row can belong to the attempt."""
        within = self._matcher.program.within
        return _NEVER if within is None or not self._rows else self._rows[0][0] + within

    def push(self, row: Row) -> Iterator[Match]:
        """Processes the next row. Returns the matches that are final now."""
        if not self._rows and not self._matcher.step(self._matcher.begin, row):
            return _NONE  # the common case: it starts no match
        self._rows.append(row)
        return self._advance(None)

    def passed(self, time: int) -> Iterator[Match]:
        """All rows up to this time have arrived."""
        return self._advance(time) if self._rows and self.deadline <= time else _NONE

    def finish(self) -> Iterator[Match]:
        """No more rows will arrive."""
        return self._advance(_NEVER)

    def _advance(self, time: int | None) -> Iterator[Match]:
        matcher, rows = self._matcher, self._rows
        within = matcher.program.within
        while rows:
            limit = _NEVER if within is None else rows[0][0] + within
            if self._undecided(limit) and (time is None or limit > time):
                return
            if self._accepted:
                yield from self._matched()
            else:
                self._failed()

    def _undecided(self, limit: int) -> bool:
        """Continues the attempt. Returns whether later rows decide it."""
        matcher, rows = self._matcher, self._rows
        step, threads, fed = matcher.step, self._threads, self._fed
        trace, hint, count = self._trace, self._hint, len(rows)
        undecided = False
        while not (fed and matcher.decided(threads)):
            if fed == count:
                undecided = True
                break
            if rows[fed][0] > limit:
                break
            threads = step(threads, rows[fed])
            if trace is not None:
                trace.append(threads)
            if not threads:
                break
            fed += 1
            if matcher.ended(threads):
                self._accepted = fed
            elif hint is not None and trace is not None and hint[fed - 1] == threads:
                hint[:fed] = trace
                self._trace = trace = hint
                threads, fed = trace[-1], len(trace)
                self._hint = hint = None
                if not threads:
                    break
            if hint is not None and fed == len(hint):
                self._hint = hint = None
        self._threads, self._fed = threads, fed
        return undecided

    def _matched(self) -> Iterator[Match]:
        rows = self._rows
        taken = rows[: self._accepted]
        labels = self._matcher.labelled(taken)
        self.number += 1
        yield Match(self.number, list(zip(labels, taken, strict=True)))
        del rows[: self._skipped(labels)]
        self._restart()

    def _skipped(self, labels: list[int]) -> int:
        skip = self._matcher.program.skip
        if skip.to == "past last row":
            return len(labels)
        if skip.to == "next row":
            return 1
        there = [at for at, label in enumerate(labels) if label in skip.variables]
        # At the first row the same match would be found again; a continuous query must not fail here.
        return max(1, there[0] if skip.to == "first" else there[-1]) if there else 1

    def _restart(self) -> None:
        self._threads, self._fed, self._accepted = self._matcher.begin, 0, 0
        self._trace, self._hint = [], None

    def _failed(self) -> None:
        """The attempt at the first row failed: the next one starts at the second row."""
        hint = self._trace if self._hint is None else self._hint
        del self._rows[0]
        self._restart()
        if hint and self._matcher.plain:
            del hint[0]
            self._hint = hint or None


_NONE: Iterator[Match] = iter(())
