"""Properties of one expression of a query: its name in the result, and whether it aggregates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlglot
from sqlglot.errors import SqlglotError

from penstock.sql.language.lexer.keywords import AGGREGATES
from penstock.sql.language.lexer.tokens import tokenize
from penstock.sqltext.tokens import Token

_NO_COLUMN = ("NULL", "TRUE", "FALSE", "CURRENT_DATE", "CURRENT_TIMESTAMP", "CURRENT_USER", "USER", "END")


def output_name(text: str, tokens: Sequence[Token], start: int, end: int) -> str | None:
    """The alias, or the column's or field's own name; `*` for a star; None if Spark generates a name."""
    first, last = tokens[start], tokens[end - 1]
    if first.is_symbol("*") or (last.is_symbol("*") and end - start > 1 and tokens[end - 2].is_symbol(".")):
        return "*"
    if not last.names:
        return None
    if end - start == 1:
        return None if last.upper in _NO_COLUMN else last.text
    if tokens[end - 2].upper == "AS" or _is_path(tokens, start, end):
        return last.text
    before = tokens[end - 2]
    if before.kind == "symbol" and before.text not in ")]":
        return None
    # `a b` has the alias b, but `NOT b`, `a AND b` and `CASE … END` have none: this needs a parser.
    try:
        select = sqlglot.parse_one(f"SELECT {text[first.start : last.end]}", read="spark")
    except (SqlglotError, RecursionError, ValueError):
        return None
    items = select.expressions
    return last.text if len(items) == 1 and isinstance(items[0], sqlglot.exp.Alias) else None


def without_alias(item: str) -> str:
    """`a + 1 AS b` or `a + 1 b` without its name."""
    tokens = tokenize(item)
    end = len(tokens)
    if end < 2 or _is_path(tokens, 0, end) or output_name(item, tokens, 0, end) in (None, "*"):
        return item
    return item[: tokens[end - 3 if tokens[end - 2].upper == "AS" and end > 2 else end - 2].end]


def has_aggregate(tokens: Sequence[Token], start: int, end: int, pairs: Mapping[int, int]) -> bool:
    """Whether it calls an aggregate function, but not OVER a window or in a subquery."""
    at = start
    while at < end:
        token = tokens[at]
        opens = at + 1 < end and tokens[at + 1].is_symbol("(")
        if token.is_symbol("(") and at + 1 < end and tokens[at + 1].upper in ("SELECT", "WITH"):
            at = pairs[at] + 1
            continue
        if opens and token.upper in AGGREGATES and not (at > start and _makes_no_call(tokens[at - 1])):
            after = _after_call(tokens, at + 1, end, pairs)
            if after >= end or tokens[after].upper != "OVER":
                return True
        at += 1
    return False


def _makes_no_call(before: Token) -> bool:
    """`a.first (…)` is a field; `a LIKE ANY (…)` and `a = ANY (…)` compare."""
    return (before.kind == "symbol" and before.text in ".=<>") or before.upper in ("LIKE", "ILIKE", "RLIKE")


def _is_path(tokens: Sequence[Token], start: int, end: int) -> bool:
    """`a`, `a.b`, `` a.`b-c`.d ``"""
    return (end - start) % 2 == 1 and all(
        tokens[at].is_symbol(".") if (at - start) % 2 else tokens[at].names for at in range(start, end)
    )


def _after_call(tokens: Sequence[Token], opening: int, end: int, pairs: Mapping[int, int]) -> int:
    """The index after `(…) [WITHIN GROUP (…)] [FILTER (…)] [IGNORE NULLS]`."""
    at = pairs[opening] + 1
    while at < end:
        if tokens[at].upper in ("FILTER", "GROUP") and at + 1 < end and tokens[at + 1].is_symbol("("):
            at = pairs[at + 1] + 1
        elif tokens[at].upper in ("WITHIN", "IGNORE", "RESPECT", "NULLS"):
            at += 1
        else:
            break
    return at
