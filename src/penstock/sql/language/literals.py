"""Converts plain values of INSERT INTO … VALUES without Spark, which takes about a millisecond per value.

Pure, and only if Spark's result is certain. Everything else (escapes, exponents, values that do not fit their
column, other expressions) is UNSURE, and is computed or rejected by Spark.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from penstock.sqltext.types import type_of

UNSURE: Final = object()

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_FRACTION = re.compile(r"-?(?=[0-9.]{3,16}$)([0-9]+)\.([0-9]+)")
"""Of up to 15 digits, which a double has exactly enough bits for."""
_TEXT = re.compile(r"'([^'\\]*)'")
_DAY = "([0-9]{4})-([0-9]{2})-([0-9]{2})"
_DATE = re.compile(rf"(?:DATE[ \t\r\n]*)?'{_DAY}'", re.IGNORECASE)
_CLOCK = r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?"
_TIME = re.compile(rf"(?:TIMESTAMP[ \t\r\n]*)?'{_DAY}[ T]{_CLOCK}Z?'", re.IGNORECASE)
_OLDEST = 1900
"""Years before have calendars and offsets of their own."""
_SIZES = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}

Reader = Callable[[str], Any]


def reader(kind: str, *, utc: bool) -> Reader:
    """The conversion of a value for a column of this type. `utc`: a time without a zone is in UTC."""
    if kind in _SIZES:
        limit = 1 << _SIZES[kind]
        return _or_null(lambda text: _whole(text, limit))
    if kind == "DOUBLE":
        return _or_null(_double)
    if kind.startswith("DECIMAL(") and len(sizes := type_of(kind).sizes) == 2:
        precision, scale = sizes
        return _or_null(lambda text: _decimal(text, precision - scale, scale))
    if kind == "TIMESTAMP" and not utc:
        return _or_null(lambda text: UNSURE)
    simple = {"STRING": _string, "BOOLEAN": _boolean, "DATE": _date, "TIMESTAMP": _timestamp}
    return _or_null(simple.get(kind, lambda text: UNSURE))


def _or_null(read: Reader) -> Reader:
    return lambda text: None if text.upper() == "NULL" else read(text)


def _whole(text: str, limit: int) -> Any:
    if not _WHOLE.fullmatch(text):
        return UNSURE
    value = int(text)
    return value if -limit <= value < limit else UNSURE


def _double(text: str) -> Any:
    if not _WHOLE.fullmatch(text) and not _FRACTION.fullmatch(text):
        return UNSURE
    return float(text) + 0.0  # Spark's -0.0 is a decimal, which has no negative zero


def _decimal(text: str, whole: int, scale: int) -> Any:
    found = _FRACTION.fullmatch(text)
    if found is None and not _WHOLE.fullmatch(text):
        return UNSURE
    digits, fraction = found.groups() if found else (text.lstrip("-"), "")
    if len(digits.lstrip("0")) > whole or len(fraction) > scale:
        return UNSURE
    return Decimal(text) + 0


def _string(text: str) -> Any:
    found = _TEXT.fullmatch(text)
    # Spark replaces ${…} by its own settings.
    return found[1] if found and "${" not in found[1] else UNSURE


def _boolean(text: str) -> Any:
    return {"TRUE": True, "FALSE": False}.get(text.upper(), UNSURE)


def _date(text: str) -> Any:
    found = _DATE.fullmatch(text)
    if found is None or int(found[1]) < _OLDEST:
        return UNSURE
    try:
        return datetime.date(*(int(each) for each in found.groups()))
    except ValueError:
        return UNSURE


def _timestamp(text: str) -> Any:
    found = _TIME.fullmatch(text)
    if found is None or int(found[1]) < _OLDEST:
        return UNSURE
    *parts, fraction = found.groups(default="")
    year, month, day, hour, minute, second = (int(each) for each in parts)
    micros = int(fraction.ljust(6, "0"))
    try:
        return datetime.datetime(year, month, day, hour, minute, second, micros, datetime.UTC)
    except ValueError:
        return UNSURE
