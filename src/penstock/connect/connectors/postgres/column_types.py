"""The Connect schema of a column, and the conversion of its text to a value: Debezium's mapping.

See "Data type mappings" in the documentation of Debezium's PostgreSQL connector: its default modes, and
`decimal.handling.mode`, `time.precision.mode`, `interval.handling.mode`, `binary.handling.mode` and
`hstore.handling.mode`. A type that is not listed there is converted to text.
"""

from __future__ import annotations

import decimal
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from penstock.connect.api import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    DATE_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    DataError,
    Schema,
    Type,
    array_schema,
    decimal_schema,
    map_schema,
    struct_schema,
)
from penstock.connect.connectors.cdc.column_types import (
    ColumnType,
    Convert,
    binary_type,
    named,
    sized_decimal_schema,
)
from penstock.connect.connectors.postgres import literals, temporal


@dataclass(frozen=True, slots=True)
class PgType:
    """A type as PostgreSQL's catalogue has it."""

    oid: int
    name: str
    kind: str = "b"
    """typtype: b base, e enum, d domain, c composite, r range, m multirange."""
    element: int = 0
    """Of an array: the oid of its items."""
    delimiter: str = ","
    base: int = 0
    """Of a domain: the oid of the type below it."""
    base_modifier: int = -1
    labels: tuple[str, ...] = ()
    """Of an enum."""


@dataclass(frozen=True, slots=True)
class Modes:
    """The settings that choose between representations."""

    decimal: str = "precise"
    time: str = "adaptive"
    interval: str = "numeric"
    binary: str = "bytes"
    hstore: str = "json"
    money_digits: int = 2
    unavailable: str = "__debezium_unavailable_value"


def column_type(oid: int, modifier: int, types: Mapping[int, PgType], modes: Modes) -> ColumnType:
    pg_type = types.get(oid)
    if pg_type is None:
        return _text(STRING_SCHEMA, modes)
    if pg_type.kind == "d":
        below = pg_type.base_modifier if pg_type.base_modifier >= 0 else modifier
        return column_type(pg_type.base, below, types, modes)
    if pg_type.element:
        return _array(pg_type, column_type(pg_type.element, modifier, types, modes), modes)
    if pg_type.kind == "e":
        allowed = ("allowed", ",".join(pg_type.labels))
        return _text(named(STRING_SCHEMA, "io.debezium.data.Enum", allowed), modes)
    make = _BY_NAME.get(pg_type.name) if pg_type.kind == "b" else None
    return make(modifier, modes) if make else _text(STRING_SCHEMA, modes)


def _text(schema: Schema, modes: Modes) -> ColumnType:
    return ColumnType(schema, str, "", modes.unavailable)


def _array(pg_type: PgType, item: ColumnType, modes: Modes) -> ColumnType:
    convert, delimiter = item.convert, pg_type.delimiter

    def items(text: str) -> list[Any]:
        found = literals.array_items(text, delimiter)
        if any(isinstance(each, list) for each in found):
            raise DataError(f"an array of more than one dimension: {text[:60]!r}")
        return [None if each is None else convert(each) for each in found]

    placeholder: Any = None
    if item.unavailable is not None:
        placeholder = [item.unavailable]
    elif item.schema.type in (Type.INT16, Type.INT32, Type.INT64):
        placeholder = list(modes.unavailable.encode())
    return ColumnType(array_schema(item.schema.as_optional()), items, [], placeholder)


def _simple(schema: Schema, convert: Convert, zero: Any) -> Callable[[int, Modes], ColumnType]:
    made = ColumnType(schema, convert, zero)
    return lambda modifier, modes: made


def _string(name: str | None = None) -> Callable[[int, Modes], ColumnType]:
    schema = named(STRING_SCHEMA, name) if name else STRING_SCHEMA
    return lambda modifier, modes: _text(schema, modes)


# --- numbers ---

_VARIABLE_SCALE = struct_schema(
    {"scale": INT32_SCHEMA, "value": BYTES_SCHEMA}, name="io.debezium.data.VariableScaleDecimal", version=1
)
_SPECIAL = {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}
_EXACT = decimal.Context(prec=2000)


