"""Parses the time clauses of a query: WINDOW TUMBLING | HOPPING | SESSION (…), and WITHIN of a join."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.sql.errors import BadSyntax, Place
from penstock.sql.language.durations import duration
from penstock.sql.language.lexer.cursor import Cursor
from penstock.sql.language.statements import Span, Window

WindowKind = Literal["tumbling", "hopping", "session"]
WINDOWS: dict[str, WindowKind] = {"TUMBLING": "tumbling", "HOPPING": "hopping", "SESSION": "session"}


@dataclass(frozen=True, slots=True)
class Nearness:
    """A WITHIN before its joined relations are known."""

    before: str
    after: str
    grace: str | None
    span: Span


def read_window(cursor: Cursor, kind: WindowKind, span: Span) -> Window:
    """Parses the content of the brackets of a WINDOW, which the cursor covers."""
    advance: str | None = None
    if kind != "session":
        cursor.expect("SIZE")
    size = duration(cursor, positive=True)
    if kind == "hopping":
        cursor.expect_symbol(",", "a comma and ADVANCE BY")
        cursor.expect("ADVANCE")
        cursor.expect("BY")
        step = duration(cursor, positive=True)
        if step.microseconds > size.microseconds:
            place = Place.of(cursor.text, step.span[0])
            raise BadSyntax(f"ADVANCE BY {step.text} is longer than the window's SIZE {size.text}", place)
        advance = step.text
    grace: str | None = None
    if cursor.take_symbol(","):
        if cursor.at("RETENTION"):
            kept = " (how long windows are kept is the retention of the output's topic)"
            cursor.fail("GRACE PERIOD", hint=kept)
        grace = _grace(cursor)
    if not cursor.done:
        cursor.fail(")" if grace else "a comma and GRACE PERIOD, or )", ("GRACE",))
    return Window(kind, size.text, advance, grace, span)


def read_within(cursor: Cursor) -> Nearness:
    """`WITHIN 10 MINUTES` or `WITHIN (before, after)`, with or without a GRACE PERIOD."""
    first = cursor.next()
    if cursor.take_symbol("("):
        before = after = duration(cursor, positive=False)
        if cursor.take_symbol(","):
            after = duration(cursor, positive=False)
        cursor.expect_symbol(")", "a comma and a second time, or )")
    else:
        before = after = duration(cursor, positive=False)
    grace = _grace(cursor) if cursor.at("GRACE") else None
    span = (first.start, cursor.tokens[cursor.position - 1].end)
    if not cursor.at("ON"):
        cursor.fail("ON and the condition of the join", ("ON", "GRACE"))
    return Nearness(before.text, after.text, grace, span)


def _grace(cursor: Cursor) -> str:
    cursor.expect("GRACE")
    cursor.expect("PERIOD")
    return duration(cursor, positive=False).text
