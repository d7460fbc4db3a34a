"""Expressions of plans, resolved down to the columns of sources: compared by digest, shown as text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.pipelines.plans.jvm_values import is_chosen_seed

# Fields of an expression to ignore: names given by users, and values that differ with every analysis.
_IGNORED = frozenset(
    ("exprId", "qualifier", "resultId", "nonInheritableMetadataKeys", "metadata", "explicitMetadata",
     "nullable", "origin", "hideSeed", "branches")
)  # fmt: skip
_LONG = 400
"""Characters of an expression that are shown; one that uses others over and over would grow without end."""
_COLUMNS = ("AttributeReference", "OuterReference")
_SEEDED = ("Rand", "Randn", "RandStr", "Uniform")
"""Their last argument is a seed. If the user gave none, it differs with every analysis."""
_SYMBOLS = {
    "Add": "+", "Subtract": "-", "Multiply": "*", "Divide": "/", "Remainder": "%", "EqualTo": "=",
    "EqualNullSafe": "<=>", "GreaterThan": ">", "GreaterThanOrEqual": ">=", "LessThan": "<",
    "LessThanOrEqual": "<=", "And": "AND", "Or": "OR",
}  # fmt: skip
_THROUGH = ("Alias", "KnownNullable", "KnownNotNull", "AggregateExpression", "ToPrettyString")


class NotFollowed(Exception):
    """A column whose origin is unknown."""


@dataclass(frozen=True, slots=True)
class Expression:
    """One node of an expression: the name of its class, its other fields, and its children. A subquery has
    the operators of its plan in a field."""

    kind: str
    fields: Mapping[str, object] = field(default_factory=dict)
    children: tuple[Expression, ...] = ()
    number: int = -1
    """The id of the column that it names or is named by."""
    type: str = ""

    def walk(self) -> Iterator[Expression]:
        yield self
        for child in self.children:
            yield from child.walk()

    def said(self) -> str:
        return str(self.fields.get("name", self.kind))


@dataclass(frozen=True, slots=True)
class Said:
    """An expression: what distinguishes it, and how it is shown."""

    digest: str
    text: str


def digest_of(*parts: object) -> str:
    joined = "\x1f".join(f"{len(str(part))}:{part}" for part in parts)
    return hashlib.sha256(joined.encode()).hexdigest()[:16]


def of_literal(expression: Expression) -> str:
    return str(expression.fields.get("value", expression.kind))


def resolved(expression: Expression, columns: Mapping[int, Said]) -> Said:
    """The expression with its columns replaced by their definitions; NotFollowed if one is unknown."""
    return _Resolver(columns).of(expression)


class _Resolver:
    def __init__(self, columns: Mapping[int, Said]) -> None:
        self._columns = columns
        self._variables: dict[int, int] = {}
        self._subqueries = 0

    def of(self, expression: Expression) -> Said:
        kind = expression.kind
        if kind in _COLUMNS and expression.number >= 0:
            return self._columns.get(expression.number) or self._inner(expression)
        if kind == "Alias" and not self._subqueries:
            return self.of(expression.children[0])
        if kind == "NamedLambdaVariable":
            at = self._variables.setdefault(expression.number, len(self._variables))
            return Said(digest_of("variable", at, expression.type), f"x{at}")
        inside = [self.of(each) for each in _arguments(expression)]
        self._subqueries += "plan" in expression.fields
        fields = [
            f"{name}={self._field(value)}"
            for name, value in sorted(expression.fields.items())
            if name not in _IGNORED
        ]
        self._subqueries -= "plan" in expression.fields
        digest = digest_of(kind, *fields, *(each.digest for each in inside))
        return Said(digest, _text(expression, [each.text for each in inside])[:_LONG])

    def _inner(self, expression: Expression) -> Said:
        """A column of a subquery, distinguished by the place where it first stands."""
        if not self._subqueries:
            raise NotFollowed(expression.said())
        at = self._variables.setdefault(expression.number, len(self._variables))
        return Said(digest_of("column", at, expression.said(), expression.type), expression.said())

    def _field(self, value: object) -> str:
        if isinstance(value, Expression):
            return self.of(value).digest
        if isinstance(value, tuple):
            return digest_of(*(self._field(each) for each in value))
        return str(value)


def _arguments(expression: Expression) -> tuple[Expression, ...]:
    """The children that count: not a seed that Spark chose."""
    children = expression.children
    if expression.kind not in _SEEDED or not children or children[-1].kind != "Literal":
        return children
    hidden = str(expression.fields.get("hideSeed")).lower() == "true"
    return children[:-1] if hidden or not is_chosen_seed(of_literal(children[-1])) else children


class Numbers:
    """Numbers columns in the order of their first appearance: two analyses of one query give the same
    numbers.
    """

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

    def said(self, value: object) -> str:
        if isinstance(value, tuple):
            return f"[{', '.join(self.said(each) for each in value)}]"
        if not isinstance(value, Expression):
            return str(value)
        number = "" if value.number < 0 else f"#{self._seen.setdefault(value.number, len(self._seen))}"
        lambda_ = value.kind == "NamedLambdaVariable"
        children = _arguments(value)
        fields = [
            f"{name}={self.said(each)}"
            for name, each in sorted(value.fields.items())
            if name not in _IGNORED and not (lambda_ and name == "name")
        ]
        return f"{value.kind}{number}({value.type} {fields} {[self.said(each) for each in children]})"


# -- for people


def _text(expression: Expression, inside: list[str]) -> str:
    kind = expression.kind
    if kind == "Literal":
        return _literal(expression)
    if kind == "AggregateExpression" and len(inside) == 2:
        return f"{inside[0]} where {inside[1]}"
    if kind in _THROUGH and inside:
        return inside[0]
    if kind in _SYMBOLS and len(inside) == 2:
        return f"({inside[0]} {_SYMBOLS[kind]} {inside[1]})"
    if kind in ("Cast", "TryCast") and inside:
        return f"cast({inside[0]} as {expression.fields.get('dataType')})"
    if kind == "IsNotNull":
        return f"{inside[0]} is not null"
    if kind == "GetStructField":
        return f"{inside[0]}.{expression.said()}"
    if kind == "CreateNamedStruct":
        return _window(expression, inside) or f"struct({', '.join(inside)})"
    if kind == "PythonUDF":
        return f"{expression.said()}({', '.join(inside)})"
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower()
    return f"{name}({', '.join(inside)})"


def _literal(expression: Expression) -> str:
    value = expression.fields.get("value")
    return f"'{value}'" if expression.fields.get("dataType") == "string" else str(value)


_TIME_OF_WINDOW = re.compile(r"(?:precise_timestamp_conversion\(+)+([^(),]+)")
_UNITS = (("day", 86_400_000_000), ("hour", 3_600_000_000), ("minute", 60_000_000), ("second", 1_000_000))


def _window(expression: Expression, inside: list[str]) -> str | None:
    """`window(t, 1 hour)`, of which Spark makes arithmetic of microseconds."""
    if len(expression.children) != 4:
        return None
    first, start, last, end = expression.children
    if (of_literal(first), of_literal(last)) != ("start", "end"):
        return None
    if not any(each.kind == "PreciseTimestampConversion" for each in start.walk()):
        return None
    time = _TIME_OF_WINDOW.search(inside[1])
    column = time.group(1) if time else "…"
    steps = [each for each in start.walk() if each.kind == "Remainder"]
    if not steps:
        gap = next((each for each in end.walk() if each.kind == "TimestampAddInterval"), None)
        return f"session_window({column}, {of_literal(gap.children[1])})" if gap is not None else None
    slide = _microseconds(steps[0].children[1])
    added = next((each for each in end.walk() if each.kind == "Add"), None)
    size = _microseconds(added.children[1]) if added is not None else None
    if slide is None or size is None:
        return None
    at = steps[0].children[0]
    shift = _microseconds(at.children[1]) if at.kind == "Subtract" else 0
    shown = [size]
    if slide != size or shift:
        shown += [slide, shift] if shift else [slide]
    return f"window({', '.join((column, *(_duration(each) for each in shown)))})"


def _microseconds(expression: Expression) -> int | None:
    value = of_literal(expression)
    return int(value) if re.fullmatch(r"-?\d+", value) else None


def _duration(microseconds: int) -> str:
    for name, each in _UNITS:
        if microseconds and microseconds % each == 0:
            count = microseconds // each
            return f"{count} {name}{'' if count == 1 else 's'}"
    return f"{microseconds} µs"