def _precise(text: str) -> Decimal:
    if text in _SPECIAL:
        raise DataError(f"{text} is not a decimal: use decimal.handling.mode=string or double")
    return Decimal(text)


def _variable(text: str) -> dict[str, Any]:
    scale, value = literals.unscaled(_precise(text))
    return {"scale": scale, "value": value}


def _numeric(modifier: int, modes: Modes) -> ColumnType:
    if modes.decimal == "double":
        return ColumnType(FLOAT64_SCHEMA, float, 0.0)
    if modes.decimal == "string":
        return ColumnType(STRING_SCHEMA, lambda text: _SPECIAL.get(text, text), "0", modes.unavailable)
    if modifier < 4:
        placeholder = {"scale": 0, "value": modes.unavailable.encode()}
        return ColumnType(_VARIABLE_SCALE, _variable, {"scale": 0, "value": b"\0"}, placeholder)
    precision = (modifier - 4) >> 16 & 0xFFFF
    scale = ((modifier - 4 & 0x7FF) ^ 1024) - 1024
    schema = sized_decimal_schema(precision, scale)
    step = Decimal((0, (1,), -scale))
    if scale >= 0:
        return ColumnType(schema, _precise, Decimal((0, (0,), -scale)))
    return ColumnType(
        schema, lambda text: _precise(text).quantize(step, context=_EXACT), Decimal((0, (0,), -scale))
    )


def _money(modifier: int, modes: Modes) -> ColumnType:
    if modes.decimal == "double":
        return ColumnType(FLOAT64_SCHEMA, lambda text: float(literals.money(text)), 0.0)
    step = Decimal((0, (1,), -modes.money_digits))
    zero = Decimal((0, (0,), -modes.money_digits))

    def convert(text: str) -> Decimal:
        return literals.money(text).quantize(step, decimal.ROUND_HALF_UP)

    if modes.decimal == "string":
        return ColumnType(STRING_SCHEMA, lambda text: str(convert(text)), str(zero))
    return ColumnType(decimal_schema(modes.money_digits), convert, zero)


# --- bits and bytes ---


def _bits(modifier: int, modes: Modes) -> ColumnType:
    """bit(n): its modifier is n; bit without a length is bit(1)."""
    if modifier in (-1, 1):
        return ColumnType(BOOLEAN_SCHEMA, lambda text: text == "1", False)
    return _bit_string(modifier)


def _varbit(modifier: int, modes: Modes) -> ColumnType:
    if modifier == 1:
        return ColumnType(BOOLEAN_SCHEMA, lambda text: text == "1", False)
    return _bit_string(modifier if modifier >= 0 else 2**31 - 1)


def _bit_string(length: int) -> ColumnType:
    schema = named(BYTES_SCHEMA, "io.debezium.data.Bits", ("length", str(length)))
    return ColumnType(schema, literals.bits, b"")


def _bytea(modifier: int, modes: Modes) -> ColumnType:
    return binary_type(modes.binary, literals.bytea, modes.unavailable)


# --- dates and times ---

_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)


def _date(modifier: int, modes: Modes) -> ColumnType:
    if modes.time == "connect":
        return ColumnType(DATE_SCHEMA, _python(date.fromisoformat, "a date"), date(1970, 1, 1))
    return ColumnType(named(INT32_SCHEMA, "io.debezium.time.Date"), temporal.date_days, 0)


def _time(modifier: int, modes: Modes) -> ColumnType:
    if modes.time == "connect":
        return ColumnType(TIME_SCHEMA, _python(_milliseconds, "a time"), time())
    if modes.time == "adaptive" and 0 <= modifier <= 3:
        return ColumnType(
            named(INT32_SCHEMA, "io.debezium.time.Time"), lambda text: temporal.time_micros(text) // 1000, 0
        )
    return ColumnType(named(INT64_SCHEMA, "io.debezium.time.MicroTime"), temporal.time_micros, 0)


