"""Converts between column types and Connect's schemas, and between their values."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

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
    ConnectError,
    Schema,
    Type,
    decimal_schema,
)
from penstock.connect.connectors.sql.catalog import Column
from penstock.connect.converters.json import dump
from penstock.connect.schemas import DATE, DECIMAL, TIME, TIMESTAMP

# To the database

_DDL: dict[str, dict[str, str]] = {
    "postgresql": {
        "int8": "SMALLINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "float": "REAL",
        "double": "DOUBLE PRECISION", "boolean": "BOOLEAN", "string": "TEXT", "bytes": "BYTEA",
        DATE: "DATE", TIME: "TIME", TIMESTAMP: "TIMESTAMP", DECIMAL: "DECIMAL", "nested": "JSONB",
    },
    "mysql": {
        "int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT", "float": "FLOAT",
        "double": "DOUBLE", "boolean": "BOOLEAN", "string": "LONGTEXT", "bytes": "LONGBLOB",
        DATE: "DATE", TIME: "TIME(3)", TIMESTAMP: "DATETIME(3)", DECIMAL: "DECIMAL(65,{scale})",
        "nested": "JSON",
        # An index must know how long a key can be.
        "key string": "VARCHAR(256)", "key bytes": "VARBINARY(1024)",
    },
    "sqlite": {
        "int8": "INTEGER", "int16": "INTEGER", "int32": "INTEGER", "int64": "INTEGER", "float": "REAL",
        "double": "REAL", "boolean": "BOOLEAN", "string": "TEXT", "bytes": "BLOB",
        DATE: "DATE", TIME: "TIME", TIMESTAMP: "DATETIME", "nested": "JSON",
        # NUMERIC would make it a floating-point number.
        DECIMAL: "TEXT",
    },
    "duckdb": {
        "int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "float": "FLOAT",
        "double": "DOUBLE", "boolean": "BOOLEAN", "string": "VARCHAR", "bytes": "BLOB",
        DATE: "DATE", TIME: "TIME", TIMESTAMP: "TIMESTAMP", DECIMAL: "DECIMAL(38,{scale})", "nested": "JSON",
    },
}  # fmt: skip


def ddl_of(schema: Schema, dialect: str, *, key: bool = False) -> str:
    """The type of a new column."""
    types = _DDL[dialect]
    if schema.name in (DATE, TIME, TIMESTAMP, DECIMAL):
        return types[schema.name].format(scale=schema.parameter("scale") or "0")
    if schema.type in (Type.ARRAY, Type.MAP, Type.STRUCT):
        return types["nested"]
    return (types.get(f"key {schema.type.value}") if key else None) or types[schema.type.value]


def bound(value: Any, dialect: str, column: Column) -> Any:
    """Converts a record's value to what the driver accepts for this column."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (dict, list, tuple)):
        return dump(value).decode()
    if isinstance(value, datetime.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
        if dialect == "sqlite":
            return aware.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(" ", "milliseconds")
        if getattr(column.type, "timezone", False):
            return aware
        return aware.astimezone(datetime.UTC).replace(tzinfo=None)
    if dialect == "sqlite":
        if isinstance(value, (datetime.date, datetime.time)):
            return value.isoformat()
        if isinstance(value, decimal.Decimal):
            return f"{value:f}"
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    return value


# From the database

Read = Callable[[Any], Any]


def schema_of(column: Column, dialect: str, mapping: str) -> Schema:
    """`mapping` is `numeric.mapping`: the schema of NUMERIC and DECIMAL columns."""
    schema = _schema_of(column.type, mapping)
    if dialect == "sqlite" and schema.type in (Type.INT16, Type.INT32) and schema.name is None:
        schema = INT64_SCHEMA  # whatever size is declared, it takes eight bytes
    return schema.as_optional() if column.nullable else schema


def _schema_of(kind: TypeEngine[Any], mapping: str) -> Schema:
    if isinstance(kind, mysql.BIT):
        return BOOLEAN_SCHEMA if (kind.length or 1) == 1 else BYTES_SCHEMA
    if isinstance(kind, mysql.TINYINT):
        return BOOLEAN_SCHEMA if kind.display_width == 1 else INT16_SCHEMA
    if isinstance(kind, sqlalchemy.Boolean):
        return BOOLEAN_SCHEMA
    if isinstance(kind, sqlalchemy.Integer):
        unsigned = getattr(kind, "unsigned", False)
        if isinstance(kind, sqlalchemy.SmallInteger):
            return INT32_SCHEMA if unsigned else INT16_SCHEMA
        if isinstance(kind, sqlalchemy.BigInteger):
            return decimal_schema(0) if unsigned else INT64_SCHEMA
        return INT64_SCHEMA if unsigned else INT32_SCHEMA
    if isinstance(kind, (sqlalchemy.REAL, mysql.FLOAT)) and not isinstance(kind, mysql.DOUBLE):
        return FLOAT32_SCHEMA
    if isinstance(kind, sqlalchemy.Float):
        return FLOAT64_SCHEMA
    if isinstance(kind, sqlalchemy.Numeric):
        return _numeric(kind.precision, kind.scale, mapping)
    if isinstance(kind, sqlalchemy.DateTime):
        return TIMESTAMP_SCHEMA
    if isinstance(kind, sqlalchemy.Date):
        return DATE_SCHEMA
    if isinstance(kind, sqlalchemy.Time):
        return TIME_SCHEMA
    if isinstance(kind, sqlalchemy.types._Binary):
        return BYTES_SCHEMA
    return STRING_SCHEMA


def _numeric(precision: int | None, scale: int | None, mapping: str) -> Schema:
    if mapping == "best_fit" and precision is not None:
        if not scale:
            for digits, schema in ((4, INT16_SCHEMA), (9, INT32_SCHEMA), (18, INT64_SCHEMA)):
                if precision <= digits:
                    return schema
        return FLOAT64_SCHEMA if scale else decimal_schema(0)
    if scale is None or precision is None:
        # Such a column holds numbers of any scale, a Decimal schema has a fixed one: text keeps all digits.
        return FLOAT64_SCHEMA if mapping == "best_fit" else STRING_SCHEMA
    return decimal_schema(scale)


def reader_of(column: Column, schema: Schema, zone: ZoneInfo) -> Read | None:
    """Returns the conversion from the driver's value to the schema's. None if no conversion is needed."""
    scale = int(schema.parameter("scale") or 0)
    if schema.name == DECIMAL:
        unit = decimal.Decimal(1).scaleb(-scale)
        return lambda value: decimal.Decimal(str(value)).quantize(unit, context=_WIDE)
    if schema.name == TIMESTAMP:
        return lambda value: timestamp_of(value, zone)
    if schema.name == DATE:
        return _date
    if schema.name == TIME:
        return _time
    match schema.type:
        case Type.BOOLEAN:
            return lambda value: bool(value[0] if isinstance(value, bytes) else value)
        case Type.BYTES:
            return bytes
        case Type.FLOAT32 | Type.FLOAT64:
            return float
        case Type.STRING:
            return _text
        case _:
            return int if not isinstance(column.type, sqlalchemy.Integer) else None


_WIDE = decimal.Context(prec=100)


def timestamp_of(value: Any, zone: ZoneInfo) -> datetime.datetime:
    if isinstance(value, str):
        try:
            value = datetime.datetime.fromisoformat(value)
        except ValueError as error:
            raise ConnectError(f"{value!r} is not a timestamp: {error}") from error
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        value = datetime.datetime.combine(value, datetime.time())
    if not isinstance(value, datetime.datetime):
        raise ConnectError(f"{value!r} is not a timestamp")
    return (value if value.tzinfo is not None else value.replace(tzinfo=zone)).astimezone(datetime.UTC)


def resolution_of(kind: TypeEngine[Any], dialect: str) -> datetime.timedelta:
    """The resolution of a timestamp column: rows within this time may have the same value."""
    if isinstance(kind, sqlalchemy.Date):
        return datetime.timedelta(days=1)
    digits: int | None = getattr(kind, "precision", None)
    if dialect == "mysql":
        digits = getattr(kind, "fsp", None) or 0
    elif dialect == "sqlite":
        digits = 0  # its CURRENT_TIMESTAMP has no fraction
    return datetime.timedelta(microseconds=10 ** (6 - min(6 if digits is None else digits, 6)))


def _date(value: Any) -> datetime.date:
    if isinstance(value, datetime.datetime):
        return value.date()
    return value if isinstance(value, datetime.date) else datetime.date.fromisoformat(value)


def _time(value: Any) -> datetime.time:
    if isinstance(value, datetime.timedelta):  # MySQL's TIME is a duration
        return (datetime.datetime.min + value).time()
    return value if isinstance(value, datetime.time) else datetime.time.fromisoformat(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, (dict, list)):
        return dump(value).decode()
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    return str(value)
