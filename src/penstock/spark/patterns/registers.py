"""Registers: what FIRST, LAST, CLASSIFIER and aggregates remember of the rows of a match.

A register is an immutable value; `update` returns a new one. So threads of the automaton can share and
compare them, and the state of a query stores them unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["first", "last", "count", "sum", "min", "max", "avg", "classifier", "match_number"]
Values = tuple[Any, ...]
"""Of a row: the columns that Spark has computed for the pattern."""


@dataclass(frozen=True, slots=True)
class Register:
    """A function of the rows of some variables."""

    kind: Kind
    variables: frozenset[int] | None = None
    """None: all rows of the match."""
    column: int | None = None
    """A column of `Values`; None for count(*)."""
    offset: int = 0
    """FIRST(x, 1) is the second row, LAST(x, 1) the second to last."""
    final: bool = False
    """Computed over the whole match, even in the output of a row in its middle."""

    def concerns(self, variable: int) -> bool:
        if self.kind == "match_number":
            return False  # it is the match's, and no row changes it
        return self.variables is None or variable in self.variables

    def start(self) -> Any:
        if self.kind == "count":
            return 0
        if self.kind == "first" or (self.kind == "last" and self.offset):
            return ()
        return None

    def updater(self) -> Callable[[Any, Values, int], Any]:
        """Takes a register, the values of a row and its variable; returns the next register."""
        column, most = self.column, self.offset + 1

        def last(held: Any, values: Values, variable: int) -> Any:
            return values[column]  # type: ignore[index]

        def last_of(held: Any, values: Values, variable: int) -> Any:
            return (*held[-self.offset :], values[column])  # type: ignore[index]

        def first(held: Any, values: Values, variable: int) -> Any:
            return held if len(held) == most else (*held, values[column])  # type: ignore[index]

        def classifier(held: Any, values: Values, variable: int) -> Any:
            return variable

        def count_all(held: Any, values: Values, variable: int) -> Any:
            return held + 1

        def aggregate(held: Any, values: Values, variable: int) -> Any:
            value = values[column]  # type: ignore[index]
            return held if value is None else combined(held, value)

        combined = _COMBINED.get(self.kind, _sum)
        if self.kind == "count" and column is None:
            return count_all
        chosen: dict[str, Callable[[Any, Values, int], Any]] = {
            "last": last_of if self.offset else last,
            "first": first,
            "classifier": classifier,
        }
        return chosen.get(self.kind, aggregate)

    def value(self, held: Any) -> Any:
        """The value of the register in an expression."""
        if self.kind == "first":
            return held[self.offset] if len(held) > self.offset else None
        if self.kind == "last" and self.offset:
            return held[0] if len(held) > self.offset else None
        if self.kind == "avg":
            return None if held is None else float(held[0]) / held[1]
        return held


def _count(held: Any, value: Any) -> Any:
    return held + 1


def _sum(held: Any, value: Any) -> Any:
    return value if held is None else held + value


def _min(held: Any, value: Any) -> Any:
    # NaN is greater than every number, as in Spark.
    return value if held is None or value < held or held != held else held


def _max(held: Any, value: Any) -> Any:
    return value if held is None or value > held or value != value else held


def _avg(held: Any, value: Any) -> Any:
    return (value, 1) if held is None else (held[0] + value, held[1] + 1)


_COMBINED = {"count": _count, "sum": _sum, "min": _min, "max": _max, "avg": _avg}
