"""Recognises pull queries: SELECTs that fix the key of one table. Pure.

`plan` splits the WHERE into conditions joined by AND. If each column of the table's key (except the bounds of
a window) is given by `=` or IN, the rows can be looked up. Comparisons of a column with a literal, and
projections of columns, are executed here; a query with anything else is not `plain`: its rows are looked up
by the key, and Spark executes the unchanged query over these few rows.

Anything that Spark might interpret differently (a number compared with a text) is left to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from itertools import product
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from penstock.sql.language.statements import Query

WINDOW_COLUMNS = ("window_start", "window_end")
_WINDOW_NAMES = {"windowstart": "window_start", "windowend": "window_end"}
_MOST_KEYS = 10_000

Row = Mapping[str, Any]
Condition = Callable[[Row], bool]
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Pull:
    """The rows to look up, and the columns to return."""

    keys: tuple[Key, ...]
    """Values of the key's columns, without those of a window, in the order of the key."""
    conditions: tuple[Condition, ...]
    plain: bool
    """Whether `conditions` and `projections` are the whole query."""
    projections: tuple[tuple[str, str], ...]
    """Output name and column; empty for a query that is not plain."""
    limit: int | None


@dataclass(frozen=True, slots=True)
class _Known:
    """The table's columns: by name in lower case, the name and Spark's type in lower case."""

    columns: Mapping[str, tuple[str, str]]
    names: frozenset[str]
    """The names of the table in the query, in lower case."""

    def find(self, column: exp.Expr | None) -> tuple[str, str] | None:
        if not isinstance(column, exp.Column) or not isinstance(column.this, exp.Identifier):
            return None
        if column.args.get("db") or (column.table and column.table.casefold() not in self.names):
            return None
        folded = column.name.casefold()
        found = self.columns.get(folded)
        if found is None and folded in _WINDOW_NAMES:
            found = self.columns.get(_WINDOW_NAMES[folded])
        return found


def plan(query: Query, columns: Sequence[tuple[str, str]], key: Sequence[str]) -> Pull | None:
    """The pull query over a table with these columns (name, type) and key; None if it is not a pull query."""
    if query.emit is not None or query.withins or query.partition_by is not None:
        return None
    if query.first.window is not None:
        return None
    if query.patterns:
        return None
    if query.union or len(query.sources) != 1 or not key:
        return None
    if any(name.startswith("__") for name in query.columns):
        return None
    select = _parsed(query.text[query.span[0] : query.span[1]])
    if select is None:
        return None
    source = query.sources[0]
    known = _Known(
        {name.casefold(): (name, kind.casefold()) for name, kind in columns},
        frozenset({source.name.casefold(), source.alias.casefold()}),
    )
    where = select.args.get("where")
    if where is None:
        return None
    fixed, conditions, all_plain = _where(where.this, known)
    wanted: list[Sequence[Any]] = []
    for name in key:
        if name.casefold() in WINDOW_COLUMNS:
            continue
        if name.casefold() not in fixed:
            return None
        wanted.append(fixed[name.casefold()])
    if not wanted:
        return None
    size = 1
    for values in wanted:
        size *= len(values)
    if size > _MOST_KEYS:
        return None
    keys = tuple(dict.fromkeys(product(*wanted)))
    projections, limit = _projections(select, known, columns), _limit(select)
    plain = all_plain and projections is not None and limit != -1 and _only(select, "where", "limit")
    if not plain:
        return Pull(keys, (), False, (), None)
    return Pull(keys, tuple(conditions), True, projections or (), limit)


def _parsed(text: str) -> exp.Select | None:
    """A SELECT over one name, without nested ones."""
    try:
        select = sqlglot.parse_one(text, dialect="spark")
    except SqlglotError:
        return None
    if not isinstance(select, exp.Select) or select.args.get("joins") or select.args.get("laterals"):
        return None
    from_ = select.args.get("from_") or select.args.get("from")
    if from_ is None or not isinstance(from_.this, exp.Table) or from_.this.args.get("joins"):
        return None
    table = from_.this
    if any(table.args.get(name) for name in ("laterals", "pivots", "sample", "db", "version", "when")):
        return None
    if sum(1 for _ in select.find_all(exp.Query)) != 1:
        return None
    return select


