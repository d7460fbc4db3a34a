"""The Connect schema of a column, and the conversion of its values: Debezium's mapping.

See "Data type mappings" in the documentation of Debezium's MySQL connector. A snapshot has its values from
PyMySQL and the stream from mysql-replication: the converters accept both representations.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
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
    decimal_schema,
    struct_schema,
)
from penstock.connect.connectors.cdc.column_types import (
    ColumnType,
    Convert,
    binary_type,
    named,
    sized_decimal_schema,
)

_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_ORDINAL = _EPOCH.toordinal()
_MICROSECOND = datetime.timedelta(microseconds=1)
_MILLISECOND = datetime.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class MySqlColumn:
    """A column as the catalogue or the binlog describes it.

    `kind` is the name of its type, with one name for types that are sent alike: `text` for all characters,
    `blob` for all bytes of any length, `geometry` for all shapes but points.
    """

    name: str
    kind: str
    required: bool = False
    unsigned: bool = False
    length: int = 0
    """Of `binary` in bytes, of `bit` in bits, of `decimal` in digits."""
    scale: int = 0
    """Of `decimal`, and the digits of a second of times."""
    values: tuple[str, ...] = ()
    """Of `enum` and `set`."""


@dataclass(frozen=True, slots=True)
class Modes:
    """The settings that choose between representations."""

    decimal: str = "precise"
    time: str = "adaptive_time_microseconds"
    bigint_unsigned: str = "long"
    binary: str = "bytes"


def column_type(column: MySqlColumn, modes: Modes) -> ColumnType:
    return _BY_KIND.get(column.kind, _text)(column, modes)


# --- numbers ---


def _simple(schema: Schema, convert: Convert, zero: Any) -> Callable[[MySqlColumn, Modes], ColumnType]:
    made = ColumnType(schema, convert, zero)
    return lambda column, modes: made


def _integer(signed: Schema, unsigned: Schema) -> Callable[[MySqlColumn, Modes], ColumnType]:
    return lambda column, modes: ColumnType(unsigned if column.unsigned else signed, int, 0)


def _bigint(column: MySqlColumn, modes: Modes) -> ColumnType:
    if column.unsigned and modes.bigint_unsigned == "precise":
        return ColumnType(decimal_schema(0), Decimal, Decimal(0))
    if column.unsigned:
        # A number above 2^63 - 1 becomes negative, as in Debezium.
        return ColumnType(INT64_SCHEMA, lambda value: (value + 2**63) % 2**64 - 2**63, 0)
    return ColumnType(INT64_SCHEMA, int, 0)


def shortest_float32(value: float) -> float:
    """The number with the fewest digits that is the same FLOAT."""
    try:
        same = struct.pack("<f", value)
    except OverflowError:
        return float(value)
    for digits in (6, 7, 8):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == same:
            return short
    return float(f"{value:.9g}")


def _decimal(column: MySqlColumn, modes: Modes) -> ColumnType:
    if modes.decimal == "double":
        return ColumnType(FLOAT64_SCHEMA, float, 0.0)
    zero = Decimal((0, (0,), -column.scale))
    if modes.decimal == "string":
        return ColumnType(STRING_SCHEMA, lambda value: format(value, "f"), str(zero))
    return ColumnType(sized_decimal_schema(column.length, column.scale), Decimal, zero)


def _year(value: int) -> int:
    # mysql-replication converts the year 0 to 1900, which is otherwise not in YEAR's range.
    return 0 if value == 1900 else value


# --- bits, bytes, text ---


def _bit_number(value: Any) -> int:
    return int(value, 2) if isinstance(value, str) else int.from_bytes(value, "big")


def _bit(column: MySqlColumn, modes: Modes) -> ColumnType:
    if column.length == 1:
        return ColumnType(BOOLEAN_SCHEMA, lambda value: bool(_bit_number(value)), False)
    size = (column.length + 7) // 8
    schema = named(BYTES_SCHEMA, "io.debezium.data.Bits", ("length", str(column.length)))
    return ColumnType(schema, lambda value: _bit_number(value).to_bytes(size, "little"), bytes(size))


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        raise DataError("it is text, where bytes are expected")
    return bytes(value)


def _blob(column: MySqlColumn, modes: Modes) -> ColumnType:
    return binary_type(modes.binary, _bytes, "")


def _binary(column: MySqlColumn, modes: Modes) -> ColumnType:
    # The binlog omits trailing zeros of BINARY.
    return binary_type(modes.binary, lambda value: _bytes(value).ljust(column.length, b"\0"), "")


def _characters(value: Any) -> str:
    if isinstance(value, bytes):
        raise DataError("its character set is not supported")
    return str(value)


def _text(column: MySqlColumn, modes: Modes) -> ColumnType:
    return ColumnType(STRING_SCHEMA, _characters, "")


def _enum(column: MySqlColumn, modes: Modes) -> ColumnType:
    allowed = ("allowed", ",".join(column.values))
    return ColumnType(named(STRING_SCHEMA, "io.debezium.data.Enum", allowed), _characters, "")


def _set(column: MySqlColumn, modes: Modes) -> ColumnType:
    def joined(value: Any) -> str:
        if isinstance(value, str):
            return value
        return ",".join(each for each in column.values if each in value)

    allowed = ("allowed", ",".join(column.values))
    return ColumnType(named(STRING_SCHEMA, "io.debezium.data.EnumSet", allowed), joined, "")


def _json_text(value: Any) -> str:
    """MySQL's binlog has JSON in a binary format, which mysql-replication converts to Python objects."""
    return value if isinstance(value, str) else json.dumps(_plain(value), ensure_ascii=False, default=str)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, dict):
        return {_plain(key): _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _uuid(value: Any) -> str:
    return value if isinstance(value, str) else str(uuid.UUID(bytes=value.ljust(16, b"\0")))


def _address(size: int) -> Convert:
    def convert(value: Any) -> str:
        if isinstance(value, str):
            return value
        data = value.ljust(size, b"\0")
        if size == 4:
            return str(ipaddress.IPv4Address(data))
        address = ipaddress.IPv6Address(data)
        # As MariaDB writes it.
        return f"::ffff:{address.ipv4_mapped}" if address.ipv4_mapped else str(address)

    return convert


# --- dates and times ---


def _dated(column: MySqlColumn, schema: Schema, convert: Convert, zero: Any) -> ColumnType:
    """Dates such as 0000-00-00, which are text here, become null, or the epoch if null is not allowed."""
    instead = zero if column.required else None
    return ColumnType(schema, lambda value: instead if isinstance(value, str) else convert(value), zero)


def _date(column: MySqlColumn, modes: Modes) -> ColumnType:
    if modes.time == "connect":
        return _dated(column, DATE_SCHEMA, lambda value: value, _EPOCH.date())
    schema = named(INT32_SCHEMA, "io.debezium.time.Date")
    return _dated(column, schema, lambda value: value.toordinal() - _EPOCH_ORDINAL, 0)


def _datetime(column: MySqlColumn, modes: Modes) -> ColumnType:
    if modes.time == "connect":
        zero = _EPOCH.replace(tzinfo=datetime.UTC)
        return _dated(column, TIMESTAMP_SCHEMA, _milliseconds_utc, zero)
    if column.scale <= 3:
        schema = named(INT64_SCHEMA, "io.debezium.time.Timestamp")
        return _dated(column, schema, lambda value: (value - _EPOCH) // _MILLISECOND, 0)
    schema = named(INT64_SCHEMA, "io.debezium.time.MicroTimestamp")
    return _dated(column, schema, lambda value: (value - _EPOCH) // _MICROSECOND, 0)


def _milliseconds_utc(value: datetime.datetime) -> datetime.datetime:
    return value.replace(microsecond=value.microsecond // 1000 * 1000, tzinfo=datetime.UTC)


def _timestamp(column: MySqlColumn, modes: Modes) -> ColumnType:
    digits = column.scale

    def iso(value: datetime.datetime) -> str:
        fraction = f".{value.microsecond:06}"[: digits + 1] if digits else ""
        return f"{value:%Y-%m-%dT%H:%M:%S}{fraction}Z"

    zero = "1970-01-01T00:00:00Z"
    return _dated(column, named(STRING_SCHEMA, "io.debezium.time.ZonedTimestamp"), iso, zero)


def _time(column: MySqlColumn, modes: Modes) -> ColumnType:
    if modes.time == "connect":
        return ColumnType(TIME_SCHEMA, _time_of_day, datetime.time())
    schema = named(INT64_SCHEMA, "io.debezium.time.MicroTime")
    return ColumnType(schema, lambda value: value // _MICROSECOND, 0)


def _time_of_day(value: datetime.timedelta) -> datetime.time:
    micros = value // _MICROSECOND
    if not 0 <= micros < 86_400_000_000:
        raise DataError(f"{value} is not a time of a day: use time.precision.mode=adaptive_time_microseconds")
    moment = _EPOCH + value
    return moment.time().replace(microsecond=moment.microsecond // 1000 * 1000)


# --- shapes ---

_GEOMETRY = {"wkb": BYTES_SCHEMA, "srid": INT32_SCHEMA.as_optional()}
_GEOMETRY_SCHEMA = struct_schema(_GEOMETRY, name="io.debezium.data.geometry.Geometry", version=1)
_POINT_SCHEMA = struct_schema(
    {
        "x": FLOAT64_SCHEMA,
        "y": FLOAT64_SCHEMA,
        "wkb": BYTES_SCHEMA.as_optional(),
        "srid": INT32_SCHEMA.as_optional(),
    },
    name="io.debezium.data.geometry.Point",
    version=1,
)


def _geometry(value: bytes) -> dict[str, Any]:
    """Four bytes with the reference system, then well-known binary."""
    if len(value) < 9:
        raise DataError("it is too short for a shape")
    return {"wkb": value[4:], "srid": int.from_bytes(value[:4], "little") or None}


def _point(value: bytes) -> dict[str, Any]:
    shape = _geometry(value)
    if len(value) != 25:
        raise DataError("it is not a point")
    x, y = struct.unpack("<dd" if value[4] == 1 else ">dd", value[9:])
    return {"x": x, "y": y, **shape}


_BY_KIND: dict[str, Callable[[MySqlColumn, Modes], ColumnType]] = {
    "tinyint": _integer(INT16_SCHEMA, INT16_SCHEMA),
    "smallint": _integer(INT16_SCHEMA, INT32_SCHEMA),
    "mediumint": _integer(INT32_SCHEMA, INT32_SCHEMA),
    "int": _integer(INT32_SCHEMA, INT64_SCHEMA),
    "bigint": _bigint,
    "float": _simple(FLOAT32_SCHEMA, shortest_float32, 0.0),
    "double": _simple(FLOAT64_SCHEMA, float, 0.0),
    "decimal": _decimal,
    "year": _simple(named(INT32_SCHEMA, "io.debezium.time.Year"), _year, 0),
    "bit": _bit,
    "binary": _binary,
    "blob": _blob,
    "text": _text,
    "enum": _enum,
    "set": _set,
    "json": _simple(named(STRING_SCHEMA, "io.debezium.data.Json"), _json_text, "{}"),
    "uuid": _simple(STRING_SCHEMA, _uuid, ""),
    "inet4": _simple(STRING_SCHEMA, _address(4), ""),
    "inet6": _simple(STRING_SCHEMA, _address(16), ""),
    "date": _date,
    "datetime": _datetime,
    "timestamp": _timestamp,
    "time": _time,
    "geometry": _simple(_GEOMETRY_SCHEMA, _geometry, {"wkb": b"", "srid": None}),
    "point": _simple(_POINT_SCHEMA, _point, {"x": 0.0, "y": 0.0, "wkb": None, "srid": None}),
}
