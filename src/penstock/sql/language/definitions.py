"""Parses the definitions of CREATE: columns with types and keys, and the options of a WITH (…)."""

from __future__ import annotations

from dataclasses import replace

from penstock.sql.errors import BadSyntax, Place
from penstock.sql.language.lexer.cursor import Cursor
from penstock.sql.language.statements import Column, Span
from penstock.sqltext.types import read_type


def read_columns(cursor: Cursor) -> tuple[Column, ...]:
    """`(a INT KEY, b STRING, …)`, or with `PRIMARY KEY (a, b)` at its end."""
    cursor.expect_symbol("(")
    columns: list[Column] = []
    while True:
        if columns and cursor.at("PRIMARY", "KEY") and cursor.peek(2).is_symbol("("):
            cursor.position += 2
            columns = _with_keys(cursor, columns)
        else:
            columns.append(_column(cursor, columns))
        if cursor.take_symbol(")"):
            return tuple(columns)
        if not cursor.take_symbol(","):
            could = "" if columns[-1].key else "KEY, PRIMARY KEY, "
            cursor.fail(f"{could}a comma or )", ("KEY", "PRIMARY"))


def read_options(cursor: Cursor) -> tuple[dict[str, str], dict[str, Span]]:
    """`(name = value, …)`: the values, and the positions of the names."""
    options: dict[str, str] = {}
    spans: dict[str, Span] = {}
    cursor.expect_symbol("(")
    while True:
        first = cursor.peek()
        name = read_dotted(cursor, "the name of an option").lower()
        if name in options:
            raise BadSyntax(f"option `{name}` is given twice", Place.of(cursor.text, first.start))
        spans[name] = (first.start, cursor.tokens[cursor.position - 1].end)
        cursor.expect_symbol("=", f"= and the value of `{name}`")
        options[name] = read_value(cursor, f"the value of `{name}`")
        if cursor.take_symbol(")"):
            return options, spans
        cursor.expect_symbol(",", "a comma or )")


def read_dotted(cursor: Cursor, what: str) -> str:
    """`a`, `a.b.c`, `'a.b-c'` or quoted by backticks."""
    if cursor.peek().kind == "string":
        return cursor.next().text
    parts = [read_part(cursor, what)]
    while cursor.take_symbol("."):
        parts.append(read_part(cursor, what))
    return ".".join(parts)


def read_part(cursor: Cursor, what: str) -> str:
    if not cursor.peek().names:
        cursor.fail(what)
    return cursor.next().text


def read_value(cursor: Cursor, what: str) -> str:
    """A string, a number or a boolean, as text."""
    sign = "-" if cursor.peek().is_symbol("-") and cursor.peek(1).kind == "number" else ""
    cursor.position += len(sign)
    token = cursor.peek()
    if token.kind in ("string", "number"):
        cursor.next()
        return sign + token.text
    if token.upper in ("TRUE", "FALSE"):
        cursor.next()
        return token.text.lower()
    cursor.fail(what, hint=" (a text is quoted: '…')" if token.names else "")


def _column(cursor: Cursor, before: list[Column]) -> Column:
    token = cursor.peek()
    if not token.names:
        cursor.fail("the name of a column")
    cursor.next()
    cursor.refuse_dash(token)
    if any(column.name.casefold() == token.text.casefold() for column in before):
        raise BadSyntax(f"column `{token.text}` is listed twice", Place.of(cursor.text, token.start))
    type_text = str(read_type(cursor))
    key = cursor.take("KEY")
    if not key and cursor.take("PRIMARY"):
        cursor.expect("KEY")
        key = True
    return Column(token.text, type_text, key, (token.start, token.end))


def _with_keys(cursor: Cursor, columns: list[Column]) -> list[Column]:
    named = {column.name.casefold() for column in columns}
    keys: set[str] = set()
    cursor.expect_symbol("(")
    while True:
        token = cursor.peek()
        if not token.names or token.text.casefold() not in named:
            cursor.fail("a column that is named before", [column.name for column in columns])
        cursor.next()
        keys.add(token.text.casefold())
        if cursor.take_symbol(")"):
            break
        cursor.expect_symbol(",", "a comma or )")
    return [replace(column, key=column.key or column.name.casefold() in keys) for column in columns]