_HARMLESS = {"kind", "hint", "expressions", "from", "from_", "operation_modifiers"}


def _only(select: exp.Select, *clauses: str) -> bool:
    return all(not value or name in _HARMLESS or name in clauses for name, value in select.args.items())


def _limit(select: exp.Select) -> int | None:
    """-1 if it is not a number."""
    limit = select.args.get("limit")
    if limit is None:
        return None
    count = limit.expression if isinstance(limit, exp.Limit) else None
    if isinstance(count, exp.Literal) and count.is_int:
        return int(count.name)
    return -1


def _projections(
    select: exp.Select, known: _Known, columns: Sequence[tuple[str, str]]
) -> tuple[tuple[str, str], ...] | None:
    chosen: list[tuple[str, str]] = []
    for item in select.expressions:
        if isinstance(item, exp.Star) and not any(item.args.values()):
            chosen += [(name, name) for name, _ in columns]
            continue
        if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            if item.table.casefold() not in known.names or any(item.this.args.values()):
                return None
            chosen += [(name, name) for name, _ in columns]
            continue
        name = item.alias if isinstance(item, exp.Alias) else item.name
        column = known.find(item.this if isinstance(item, exp.Alias) else item)
        if column is None:
            return None
        if not isinstance(item, exp.Alias) and name.casefold() in _WINDOW_NAMES:
            name = column[0]
        chosen.append((name, column[0]))
    return tuple(chosen)


# Conditions


def _where(condition: exp.Expr, known: _Known) -> tuple[dict[str, Sequence[Any]], list[Condition], bool]:
    """The required values of columns, the plain conditions, and whether all conditions are plain."""
    fixed: dict[str, Sequence[Any]] = {}
    conditions: list[Condition] = []
    plain = True
    for part in condition.flatten() if isinstance(condition, exp.And) else (condition,):
        part = part.unnest()
        if isinstance(part, exp.And):
            inner_fixed, inner, inner_plain = _where(part, known)
            for name, values in inner_fixed.items():
                fixed.setdefault(name, values)
            conditions += inner
            plain = plain and inner_plain
            continue
        made = _condition(part, known)
        if made is None:
            plain = False
            continue
        name, values_told, check = made
        if values_told is not None:
            fixed.setdefault(name, values_told)
        conditions.append(check)
    return fixed, conditions, plain


_COMPARISONS: dict[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: ("=", "="),
    exp.NullSafeEQ: ("=", "="),
    exp.NEQ: ("!=", "!="),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
}
_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda value, other: bool(value == other),
    "!=": lambda value, other: bool(value != other),
    "<": lambda value, other: bool(value < other),
    "<=": lambda value, other: bool(value <= other),
    ">": lambda value, other: bool(value > other),
    ">=": lambda value, other: bool(value >= other),
}


def _condition(part: exp.Expr, known: _Known) -> tuple[str, Sequence[Any] | None, Condition] | None:
    """The column, its allowed values if the condition lists them, and the check."""
    if isinstance(part, exp.Not) and isinstance(part.this, exp.Is):
        column = _null_test(part.this, known)
        if column is None:
            return None
        return column.casefold(), None, lambda row, name=column: row[name] is not None
    if isinstance(part, exp.Is):
        column = _null_test(part, known)
        if column is None:
            return None
        return column.casefold(), None, lambda row, name=column: row[name] is None
    if isinstance(part, exp.In):
        return _in(part, known)
    if isinstance(part, exp.Between) and not part.args.get("symmetric"):
        found = known.find(part.this)
        if found is None:
            return None
        low = literal(part.args["low"], found[1])
        high = literal(part.args["high"], found[1])
        if low is None or high is None:
            return None
        return found[0].casefold(), None, _between(found[0], low, high)
    if type(part) not in _COMPARISONS:
        return None
    as_is, turned = _COMPARISONS[type(part)]
    found, other, operator = known.find(part.this), part.expression, as_is
    if found is None:
        found, other, operator = known.find(part.expression), part.this, turned
    if found is None:
        return None
    value = literal(other, found[1])
    if value is None:
        return None
    return found[0].casefold(), (value,) if operator == "=" else None, _compare(found[0], operator, value)


