"""Encodes rows as Avro: the schema of a Spark type, and columns as bytes of a schema."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from penstock.registry.formats.avro.model import Array, AvroType, Enum, Fixed, Map, Primitive, Record
from penstock.registry.formats.avro.model import Union as AvroUnion
from penstock.registry.serdes.avro_logical import decimal_scale, logical_type
from penstock.spark.encoders.columns import (
    Encode,
    Piece,
    always,
    as_bytes,
    big_endian,
    bits,
    from_sizes,
    grouped,
    joined,
    lists,
    little_endian,
    nullable,
    required,
    shortest,
    sizes_of,
    varints,
    whole_numbers,
    zigzag,
)
from penstock.spark.errors import BadRow, NotTyped

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NOT_NULL = "and its Avro type does not take null"


# From types to a schema


def avro_schema(kind: T.DataType, name: str = "Value") -> str:
    """The schema of rows of this type; the same text for the same type. Nested records are named after their
    fields, in the namespace of the enclosing record, as by Spark's to_avro.
    """
    return json.dumps(_schema(kind, name, "", "", "the value"), ensure_ascii=False)


def _schema(kind: T.DataType, name: str, space: str, place: str, what: str) -> Any:
    if isinstance(kind, T.StructType):
        if not _NAME.fullmatch(name):
            raise NotTyped(f"Avro has no name '{name}': rename it, with letters, digits and _ only")
        below = f"{space}.{name}" if space else name
        fields = [_field(field, below, f"{place}.{field.name}".lstrip(".")) for field in kind.fields]
        return {"type": "record", "name": name, **({"namespace": space} if space else {}), "fields": fields}
    if isinstance(kind, T.ArrayType):
        items = _schema(kind.elementType, name, space, f"{place}[]", "items")
        return {"type": "array", "items": ["null", items] if kind.containsNull else items}
    if isinstance(kind, T.MapType):
        if not isinstance(kind.keyType, T.StringType):
            raise NotTyped(f"'{place}' is {kind.simpleString()}: the keys of Avro's maps are strings")
        values = _schema(kind.valueType, name, space, f"{place}{{}}", "values")
        return {"type": "map", "values": ["null", values] if kind.valueContainsNull else values}
    if isinstance(kind, T.DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    found = next((schema for type_, schema in _SCHEMAS if isinstance(kind, type_)), None)
    if found is None:
        raise NotTyped(f"'{place or what}' is {kind.simpleString()}, which Avro cannot represent")
    return found


def _field(field: T.StructField, space: str, place: str) -> dict[str, Any]:
    if not _NAME.fullmatch(field.name):
        raise NotTyped(
            f"Avro has no field called '{field.name}': rename it (AS), with letters, digits and _ only"
        )
    kind = _schema(field.dataType, field.name, space, place, place)
    if not field.nullable or kind == "null":
        return {"name": field.name, "type": kind}
    return {"name": field.name, "type": ["null", kind], "default": None}


_SCHEMAS: tuple[tuple[type[T.DataType], Any], ...] = (
    (T.NullType, "null"),
    (T.BooleanType, "boolean"),
    (T.ByteType, "int"),
    (T.ShortType, "int"),
    (T.IntegerType, "int"),
    (T.LongType, "long"),
    (T.FloatType, "float"),
    (T.DoubleType, "double"),
    (T.StringType, "string"),
    (T.BinaryType, "bytes"),
    (T.DateType, {"type": "int", "logicalType": "date"}),
    (T.TimestampType, {"type": "long", "logicalType": "timestamp-micros"}),
    (T.TimestampNTZType, {"type": "long", "logicalType": "local-timestamp-micros"}),
)


# From columns to bytes


def encoder(schema: AvroType, kind: T.DataType, place: str = "") -> Encode:
    """Encodes columns of a Spark type as bytes of the schema. Raises NotTyped if they do not match."""
    if isinstance(schema, AvroUnion):
        return _union(schema, kind, place)
    if schema.type == "null":
        return lambda array: [always(b"")]
    return required(_value(schema, kind, place), place, _NOT_NULL)


def _union(schema: AvroUnion, kind: T.DataType, place: str) -> Encode:
    nothing = next((index for index, each in enumerate(schema.branches) if each.type == "null"), None)
    if isinstance(kind, T.NullType) and nothing is not None:
        return lambda array: [always(_long(nothing))]
    for index, branch in enumerate(schema.branches):
        try:
            value = _value(branch, kind, place)
        except NotTyped:
            if len(schema.branches) == (1 if nothing is None else 2) and index != nothing:
                raise
            continue
        if nothing is None:
            return required(nullable(value, _long(index), b""), place, _NOT_NULL)
        return nullable(value, _long(index), _long(nothing))
    raise _clash(schema, kind, place)


def _long(number: int) -> bytes:
    return bytes(varints(zigzag(np.array([number])))[0].as_py())


def _value(schema: AvroType, kind: T.DataType, place: str) -> Encode:
    if isinstance(schema, Record) and isinstance(kind, T.StructType):
        return _record(schema, kind, place)
    if isinstance(schema, Array) and isinstance(kind, T.ArrayType):
        return _blocks(encoder(schema.items, kind.elementType, f"{place}[]"))
    if isinstance(schema, Map) and isinstance(kind, T.MapType) and isinstance(kind.keyType, T.StringType):
        value = encoder(schema.values, kind.valueType, f"{place}{{}}")
        return _blocks(lambda entries: [*_text(entries.field(0)), *value(entries.field(1))])
    if isinstance(schema, Enum) and isinstance(kind, T.StringType):
        return _enum(schema, place)
    if isinstance(schema, (Primitive, Fixed)):
        found = _scalar(schema, kind, place)
        if found is not None:
            return found
    raise _clash(schema, kind, place)


def _clash(schema: AvroType, kind: T.DataType, place: str) -> NotTyped:
    logical = logical_type(schema)
    name = f"{schema.type} ({logical})" if logical else schema.type
    return NotTyped(
        f"{repr(place) if place else 'the column'} is {kind.simpleString()}, and in the schema it is {name}"
    )


def _record(schema: Record, kind: T.StructType, place: str) -> Encode:
    names = {field.name: index for index, field in enumerate(kind.fields)}
    fields = schema.fields or []
    if others := [name for name in names if name not in {field.name for field in fields}]:
        raise NotTyped(f"the schema {schema.name.full} has no field {', '.join(others)}")
    takes: list[tuple[int, Encode]] = []
    for field in fields:
        inside = f"{place}.{field.name}".lstrip(".")
        index = names.get(field.name)
        if index is not None:
            takes.append((index, encoder(field.type, kind.fields[index].dataType, inside)))
        elif isinstance(field.type, AvroUnion) and any(each.type == "null" for each in field.type.branches):
            takes.append((-1, encoder(field.type, T.NullType(), inside)))
        else:
            raise NotTyped(f"the rows have no column '{inside}', which the schema has")

    def pieces(array: pa.Array) -> list[Piece]:
        return [
            piece
            for index, encode in takes
            for piece in encode(array.field(index) if index >= 0 else pa.nulls(len(array)))
        ]

    return pieces


def _blocks(item: Encode) -> Encode:
    """Arrays and maps: one block with all items, if there are any, and an empty block."""
    end = always(b"\0")

    def pieces(array: pa.Array) -> list[Piece]:
        lengths, items = lists(array)
        whole = grouped(joined(item(items), len(items)), lengths)
        some = lengths > 0
        if some.all():
            return [varints(zigzag(lengths)), whole, end]
        counts = varints(zigzag(lengths))  # the count 0 is the end already
        last = from_sizes(some.astype(np.int64), np.zeros(int(some.sum()), np.uint8))
        return [counts, whole, last]

    return pieces


def _text(array: pa.Array) -> list[Piece]:
    data = as_bytes(array)
    return [varints(zigzag(sizes_of(data))), data]


def _enum(schema: Enum, place: str) -> Encode:
    symbols = pa.array(schema.symbols, pa.string())

    def pieces(array: pa.Array) -> list[Piece]:
        found = pc.index_in(array.cast(pa.string()), symbols)
        if found.null_count:
            wrong = array.filter(found.is_null())[0].as_py()
            raise BadRow(f"'{place}' is '{wrong}', which is not a symbol of {schema.name.full}")
        return [varints(zigzag(whole_numbers(found)))]

    return pieces


_WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_TICKS = {"timestamp-millis": 1000, "timestamp-micros": 1, "local-timestamp-millis": 1000,
          "local-timestamp-micros": 1}  # fmt: skip


def _scalar(schema: Primitive | Fixed, kind: T.DataType, place: str) -> Encode | None:
    name, logical = schema.type, logical_type(schema)
    if isinstance(kind, T.DecimalType):
        if logical != "decimal" or decimal_scale(schema) != kind.scale:
            return None
        if schema.props.get("precision", 0) < kind.precision:
            return None
        return _decimal(schema.size if isinstance(schema, Fixed) else None, place)
    if isinstance(kind, T.DateType):
        return _number(1) if name == "int" and logical == "date" else None
    if isinstance(kind, (T.TimestampType, T.TimestampNTZType)):
        local = isinstance(kind, T.TimestampNTZType)
        if name != "long" or logical not in _TICKS or logical.startswith("local") != local:
            return None
        return _number(_TICKS[logical])
    if name == "boolean" and isinstance(kind, T.BooleanType):
        return lambda array: [bits(array)]
    if (name == "int" and isinstance(kind, _WHOLE[:3])) or (name == "long" and isinstance(kind, _WHOLE)):
        return _number(1)
    if name == "float" and isinstance(kind, T.FloatType):
        return lambda array: [little_endian(array)]
    if name == "double" and isinstance(kind, (T.FloatType, T.DoubleType)):
        return lambda array: [little_endian(array.cast(pa.float64()))]
    if (name, type(kind)) in (("string", T.StringType), ("bytes", T.BinaryType)):
        return _text
    if isinstance(schema, Fixed) and isinstance(kind, T.BinaryType):
        return _fixed(schema, place)
    return None


def _number(ticks: int) -> Encode:
    return lambda array: [varints(zigzag(whole_numbers(array) // ticks))]


def _fixed(schema: Fixed, place: str) -> Encode:
    def pieces(array: pa.Array) -> list[Piece]:
        data = as_bytes(array)
        if (sizes_of(data) != schema.size).any():
            raise BadRow(f"'{place}' has a value that is not of {schema.size} bytes ({schema.name.full})")
        return [data]

    return pieces


def _decimal(size: int | None, place: str) -> Encode:
    def pieces(array: pa.Array) -> list[Piece]:
        rows = big_endian(array)
        if size is None:
            data = shortest(rows)
            return [varints(zigzag(sizes_of(data))), data]
        if size > 16:
            signs = np.repeat((rows[:, :1] >> 7) * np.uint8(255), size - 16, axis=1)
            rows = np.concatenate([signs, rows], axis=1)
        elif size < 16 and (sizes_of(shortest(rows)) > size).any():
            raise BadRow(f"'{place}' has a number that does not fit into {size} bytes")
        kept = rows[:, rows.shape[1] - size :]
        return [from_sizes(np.full(len(kept), size), np.ascontiguousarray(kept).reshape(-1))]

    return pieces
