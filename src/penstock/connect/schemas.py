"""Connect's schema model: the schema of a key or a value, with the types that every converter supports.

A value is a plain Python one: int, float, bool, str, bytes, list, dict (for both map and struct), None, and
for the logical types `decimal.Decimal`, `datetime.date`, `datetime.time` and `datetime.datetime` (in UTC).
"""

from __future__ import annotations

import datetime
import decimal
import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.connect.errors import DataError

DECIMAL = "org.apache.kafka.connect.data.Decimal"
DATE = "org.apache.kafka.connect.data.Date"
TIME = "org.apache.kafka.connect.data.Time"
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"


class Type(enum.Enum):
    """The types, as Connect's JSON names them."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float"
    FLOAT64 = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"


@dataclass(frozen=True, slots=True)
class SchemaField:
    """One field of a struct."""

    name: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Schema:
    """One type. `name` also names a logical type; its `parameters` are text, such as a decimal's scale.

    `key_schema` is for maps, `value_schema` for maps and arrays, `fields` for structs. An optional schema
    allows None; a missing field has `default`.
    """

    type: Type
    optional: bool = False
    default: Any = field(default=None, hash=False)  # may be a list or a dict
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    key_schema: Schema | None = None
    value_schema: Schema | None = None
    fields: tuple[SchemaField, ...] = ()

    def as_optional(self) -> Schema:
        return self if self.optional else replace(self, optional=True)

    def as_required(self) -> Schema:
        return replace(self, optional=False) if self.optional else self

    def with_default(self, default: Any) -> Schema:
        return replace(self, default=default)

    def field(self, name: str) -> Schema | None:
        """The schema of a struct's field; None if there is no such field."""
        for each in self.fields:
            if each.name == name:
                return each.schema
        return None

    def parameter(self, name: str) -> str | None:
        return next((value for key, value in self.parameters if key == name), None)

    def with_fields(self, fields: Iterable[SchemaField]) -> Schema:
        return replace(self, fields=tuple(fields))


INT8_SCHEMA = Schema(Type.INT8)
INT16_SCHEMA = Schema(Type.INT16)
INT32_SCHEMA = Schema(Type.INT32)
INT64_SCHEMA = Schema(Type.INT64)
FLOAT32_SCHEMA = Schema(Type.FLOAT32)
FLOAT64_SCHEMA = Schema(Type.FLOAT64)
BOOLEAN_SCHEMA = Schema(Type.BOOLEAN)
STRING_SCHEMA = Schema(Type.STRING)
BYTES_SCHEMA = Schema(Type.BYTES)
DATE_SCHEMA = Schema(Type.INT32, name=DATE, version=1)
TIME_SCHEMA = Schema(Type.INT32, name=TIME, version=1)
TIMESTAMP_SCHEMA = Schema(Type.INT64, name=TIMESTAMP, version=1)


def decimal_schema(scale: int) -> Schema:
    return Schema(Type.BYTES, name=DECIMAL, version=1, parameters=(("scale", str(scale)),))


def array_schema(items: Schema) -> Schema:
    return Schema(Type.ARRAY, value_schema=items)


def map_schema(keys: Schema, values: Schema) -> Schema:
    return Schema(Type.MAP, key_schema=keys, value_schema=values)


def struct_schema(
    fields: Mapping[str, Schema], *, name: str | None = None, version: int | None = None
) -> Schema:
    """A struct with these fields, in this order."""
    return Schema(
        Type.STRUCT,
        name=name,
        version=version,
        fields=tuple(SchemaField(key, schema) for key, schema in fields.items()),
    )


_BITS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_LOGICAL: dict[str, Any] = {
    DECIMAL: decimal.Decimal,
    DATE: datetime.date,
    TIME: datetime.time,
    TIMESTAMP: datetime.datetime,
}
_PYTHON: dict[Type, Any] = {
    Type.FLOAT32: (float, int),
    Type.FLOAT64: (float, int),
    Type.BOOLEAN: bool,
    Type.STRING: str,
    Type.BYTES: (bytes, bytearray, memoryview),
    Type.ARRAY: (list, tuple),
    Type.MAP: dict,
    Type.STRUCT: dict,
}


def check(schema: Schema, value: Any, path: str = "value") -> None:
    """Raises DataError, with the path to the wrong part, if the value does not match this schema."""
    if value is None:
        if not schema.optional and schema.default is None:
            raise DataError(
                f"{path}: null is not allowed by the schema, which is not optional ({schema.type.value})"
            )
        return
    if schema.name in _LOGICAL:
        kind = _LOGICAL[schema.name]
        if not isinstance(value, kind) or (schema.name == DATE and isinstance(value, datetime.datetime)):
            raise DataError(f"{path}: {schema.name} expects {kind}, not {type(value).__name__}")
        return
    bits = _BITS.get(schema.type)
    if bits is not None:
        if isinstance(value, bool) or not isinstance(value, int):
            raise DataError(f"{path}: {schema.type.value} expects an integer, not {type(value).__name__}")
        if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise DataError(f"{path}: {value} does not fit {schema.type.value}")
        return
    if not isinstance(value, _PYTHON[schema.type]) or (
        isinstance(value, bool) and schema.type is not Type.BOOLEAN
    ):
        raise DataError(f"{path}: {schema.type.value} does not take {type(value).__name__}")
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        for index, item in enumerate(value):
            check(schema.value_schema, item, f"{path}[{index}]")
    elif schema.type is Type.MAP and schema.key_schema is not None and schema.value_schema is not None:
        for key, item in value.items():
            check(schema.key_schema, key, f"{path} key")
            check(schema.value_schema, item, f"{path}[{key!r}]")
    elif schema.type is Type.STRUCT:
        for each in schema.fields:
            check(each.schema, value.get(each.name), f"{path}.{each.name}")