def _timestamp(modifier: int, modes: Modes) -> ColumnType:
    if modes.time == "connect":
        return ColumnType(TIMESTAMP_SCHEMA, _python(_utc, "a timestamp"), _EPOCH_UTC)
    if 0 <= modifier <= 3:
        return ColumnType(
            named(INT64_SCHEMA, "io.debezium.time.Timestamp"),
            lambda text: temporal.timestamp_micros(text) // 1000,
            0,
        )
    return ColumnType(named(INT64_SCHEMA, "io.debezium.time.MicroTimestamp"), temporal.timestamp_micros, 0)


def _milliseconds(text: str) -> time:
    value = time.fromisoformat(text)
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


def _utc(text: str) -> datetime:
    value = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return value - timedelta(microseconds=value.microsecond % 1000)


def _python(parse: Convert, what: str) -> Convert:
    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError:
            raise DataError(
                f"{text!r} is not a {what[2:]} that time.precision.mode=connect can hold: use adaptive"
            ) from None

    return convert


def _timestamptz(modifier: int, modes: Modes) -> ColumnType:
    digits = modifier if 0 <= modifier <= 6 else 6
    return ColumnType(
        named(STRING_SCHEMA, "io.debezium.time.ZonedTimestamp"),
        lambda text: temporal.timestamp_iso(text, digits),
        "1970-01-01T00:00:00Z",
    )


def _interval(modifier: int, modes: Modes) -> ColumnType:
    if modes.interval == "string":
        schema = named(STRING_SCHEMA, "io.debezium.time.Interval")
        return ColumnType(schema, temporal.interval_iso, "P0Y0M0DT0H0M0S")
    return ColumnType(named(INT64_SCHEMA, "io.debezium.time.MicroDuration"), temporal.interval_micros, 0)


# --- others ---

_POINT = struct_schema(
    {
        "x": FLOAT64_SCHEMA,
        "y": FLOAT64_SCHEMA,
        "wkb": BYTES_SCHEMA.as_optional(),
        "srid": INT32_SCHEMA.as_optional(),
    },
    name="io.debezium.data.geometry.Point",
    version=1,
)


def _hstore(modifier: int, modes: Modes) -> ColumnType:
    if modes.hstore == "map":
        schema = map_schema(STRING_SCHEMA, STRING_SCHEMA.as_optional())
        return ColumnType(schema, literals.hstore_items, {}, {modes.unavailable: modes.unavailable})
    return ColumnType(
        named(STRING_SCHEMA, "io.debezium.data.Json"),
        lambda text: json.dumps(literals.hstore_items(text), ensure_ascii=False, separators=(",", ":")),
        "{}",
        modes.unavailable,
    )


_BY_NAME: dict[str, Callable[[int, Modes], ColumnType]] = {
    "bool": _simple(BOOLEAN_SCHEMA, lambda text: text == "t", False),
    "int2": _simple(INT16_SCHEMA, int, 0),
    "int4": _simple(INT32_SCHEMA, int, 0),
    "int8": _simple(INT64_SCHEMA, int, 0),
    "oid": _simple(INT64_SCHEMA, int, 0),
    "float4": _simple(FLOAT32_SCHEMA, float, 0.0),
    "float8": _simple(FLOAT64_SCHEMA, float, 0.0),
    "numeric": _numeric,
    "money": _money,
    "bit": _bits,
    "varbit": _varbit,
    "bytea": _bytea,
    "date": _date,
    "time": _time,
    "timetz": _simple(
        named(STRING_SCHEMA, "io.debezium.time.ZonedTime"), temporal.zoned_time_iso, "00:00:00Z"
    ),
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
    "interval": _interval,
    "json": _string("io.debezium.data.Json"),
    "jsonb": _string("io.debezium.data.Json"),
    "xml": _string("io.debezium.data.Xml"),
    "uuid": _string("io.debezium.data.Uuid"),
    "ltree": _string("io.debezium.data.Ltree"),
    "hstore": _hstore,
    "point": _simple(_POINT, literals.point, {"x": 0.0, "y": 0.0, "wkb": None, "srid": None}),
}
