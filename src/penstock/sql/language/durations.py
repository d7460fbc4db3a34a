"""Parses durations: `10 MINUTES`, `1 HOUR 30 MINUTES`, `INTERVAL '10' MINUTE`, `'500 seconds'`."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.sql.errors import BadSyntax, Place
from penstock.sql.language.lexer.cursor import Cursor
from penstock.sql.language.lexer.tokens import tokenize
from penstock.sql.language.statements import Span
from penstock.sqltext.tokens import Token

_MICROSECONDS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
UNITS = (*_MICROSECONDS, *(f"{unit}S" for unit in _MICROSECONDS))
_UNEVEN = ("MONTH", "MONTHS", "YEAR", "YEARS", "QUARTER", "QUARTERS")


@dataclass(frozen=True, slots=True)
class Duration:
    text: str
    """Spark's form, after INTERVAL and in strings: `1 HOUR 30 MINUTES`."""
    microseconds: int
    span: Span


def duration(cursor: Cursor, *, positive: bool) -> Duration:
    first = cursor.peek()
    cursor.take("INTERVAL")
    token = cursor.peek()
    if token.kind == "string":
        cursor.next()
        parts = _of_string(cursor, token)
    elif token.kind == "number":
        parts = [_part(cursor)]
        while cursor.peek().kind == "number":
            parts.append(_part(cursor))
    else:
        cursor.fail("a time such as 10 MINUTES")
    made = Duration(
        " ".join(f"{count} {unit}" for count, unit in parts),
        sum(count * _MICROSECONDS[unit.removesuffix("S")] for count, unit in parts),
        (first.start, cursor.tokens[cursor.position - 1].end),
    )
    if positive and made.microseconds == 0:
        raise BadSyntax(
            f"{made.text} is not a valid duration; must be positive.", Place.of(cursor.text, first.start)
        )
    return made


def length(text: str) -> int:
    """The duration of a `Duration.text` in microseconds."""
    return duration(Cursor(text, tokenize(text)), positive=False).microseconds


def _of_string(cursor: Cursor, token: Token) -> list[tuple[int, str]]:
    """`'10' MINUTE` or `'10 minutes'`: the string is parsed like unquoted words."""
    inner = Cursor(token.text, tokenize(token.text))
    try:
        if len(inner.tokens) == 1 and inner.peek().kind == "number":
            return [(_count(inner), _unit(cursor))]
        inner.take("INTERVAL")
        parts = [_part(inner)]
        while not inner.done:
            parts.append(_part(inner))
    except BadSyntax as error:
        if error.place is not None and not (inner.done and len(inner.tokens) == 1):
            raise BadSyntax(
                f"in '{token.text}': {error.message}", Place.of(cursor.text, token.start)
            ) from None
        raise
    return parts


def _part(cursor: Cursor) -> tuple[int, str]:
    return _count(cursor), _unit(cursor)


def _count(cursor: Cursor) -> int:
    token = cursor.peek()
    if token.kind != "number" or not (token.text.isascii() and token.text.isdigit()):
        cursor.fail("a whole number and a unit, as in 10 MINUTES")
    if len(token.text) > 12:
        cursor.fail("a smaller number")
    cursor.next()
    return int(token.text)


def _unit(cursor: Cursor) -> str:
    if cursor.peek().upper in _UNEVEN:
        cursor.fail("a unit of fixed length, from MICROSECONDS to WEEKS")
    token = cursor.peek()
    if token.upper not in UNITS:
        cursor.fail("MILLISECONDS, SECONDS, MINUTES, HOURS, DAYS or WEEKS", UNITS)
    cursor.next()
    return token.upper
