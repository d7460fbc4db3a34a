"""Finds the parts of an expression that refer to rows of the match: columns of variables, FIRST, LAST, PREV,
aggregates.

Each of them is a leaf, and is replaced by a name in the rest of the expression. The argument of a leaf is an
expression that Spark computes for each row: `SUM(A.price * A.pieces)` is the sum of a column `price *
pieces`. So it may be any expression of Spark. The rest of MEASURES is computed by Spark, too, the rest of
DEFINE by `conditions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from penstock.spark.patterns.errors import BadPattern, Fragment
from penstock.spark.patterns.registers import Kind

if TYPE_CHECKING:
    from penstock.sqltext.tokens import Token

LEAF = "__leaf_"
_AGGREGATES = {"COUNT": "count", "SUM": "sum", "MIN": "min", "MAX": "max", "AVG": "avg"}
_NAVIGATION = ("FIRST", "LAST", "PREV", "NEXT", "CLASSIFIER", "MATCH_NUMBER", *_AGGREGATES)
_NOT_HERE = frozenset((
    "ANY_VALUE", "APPROX_COUNT_DISTINCT", "ARRAY_AGG", "BOOL_AND", "BOOL_OR", "COLLECT_LIST", "COLLECT_SET",
    "CORR", "COUNT_IF", "EVERY", "FIRST_VALUE", "LAST_VALUE", "LISTAGG", "MAX_BY", "MEAN", "MEDIAN", "MIN_BY",
    "MODE", "PERCENTILE", "PERCENTILE_APPROX", "SOME", "STD", "STDDEV", "STDDEV_POP", "STDDEV_SAMP",
    "STRING_AGG", "VARIANCE", "VAR_POP", "VAR_SAMP",
))  # fmt: skip
_NO_CALL = frozenset((
    "AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ILIKE", "RLIKE", "WHEN", "THEN", "ELSE", "CASE", "IS", "AS",
    "END", "ANY", "ALL",
))  # fmt: skip
_MOST_BACK = 1000


@dataclass(frozen=True, slots=True)
class Local:
    """An expression of Spark over one row."""

    text: str
    back: int = 0
    """The number of rows to look back in the partition."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A reference to rows of the match. Kind `row`: the current row of a DEFINE."""

    kind: Kind | str
    variable: str | None = None
    """In capitals. None: any variable."""
    local: Local | None = None
    offset: int = 0
    final: bool = False


@dataclass(slots=True)
class Reading:
    """A parsed expression: its leaves by name, and the text in which these names replace them."""

    fragment: Fragment
    text: str = ""
    leaves: dict[str, Leaf] = field(default_factory=dict)
    local: Local | None = None
    """Whether it refers only to the current row of a DEFINE."""


def _tokens_of(fragment: Fragment) -> list[Token]:
    # Not for the workers, which only unpickle what was read here.
    from penstock.sqltext.tokens import NeverEnds, tokenize

    try:
        return tokenize(fragment.text)
    except NeverEnds as error:
        raise BadPattern(error.message, fragment, error.offset) from None


class Reader:
    """Parses the expressions of one pattern."""

    def __init__(self, variables: Sequence[str], columns: Sequence[str]) -> None:
        """`variables`: of the pattern and its subsets, in capitals; `columns`: of the rows."""
        self._variables = set(variables)
        self._columns = {each.casefold() for each in columns}
        self._names: dict[Leaf, str] = {}

    def define(self, fragment: Fragment, variable: str) -> Reading:
        return _Expression(fragment, self._variables, self._columns, self._name, variable.upper()).read()

    def measure(self, fragment: Fragment) -> Reading:
        return _Expression(fragment, self._variables, self._columns, self._name, None).read()

    def _name(self, leaf: Leaf) -> str:
        return self._names.setdefault(leaf, f"{LEAF}{len(self._names)}")

    def leaves(self) -> Mapping[Leaf, str]:
        return self._names


