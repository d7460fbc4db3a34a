"""Casts of values as Java does them, for the transform Cast."""

from __future__ import annotations

import base64
import datetime
import math
import re
from decimal import Decimal
from typing import Any

from penstock.connect.converters.floats import shortest_single, single
from penstock.connect.converters.logical import millis
from penstock.connect.errors import DataError
from penstock.connect.schemas import Schema, Type

TYPES = {
    "int8": Type.INT8,
    "int16": Type.INT16,
    "int32": Type.INT32,
    "int64": Type.INT64,
    "float32": Type.FLOAT32,
    "float64": Type.FLOAT64,
    "boolean": Type.BOOLEAN,
    "string": Type.STRING,
}
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_EPOCH = datetime.date(1970, 1, 1)
_WHOLE = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)[fFdD]?")


def cast(value: Any, kind: str, schema: Schema | None = None) -> Any:
    """The value as another type; `schema` is what it has been so far. DataError if it has no such value."""
    try:
        if kind == "string":
            return _text(value, schema)
        if isinstance(value, (bytes, bytearray, memoryview)):
            raise DataError("Unexpected type in Cast transformation: bytes")
        if kind == "boolean" and isinstance(value, str):
            return value.lower() == "true"
        if isinstance(value, str):
            return _parsed(value, kind)
        number = _number(value)
        if schema is not None and schema.type is Type.FLOAT32:
            number = single(float(number))
        if kind == "boolean":
            return _narrowed(number, 64) != 0
        if kind in _BITS:
            return _narrowed(number, _BITS[kind])
        return single(float(number)) if kind == "float32" else float(number)
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"Value ({value}) was out of range for requested data type {kind}") from error


def _number(value: Any) -> int | float | Decimal:
    """Dates and times are days and milliseconds."""
    if isinstance(value, datetime.datetime):
        return millis(value)
    if isinstance(value, datetime.date):
        return (value - _EPOCH).days
    if isinstance(value, datetime.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
    if isinstance(value, (int, float, Decimal)):  # bool is an int
        return value
    raise TypeError(f"no number: {type(value).__name__}")


def _parsed(text: str, kind: str) -> int | float:
    if kind in _BITS:
        number = int(text) if _WHOLE.fullmatch(text) else None
        if number is None or number != _wrapped(number, _BITS[kind]):
            raise ValueError(text)
        return number
    if not _FLOAT.fullmatch(text.strip()):
        raise ValueError(text)
    found = float(text.strip().rstrip("fFdD"))
    return single(found) if kind == "float32" else found


def _narrowed(number: float | Decimal, bits: int) -> int:
    """A fraction first becomes an int, at most the largest one; more bits than there are get lost."""
    if isinstance(number, float):
        if math.isnan(number):
            return 0
        most = (1 << max(bits, 32) - 1) - 1
        number = most if number > most else -most - 1 if number < -most - 1 else int(number)
    return _wrapped(int(number), bits)


def _wrapped(number: int, bits: int) -> int:
    return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _text(value: Any, schema: Schema | None) -> str:
    """Bytes as base64, dates and times as ISO 8601 with milliseconds in UTC, numbers as Java writes them."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime):
        at = value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)
        return at.isoformat(timespec="milliseconds") + "Z"
    if isinstance(value, datetime.time):
        return value.isoformat(timespec="milliseconds") + "Z"
    if isinstance(value, float):
        return float_text(value, is_single=schema is not None and schema.type is Type.FLOAT32)
    return value if isinstance(value, str) else str(value)


def float_text(value: float, *, is_single: bool = False) -> str:
    """As Java's toString: 1.0E7 from ten million on, and below a thousandth."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    digits = shortest_single(value) if is_single else repr(value)
    sign, numerals, exponent = Decimal(digits).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, numerals)).rstrip("0") or "0"
    exponent += len(numerals) - len(text)
    minus, point = "-" if sign else "", len(text) + exponent
    if value == 0:
        return f"{minus}0.0"
    if not 1e-3 <= abs(value) < 1e7:
        return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{text}"
    return f"{minus}{text[:point].ljust(point, '0')}.{text[point:] or '0'}"
