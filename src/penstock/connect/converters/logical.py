"""The numbers and bytes that represent decimals, dates and times in Connect's logical types."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

from penstock.connect.errors import DataError
from penstock.connect.schemas import DATE, DECIMAL, TIME, TIMESTAMP, Schema

_DAY = datetime.date(1970, 1, 1)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
# Python's default context rounds to 28 digits, even when a number is only scaled.
_EXACT = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


def to_number(schema: Schema, value: Any) -> int | bytes | None:
    """Encodes a value of a logical type. None if the schema has no logical type."""
    match schema.name:
        case "org.apache.kafka.connect.data.Decimal":
            return decimal_bytes(value, int(schema.parameter("scale") or 0))
        case "org.apache.kafka.connect.data.Date":
            days: int = (value - _DAY).days
            return days
        case "org.apache.kafka.connect.data.Time":
            return millis_of_day(value)
        case "org.apache.kafka.connect.data.Timestamp":
            return millis(value)
    return None


def from_number(schema: Schema, value: Any) -> Any:
    """Decodes a value of a logical type. None if the schema has no logical type."""
    if schema.name not in (DECIMAL, DATE, TIME, TIMESTAMP):
        return None
    try:
        if schema.name == DECIMAL:
            unscaled = int.from_bytes(value, "big", signed=True)
            return decimal.Decimal(unscaled).scaleb(-int(schema.parameter("scale") or 0), _EXACT)
        if schema.name == DATE:
            return _DAY + datetime.timedelta(days=value)
        if schema.name == TIME:
            return (_EPOCH + datetime.timedelta(milliseconds=value)).time()
        return _EPOCH + datetime.timedelta(milliseconds=value)
    except (OverflowError, TypeError, ValueError) as error:
        raise DataError(f"{value!r} is not of type {schema.name}: {error}") from error


def millis(value: datetime.datetime) -> int:
    if value.tzinfo is None:
        value = value.replace(tzinfo=datetime.UTC)
    return (value - _EPOCH) // _MILLISECOND


def millis_of_day(value: datetime.time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000


def decimal_bytes(value: decimal.Decimal, scale: int) -> bytes:
    scaled = value.scaleb(scale, _EXACT)
    whole = int(scaled)
    if whole != scaled:
        raise DataError(f"{value} has more than the {scale} decimals of its schema")
    return whole.to_bytes((whole + (whole < 0)).bit_length() // 8 + 1, "big", signed=True)