class _Expression:
    def __init__(
        self,
        fragment: Fragment,
        variables: set[str],
        columns: set[str],
        name: Callable[[Leaf], str],
        current: str | None,
    ) -> None:
        self._fragment = fragment
        self._words = _tokens_of(fragment)
        self._variables = variables
        self._columns = columns
        self._name = name
        self._current = current
        """The variable that a DEFINE is for; None in MEASURES."""
        self._found: dict[str, Leaf] = {}

    def read(self) -> Reading:
        if not self._words:
            raise BadPattern("an expression is missing", self._fragment)
        for at, word in enumerate(self._words):
            if word.upper in ("SELECT", "OVER", "FILTER") and not self._is(at - 1, "."):
                self._fail(f"{word.upper} cannot stand in a pattern's expression", at)
            if self._calls(at) and word.upper in _NOT_HERE:
                self._fail(
                    f"{word.upper} is not supported in a pattern: COUNT, SUM, MIN, MAX and AVG are", at
                )
        text = self._text(0, len(self._words))
        reading = Reading(self._fragment, text, self._found)
        if self._current is not None:
            whole = self._local(0, len(self._words), {self._current}, bare=True)
            if whole is not None:
                reading.local = Local(whole[0])
        return reading

    # -- words

    def _fail(self, message: str, at: int) -> NoReturn:
        words = self._words
        raise BadPattern(
            message, self._fragment, words[at].start if at < len(words) else len(self._fragment.text)
        )

    def _is(self, at: int, symbol: str) -> bool:
        return (
            0 <= at < len(self._words) and self._words[at].kind == "symbol" and self._words[at].text == symbol
        )

    def _names(self, at: int) -> bool:
        return 0 <= at < len(self._words) and self._words[at].kind in ("word", "quoted")

    def _closing(self, opened: int) -> int:
        depth = 0
        for at in range(opened, len(self._words)):
            if self._is(at, "("):
                depth += 1
            elif self._is(at, ")"):
                depth -= 1
                if not depth:
                    return at
        self._fail("this ( is never closed", opened)

    def _calls(self, at: int) -> bool:
        """Whether a function's name is here, followed by a bracket."""
        return (
            self._names(at)
            and self._is(at + 1, "(")
            and not self._is(at - 1, ".")
            and self._words[at].upper not in _NO_CALL
        )

    def _navigates(self, at: int) -> bool:
        return self._calls(at) and self._words[at].upper in _NAVIGATION

    def _qualified(self, at: int) -> str | None:
        """The variable, if a column of a variable is here."""
        if not self._names(at) or not self._is(at + 1, ".") or self._is(at - 1, "."):
            return None
        name = self._words[at].text.upper()
        return name if name in self._variables and (self._names(at + 2) or self._is(at + 2, "*")) else None

    def _column(self, at: int) -> bool:
        """Whether a column without a variable is here."""
        return (
            self._names(at)
            and self._words[at].text.casefold() in self._columns
            and not self._is(at - 1, ".")
            and not self._is(at + 1, "(")
            and not (at and self._words[at - 1].upper == "AS")
        )

    def _path_end(self, at: int) -> int:
        """The index after a column and its fields, `a.b[0].c`."""
        at += 1
        while at < len(self._words):
            if self._is(at, ".") and self._names(at + 1):
                at += 2
            elif self._is(at, "["):
                while at < len(self._words) and not self._is(at, "]"):
                    at += 1
                at += 1
            else:
                break
        return at

    def _slice(self, start: int, end: int) -> str:
        if start >= end:
            return ""
        return self._fragment.text[self._words[start].start : self._words[end - 1].end]

    # -- expressions over one row

    def _local(self, start: int, end: int, allowed: set[str], *, bare: bool) -> tuple[str, str | None] | None:
        """Tokens that refer to one row of a variable, without the variable's name; None for other tokens.

        With an empty `allowed`, any single variable is accepted, and returned. `bare`: columns may have no
        variable.
        """
        pieces: list[str] = []
        copied = self._words[start].start if start < end else 0
        owner: str | None = None
        plain = False
        for at in range(start, end):
            if self._navigates(at):
                return None
            variable = self._qualified(at)
            if variable is None:
                plain |= self._column(at)
                continue
            if (allowed and variable not in allowed) or (owner not in (None, variable)):
                return None
            owner = variable
            word = self._words[at]
            pieces.append(self._fragment.text[copied : word.start])
            copied = self._words[at + 2].start
        if plain and (not bare or (not allowed and owner is not None)):
            return None
        pieces.append(self._fragment.text[copied : self._words[end - 1].end] if start < end else "")
        return "".join(pieces).strip(), owner

    # -- the expression with names for its leaves

    def _leaf(self, leaf: Leaf) -> str:
        name = self._name(leaf)
        self._found[name] = leaf
        return name

    def _text(self, start: int, end: int) -> str:
        pieces: list[str] = []
        copied = self._words[start].start if start < end else 0
        at = start
        while at < end:
            made, after = self._at(at, end)
            if made is None:
                at = after
                continue
            pieces += [self._fragment.text[copied : self._words[at].start], made]
            copied = self._words[after - 1].end
            at = after
        pieces.append(self._fragment.text[copied : self._words[end - 1].end] if start < end else "")
        return "".join(pieces)

    def _at(self, at: int, end: int) -> tuple[str | None, int]:
        """The replacement of the tokens here, and the index after them; None if they stay unchanged."""
        word = self._words[at]
        if word.upper in ("RUNNING", "FINAL") and self._navigates(at + 1):
            if self._current is not None and word.upper == "FINAL":
                self._fail("FINAL cannot stand in DEFINE: the match is not final yet", at)
            leaf, after = self._navigation(at + 1, final=word.upper == "FINAL")
            return self._leaf(leaf), after
        if self._navigates(at):
            leaf, after = self._navigation(at, final=False)
            return self._leaf(leaf), after
        if self._calls(at):
            after = self._closing(at + 1) + 1
            if self._current is not None:
                found = self._local(at, after, {self._current}, bare=True)
                if found is not None:
                    return self._leaf(Leaf("row", None, Local(found[0]))), after
            return None, at + 1
        variable = self._qualified(at)
        if variable is not None:
            if self._is(at + 2, "*"):
                self._fail(f"{variable}.* stands in COUNT only", at)
            after = self._path_end(at + 2)
            local = Local(self._slice(at + 2, after))
            if variable == self._current:
                return self._leaf(Leaf("row", None, local)), after
            return self._leaf(Leaf("last", variable, local)), after
        if self._column(at):
            after = self._path_end(at)
            local = Local(self._slice(at, after))
            kind = "last" if self._current is None else "row"
            return self._leaf(Leaf(kind, None, local)), after
        return None, at + 1

    def _navigation(self, at: int, *, final: bool) -> tuple[Leaf, int]:
        """FIRST(…), LAST(…), PREV(…), an aggregate, CLASSIFIER() or MATCH_NUMBER()."""
        name = self._words[at].upper
        close = self._closing(at + 1)
        after = close + 1
        if name == "NEXT":
            self._fail("NEXT is not supported: it asks for a row that has not come", at)
        if name in ("CLASSIFIER", "MATCH_NUMBER"):
            if close != at + 2:
                self._fail(f"{name}() has no arguments", at + 2)
            if name == "MATCH_NUMBER" and self._current is not None:
                self._fail("MATCH_NUMBER() cannot stand in DEFINE", at)
            return Leaf(name.lower(), final=final), after
        if name in _AGGREGATES:
            return self._aggregate(name, at, close, final), after
        inner, offset = self._with_offset(at + 2, close, 1 if name == "PREV" else 0, at)
        if name == "PREV":
            return self._previous(at, inner, offset, final), after
        found = self._local(at + 2, inner, set(), bare=True)
        if found is None or at + 2 >= inner:
            self._fail(f"{name} takes columns of one variable, as in {name}(A.price)", at)
        text, variable = found
        if self._current is not None and variable in (None, self._current) and name == "LAST" and not offset:
            return Leaf("row", None, Local(text)), after
        return Leaf(name.lower(), variable, Local(text), offset, final), after

    def _with_offset(self, start: int, close: int, default: int, at: int) -> tuple[int, int]:
        """The end of the first argument, and the number after it."""
        depth = 0
        for comma in range(start, close):
            if self._is(comma, "(") or self._is(comma, "["):
                depth += 1
            elif self._is(comma, ")") or self._is(comma, "]"):
                depth -= 1
            elif self._is(comma, ",") and not depth:
                number = self._words[comma + 1].text
                if comma + 2 != close or not number.isdecimal() or int(number) > _MOST_BACK:
                    self._fail(f"the offset must be a number from 0 to {_MOST_BACK}", comma + 1)
                return comma, int(number)
        return close, default

    def _previous(self, at: int, inner: int, back: int, final: bool) -> Leaf:
        """PREV(x, k): the row k before the one that x refers to."""
        start = at + 2
        if self._words[start : start + 1] and self._words[start].upper in ("RUNNING", "FINAL"):
            final |= self._words[start].upper == "FINAL"
            start += 1
        if self._navigates(start) and self._closing(start + 1) + 1 == inner:
            leaf, _ = self._navigation(start, final=final)
            if leaf.local is None or leaf.kind not in ("first", "last", "row") or leaf.local.back:
                self._fail("PREV takes columns, FIRST(…) or LAST(…)", at)
            return Leaf(leaf.kind, leaf.variable, Local(leaf.local.text, back), leaf.offset, leaf.final)
        found = self._local(start, inner, set(), bare=True)
        if found is None or start >= inner:
            self._fail("PREV takes columns of one variable, as in PREV(A.price)", at)
        text, variable = found
        if self._current is not None and variable in (None, self._current):
            return Leaf("row", None, Local(text, back))
        return Leaf("last", variable, Local(text, back), 0, final)

    def _aggregate(self, name: str, at: int, close: int, final: bool) -> Leaf:
        start, kind = at + 2, _AGGREGATES[name]
        if self._words[start].upper == "DISTINCT":
            self._fail(f"{name}(DISTINCT …) is not supported in a pattern", start)
        if name == "COUNT" and close == start + 1 and self._is(start, "*"):
            return Leaf(kind, None, None, 0, final)
        variable = self._qualified(start)
        if name == "COUNT" and variable is not None and close == start + 3 and self._is(start + 2, "*"):
            return Leaf(kind, variable, None, 0, final)
        found = self._local(start, close, set(), bare=True)
        if found is None or start >= close:
            self._fail(f"{name} takes columns of one variable, as in {name}(A.price)", at)
        return Leaf(kind, found[1], Local(found[0]), 0, final)
