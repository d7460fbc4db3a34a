"""Avro values as columns, with the types of Spark's own from_avro; each record by its writer's schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import types as T

from penstock.registry.client import RegisteredSchema, RegistryClient
from penstock.registry.formats.avro.model import Array, AvroType, Fixed, Map, Named, Primitive, Record, Union
from penstock.registry.formats.avro.parsed import AvroSchema
from penstock.registry.serdes.avro import branch_name
from penstock.registry.serdes.avro_bytes import fast_schema, read
from penstock.registry.serdes.avro_logical import decimal_of, decimal_scale, logical_type
from penstock.registry.serdes.framing import Framed
from penstock.spark.errors import NotTyped

Convert = Callable[[Any], Any]
_PRIMITIVES: dict[str, T.DataType] = {
    "null": T.NullType(),
    "boolean": T.BooleanType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "bytes": T.BinaryType(),
    "string": T.StringType(),
    "fixed": T.BinaryType(),
    "enum": T.StringType(),
}
_TIMES: dict[str, tuple[T.DataType, int]] = {
    "timestamp-millis": (T.TimestampType(), 1000),
    "timestamp-micros": (T.TimestampType(), 1),
    "local-timestamp-millis": (T.TimestampNTZType(), 1000),
    "local-timestamp-micros": (T.TimestampNTZType(), 1),
}
_LARGEST_PRECISION = 38


class AvroColumn:
    """One column of the reader's schema."""

    def __init__(self, schema: AvroSchema) -> None:
        self._text = schema.formatted("resolved")
        self._reader = fast_schema(schema)
        self._named = False
        self.spark_type, self._convert = self._type(schema.raw, "", [])

    def reader_for(self, writer: RegisteredSchema, client: RegistryClient) -> Convert:
        """Decodes a framed payload of the writer's schema to a value of the column."""
        schema: Any = client.parse(writer)
        fast = fast_schema(schema)
        # If both are the same, nothing needs to be resolved.
        reader = None if schema.formatted("resolved") == self._text else self._reader
        convert, named, name = self._convert, self._named, schema.name or ""

        def value_of(framed: Framed) -> Any:
            value = read(framed.payload, fast, reader, named=named, name=name)
            return value if convert is None else convert(value)

        return value_of

    def _type(self, schema: AvroType, place: str, open_: list[AvroType]) -> tuple[T.DataType, Convert | None]:
        """Spark's type, and the conversion of fastavro's values to it; None if none is needed."""
        if schema in open_:
            raise NotTyped(
                f"{branch_name(schema)} contains itself, at {place}: Spark's types cannot be recursive"
            )
        inside = [*open_, schema]
        if isinstance(schema, Record):
            return self._record(schema, place, inside)
        if isinstance(schema, Array):
            kind, convert = self._type(schema.items, f"{place}[]", inside)
            return T.ArrayType(kind), _each(convert)
        if isinstance(schema, Map):
            kind, convert = self._type(schema.values, f"{place}{{}}", inside)
            return T.MapType(T.StringType(), kind), _each_value(convert)
        if isinstance(schema, Union):
            return self._union(schema, place, inside)
        return _primitive(schema)

    def _record(
        self, schema: Record, place: str, inside: list[AvroType]
    ) -> tuple[T.DataType, Convert | None]:
        fields, converts = [], []
        for field in schema.fields or ():
            kind, convert = self._type(field.type, f"{place}.{field.name}".lstrip("."), inside)
            fields.append(T.StructField(field.name, kind))
            if convert is not None:
                converts.append((field.name, convert))
        return T.StructType(fields), _fields(converts)

    def _union(self, schema: Union, place: str, inside: list[AvroType]) -> tuple[T.DataType, Convert | None]:
        branches = [branch for branch in schema.branches if branch.type != "null"]
        kinds = {branch.type for branch in branches}
        if not branches:
            return T.NullType(), None
        if len(branches) == 1:
            kind, convert = self._type(branches[0], place, inside)
            only = isinstance(branches[0], Named)
            return kind, _unnamed(convert) if only else _or_null(convert)
        if kinds <= {"int", "long"} and not any(map(logical_type, branches)):
            return T.LongType(), None
        if kinds <= {"float", "double"}:
            return T.DoubleType(), None
        self._named = True
        fields, members = [], []
        for index, branch in enumerate(branches):
            kind, convert = self._type(branch, place, inside)
            fields.append(T.StructField(f"member{index}", kind))
            members.append((f"member{index}", branch, convert))
        return T.StructType(fields), _members(members)


def _primitive(schema: AvroType) -> tuple[T.DataType, Convert | None]:
    logical = logical_type(schema)
    if logical == "decimal" and schema.type in ("bytes", "fixed"):
        assert isinstance(schema, (Primitive, Fixed))
        precision, scale = schema.props.get("precision"), decimal_scale(schema)
        if isinstance(precision, int) and scale <= precision <= _LARGEST_PRECISION:
            return T.DecimalType(precision, scale), lambda data: decimal_of(data, scale)
    if logical == "date" and schema.type == "int":
        return T.DateType(), None
    if logical in _TIMES and schema.type == "long":
        kind, factor = _TIMES[logical]
        return kind, None if factor == 1 else lambda ticks: ticks * factor
    return _PRIMITIVES[schema.type], None


def _or_null(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda value: None if value is None else convert(value)


def _unnamed(convert: Convert | None) -> Convert:
    def plain(value: Any) -> Any:
        if type(value) is tuple:
            value = value[1]
        return value if convert is None or value is None else convert(value)

    return plain


def _each(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda values: [convert(value) for value in values]


def _each_value(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda values: {name: convert(value) for name, value in values.items()}


def _fields(converts: list[tuple[str, Convert]]) -> Convert | None:
    if not converts:
        return None

    def convert_fields(record: dict[str, Any]) -> dict[str, Any]:
        record = record.copy()  # the default of a field is one object for all records
        for name, convert in converts:
            record[name] = convert(record[name])
        return record

    return convert_fields


_PYTHON = {
    "boolean": bool, "int": int, "long": int, "float": float, "double": float, "string": str, "bytes": bytes,
    "array": list, "map": dict,
}  # fmt: skip


def _members(members: list[tuple[str, AvroType, Convert | None]]) -> Convert:
    """A union of several types is a struct with one member set, as in Spark's from_avro."""
    by_name = {branch_name(branch): (name, convert) for name, branch, convert in members}

    def find(value: Any) -> tuple[str, Convert | None]:
        for name, branch, convert in members:
            if isinstance(branch, Record):
                if isinstance(value, dict) and value.keys() == {field.name for field in branch.fields or ()}:
                    return name, convert
            elif type(value) is _PYTHON.get(branch.type):
                return name, convert
        # A writer's value that was not a union: an enum is a string, a fixed type is bytes.
        other = "enum" if isinstance(value, str) else "fixed" if isinstance(value, bytes) else ""
        for name, branch, convert in members:
            if branch.type == other:
                return name, convert
        raise TypeError(f"{type(value).__name__} is in no branch of the union")

    def one_of(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is tuple:
            branch, value = value
            name, convert = by_name[branch]
        else:
            name, convert = find(value)
        return {name: value if convert is None else convert(value)}

    return one_of