def _null_test(part: exp.Is, known: _Known) -> str | None:
    found = known.find(part.this)
    return found[0] if found is not None and isinstance(part.expression, exp.Null) else None


def _in(part: exp.In, known: _Known) -> tuple[str, Sequence[Any] | None, Condition] | None:
    found = known.find(part.this)
    if (
        found is None
        or not part.expressions
        or any(part.args.get(each) for each in ("query", "unnest", "field"))
    ):
        return None
    values = [literal(each, found[1]) for each in part.expressions]
    if any(value is None for value in values):
        return None
    name, members = found[0], frozenset(values)
    return name.casefold(), tuple(dict.fromkeys(values)), lambda row: row[name] in members


def _between(name: str, low: Any, high: Any) -> Condition:
    return lambda row: (value := row[name]) is not None and bool(low <= value <= high)


def _compare(name: str, operator: str, other: Any) -> Condition:
    test = _TESTS[operator]
    return lambda row: (value := row[name]) is not None and test(value, other)


# Literals

_INTEGERS = {
    "tinyint": 7,
    "byte": 7,
    "smallint": 15,
    "short": 15,
    "int": 31,
    "integer": 31,
    "bigint": 63,
    "long": 63,
}
_WHOLE = re.compile(r"\s*[+-]?\d{1,19}\s*\Z")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
_MOMENT = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)(Z|[+-]\d{2}:\d{2})?)?\Z"
)


def literal(node: exp.Expr, kind: str) -> Any:
    """The value of a literal for a column of the type, as in rows; None if it is not plain."""
    node = node.unnest()
    if isinstance(node, exp.Boolean):
        return node.this if kind == "boolean" else None
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        # TIMESTAMP '…' and DATE '…' are casts, too.
        if node.to.sql("spark").casefold() != kind or kind not in ("timestamp", "timestamp_ntz", "date"):
            return None
        return _from_text(node.this.name, kind)
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        return _from_number(f"-{node.this.name}", kind)
    if isinstance(node, exp.Literal):
        return _from_text(node.name, kind) if node.is_string else _from_number(node.name, kind)
    return None


def _from_number(text: str, kind: str) -> Any:
    if kind in _INTEGERS:
        value = int(text) if _WHOLE.match(text) else None
        bound = 1 << _INTEGERS[kind]
        return value if value is not None and -bound <= value < bound else None
    if kind == "double":
        # Spark compares an integer or a decimal with a double as doubles.
        try:
            return float(text)
        except ValueError:
            return None
    if kind.startswith("decimal"):
        try:
            return Decimal(text) if "e" not in text.casefold() else None
        except InvalidOperation:
            return None
    return None


def _from_text(text: str, kind: str) -> Any:
    if kind == "string":
        return text
    if kind in _INTEGERS and _WHOLE.match(text):
        return _from_number(text.strip(), kind)
    try:
        if kind == "date" and _DAY.match(text):
            return date.fromisoformat(text)
        if kind in ("timestamp", "timestamp_ntz") and (found := _MOMENT.match(text)):
            return _moment(found, local=kind == "timestamp_ntz")
    except ValueError:
        return None
    return None


def _moment(found: re.Match[str], *, local: bool) -> datetime | None:
    day, clock, zone = found.groups()
    moment = datetime.fromisoformat(f"{day}T{clock or '00:00'}")
    if local:
        return moment if zone is None else None
    if zone in (None, "Z"):
        return moment.replace(tzinfo=UTC)
    return datetime.fromisoformat(f"{moment.isoformat()}{zone}").astimezone(UTC)
