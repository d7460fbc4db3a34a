"""Avro's logical types: converts times and decimals between JSON and their stored form."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from penstock.registry.formats.avro.model import AvroType, Fixed, Primitive
from penstock.registry.serdes.values import Unencodable, shown

Convert = Callable[[Any], Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = date(1970, 1, 1)
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
# Python's default context rounds to 28 digits, even when a number is only scaled.
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_TICKS = {"millis": 1000, "micros": 1}
"""Microseconds in a tick."""


def logical_type(schema: AvroType) -> str:
    if isinstance(schema, (Primitive, Fixed)):
        named = schema.props.get("logicalType")
        return named if isinstance(named, str) else ""
    return ""


def decimal_scale(schema: AvroType) -> int:
    scale = schema.props.get("scale", 0) if isinstance(schema, (Primitive, Fixed)) else 0
    return scale if isinstance(scale, int) else 0


def decimal_of(data: bytes, scale: int) -> Decimal:
    return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _EXACT)


def to_json(schema: AvroType) -> Convert | None:
    logical = logical_type(schema)
    if logical == "decimal" and schema.type in ("bytes", "fixed"):
        scale = decimal_scale(schema)
        return lambda value: str(decimal_of(value, scale))
    if logical == "date" and schema.type == "int":
        return _or_number(lambda value: (_DAY + timedelta(days=value)).isoformat())
    kind, _, unit = logical.rpartition("-")
    ticks = _TICKS.get(unit)
    if ticks is None or schema.type not in ("int", "long"):
        return None
    if kind == "time":
        return _or_number(
            lambda value: (
                (_EPOCH + timedelta(microseconds=value * ticks)).time().isoformat()
                if 0 <= value * ticks < 86_400_000_000
                else value
            )
        )
    if kind == "timestamp":
        return _or_number(
            lambda value: (
                (_EPOCH + timedelta(microseconds=value * ticks))
                .isoformat(timespec="milliseconds" if ticks == 1000 else "microseconds")
                .replace("+00:00", "Z")
            )
        )
    if kind == "local-timestamp":
        return _or_number(
            lambda value: (_EPOCH + timedelta(microseconds=value * ticks)).replace(tzinfo=None).isoformat()
        )
    return None


def _or_number(convert: Convert) -> Convert:
    """A time outside of the calendar is printed as its number, which is also accepted as input."""

    def shown_or_number(value: Any) -> Any:
        try:
            return convert(value)
        except OverflowError:
            return value

    return shown_or_number


def from_json(schema: AvroType) -> Convert | None:
    logical = logical_type(schema)
    kind, _, unit = logical.rpartition("-")
    ticks = _TICKS.get(unit)
    if logical == "decimal" and schema.type in ("bytes", "fixed"):
        size = schema.size if isinstance(schema, Fixed) else None
        return lambda value: _decimal_bytes(value, decimal_scale(schema), size)
    if logical == "date" and schema.type == "int":
        return _from_text("date in ISO 8601", lambda text: (date.fromisoformat(text) - _DAY).days)
    if logical == "uuid" and schema.type == "fixed":
        return lambda value: UUID(value).bytes if isinstance(value, str) and _UUID.match(value) else value
    if ticks is None or kind not in ("time", "timestamp", "local-timestamp"):
        return None

    def moment_of(text: str) -> int:
        if kind == "time":
            moment = datetime.combine(_DAY, time.fromisoformat(text), tzinfo=UTC)
        else:
            moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(microseconds=ticks)

    return _from_text("time in ISO 8601", moment_of)


def _from_text(what: str, convert: Callable[[str], int]) -> Convert:
    """Numbers stay what they are."""

    def from_text(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return convert(value)
        except ValueError:
            raise Unencodable(f"{shown(value)} is neither a {what} nor a number") from None

    return from_text


def _decimal_bytes(value: Any, scale: int, size: int | None) -> Any:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return value
    try:
        number = Decimal(str(value)).scaleb(scale, _EXACT)
        if number != number.to_integral_value():
            raise Unencodable(f"{shown(value)} has more than {scale} digits behind the point")
        whole = int(number)
        length = size or max(1, (whole + (whole < 0)).bit_length() // 8 + 1)
        return whole.to_bytes(length, "big", signed=True)
    except (InvalidOperation, OverflowError, ValueError):
        raise Unencodable(f"{shown(value)} is not a decimal number that fits") from None
