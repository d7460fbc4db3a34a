"""Compiles the text of PATTERN to an automaton: `A B+ (C | D)*? E{2,3}`.

Each occurrence of a variable is a position. `follow` has the positions that may come after one, the preferred
first: a greedy quantifier prefers to continue, a reluctant one to stop, an alternation its first branch.
ACCEPT among them means that the match may end there. Counted quantifiers are expanded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.spark.patterns.errors import BadPattern, Fragment

ACCEPT = -1
MOST_POSITIONS = 1000
_WORD = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*|`[^`]+`)|(?P<number>\d+)|(?P<open>\{-)|(?P<symbol>[-(){}|*+?,^$]))"
)


@dataclass(frozen=True, slots=True)
class Automaton:
    variables: tuple[str, ...]
    """The variables, in the order of their first occurrence."""
    variable_of: tuple[int, ...]
    """The variable of each position."""
    start: tuple[int, ...]
    """The positions with which a match may start, the preferred first."""
    follow: tuple[tuple[int, ...], ...]
    """The next positions of each position, the preferred first; ACCEPT is the end of the match."""


# A node is a function from the positions that follow (preferred first) to the positions that may come now. It
# is called twice for a loop, so positions are created before, during parsing.
@dataclass(frozen=True, slots=True)
class _Name:
    variable: int


@dataclass(frozen=True, slots=True)
class _All:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Any:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    inner: _Node
    least: int
    most: int | None
    greedy: bool


_Node = _Name | _All | _Any | _Repeat


def compile_pattern(fragment: Fragment) -> Automaton:
    """Raises BadPattern for an invalid pattern, or one that matches without a row."""
    reader = _Reader(fragment)
    node = reader.alternation()
    reader.end()
    if _nullable(node):
        raise BadPattern("this pattern matches no row at all; it must have at least one", fragment)
    builder = _Builder(fragment)
    first = builder.first(node, (ACCEPT,))
    return Automaton(
        tuple(reader.variables),
        tuple(builder.variable_of),
        first,
        tuple(tuple(each) for each in builder.follow),
    )


class _Reader:
    def __init__(self, fragment: Fragment) -> None:
        self._fragment = fragment
        self._text = fragment.text
        self._at = 0
        self._depth = 0
        self.variables: list[str] = []

    def _peek(self) -> tuple[str, str, int]:
        """Kind, text and position of the next token; kind `end` after the last."""
        found = _WORD.match(self._text, self._at)
        if found is None:
            rest = self._text[self._at :]
            if rest.strip():
                self._fail(f"unexpected `{rest.strip()[0]}`", self._at + len(rest) - len(rest.lstrip()))
            return "end", "", len(self._text)
        kind = found.lastgroup or ""
        return kind, found[kind], found.start(kind)

    def _take(self, symbol: str) -> bool:
        kind, text, at = self._peek()
        if kind != "symbol" or text != symbol:
            return False
        self._at = at + 1
        return True

    def _fail(self, message: str, at: int) -> None:
        raise BadPattern(message, self._fragment, at)

    def end(self) -> None:
        kind, text, at = self._peek()
        if kind != "end":
            self._fail(f"unexpected `{text}`", at)

    def alternation(self) -> _Node:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else _Any(tuple(parts))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while (found := self._quantified()) is not None:
            parts.append(found)
        if not parts:
            _, text, at = self._peek()
            self._fail(f"expected a variable, not `{text}`" if text else "expected a variable", at)
        return parts[0] if len(parts) == 1 else _All(tuple(parts))

    def _quantified(self) -> _Node | None:
        node = self._primary()
        if node is None:
            return None
        _, text, at = self._peek()
        bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(text)
        if bounds is not None:
            self._at = at + 1
        elif self._take("{"):
            bounds = self._counted(at)
        if bounds is None:
            return node
        return _Repeat(node, bounds[0], bounds[1], not self._take("?"))

    def _counted(self, opened: int) -> tuple[int, int | None]:
        """`{n}`, `{n,}`, `{n,m}` or `{,m}`."""
        least = self._number()
        most: int | None = least
        if self._take(","):
            most = self._number()
            least = least or 0
        elif least is None:
            self._fail("expected a number, as in {2} or {2,5}", opened)
        if not self._take("}"):
            self._fail("this { is never closed", opened)
        assert least is not None
        if most is not None and (most < least or most == 0):
            self._fail(f"{{{least},{most}}} is not possible", opened)
        return least, most

    def _number(self) -> int | None:
        kind, text, at = self._peek()
        if kind != "number":
            return None
        if len(text) > 6:
            self._fail(f"{text} is too many", at)
        self._at = at + len(text)
        return int(text)

    def _primary(self) -> _Node | None:
        kind, text, at = self._peek()
        if kind == "open":
            self._fail("exclusion {- … -} is not supported", at)
        if kind == "name":
            self._at = at + len(text)
            if text.upper() == "PERMUTE" and self._peek()[1] == "(":
                self._fail("PERMUTE is not supported: write the orders with |", at)
            return _Name(self._variable(text.strip("`")))
        if kind != "symbol":
            return None
        if text in "^$":
            self._fail(f"the anchor {text} is not supported: a stream has no end", at)
        if text != "(":
            return None
        self._at = at + 1
        self._depth += 1
        if self._depth > 50:
            self._fail("more than 50 brackets inside each other", at)
        inner = self.alternation()
        self._depth -= 1
        if not self._take(")"):
            self._fail("this ( is never closed", at)
        return inner

    def _variable(self, name: str) -> int:
        for number, known in enumerate(self.variables):
            if known.upper() == name.upper():
                return number
        self.variables.append(name)
        return len(self.variables) - 1


def _nullable(node: _Node) -> bool:
    match node:
        case _Name():
            return False
        case _All(parts):
            return all(_nullable(each) for each in parts)
        case _Any(parts):
            return any(_nullable(each) for each in parts)
        case _Repeat(inner, least, _, _):
            return least == 0 or _nullable(inner)


class _Builder:
    """Prepends a node to the positions that follow it.

    The body of a loop is followed by the loop itself, whose first positions are not known yet: a marker below
    ACCEPT is used until they are.
    """

    def __init__(self, fragment: Fragment) -> None:
        self._fragment = fragment
        self._marks = ACCEPT
        self.variable_of: list[int] = []
        self.follow: list[tuple[int, ...]] = []

    def first(self, node: _Node, after: tuple[int, ...]) -> tuple[int, ...]:
        """The positions with which `node` followed by `after` may start, the preferred first."""
        match node:
            case _Name(variable):
                return (self._position(variable, after),)
            case _All(parts):
                for each in reversed(parts):
                    after = self.first(each, after)
                return after
            case _Any(parts):
                return _merged(*(self.first(each, after) for each in parts))
            case _Repeat(inner, least, None, greedy):
                once, more = self._loop(inner, after, greedy)
                after = more if least == 0 else once
                for _ in range(least - 1):
                    after = self.first(inner, after)
                return after
            case _Repeat(inner, least, most, greedy):
                assert most is not None
                rest = after
                for _ in range(most - least):
                    again = self.first(inner, after)
                    after = _merged(again, rest) if greedy else _merged(rest, again)
                for _ in range(least):
                    after = self.first(inner, after)
                return after

    def _position(self, variable: int, after: tuple[int, ...]) -> int:
        if len(self.variable_of) == MOST_POSITIONS:
            message = f"this pattern is too long: written out it has more than {MOST_POSITIONS} variables"
            raise BadPattern(message, self._fragment)
        self.variable_of.append(variable)
        self.follow.append(after)
        return len(self.variable_of) - 1

    def _loop(
        self, inner: _Node, rest: tuple[int, ...], greedy: bool
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The first positions of a loop with at least one round, and of one that may be skipped."""
        self._marks -= 1
        mark, made = self._marks, len(self.follow)
        entry = self.first(inner, (mark,))
        once = _replaced(entry, mark, rest)  # a round without a row ends the loop
        more = _merged(once, rest) if greedy else _merged(rest, once)
        for position in range(made, len(self.follow)):
            self.follow[position] = _replaced(self.follow[position], mark, more)
        return once, more


def _merged(*lists: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(each for one in lists for each in one))


def _replaced(positions: tuple[int, ...], mark: int, by: tuple[int, ...]) -> tuple[int, ...]:
    if mark not in positions:
        return positions
    at = positions.index(mark)
    return _merged(positions[:at], by, positions[at + 1 :])
