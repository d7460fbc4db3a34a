"""Encodes rows as JSON, and creates the JSON Schema of a Spark type."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from penstock.spark.encoders.columns import (
    Encode,
    Piece,
    always,
    as_bytes,
    from_sizes,
    grouped,
    joined,
    lists,
    nullable,
    sizes_of,
)
from penstock.spark.errors import NotTyped

_QUOTE = always(b'"')
_ESCAPED = re.compile(rb'["\\\x00-\x1f]')
_TIME_SIZE = len("2024-02-29 12:00:00.000000")
_TIME_PLACE = len("2024-02-29")
_INTEGERS = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32}


# From types to a schema


def json_schema(kind: T.DataType, name: str = "Value") -> str:
    """The schema of rows of this type; the same text for the same type. Objects are closed (no additional
    properties), because adding a property to an open object is incompatible: old data may have any value
    under its name.
    """
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": name}
    return json.dumps({**head, **_schema(kind, "")}, ensure_ascii=False)


def _schema(kind: T.DataType, place: str) -> dict[str, Any]:
    if isinstance(kind, T.StructType):
        properties = {
            field.name: _or_null(_schema(field.dataType, f"{place}.{field.name}".lstrip(".")), field.nullable)
            for field in kind.fields
        }
        needed = [field.name for field in kind.fields if not field.nullable]
        found: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": properties}
        return {**found, "required": needed} if needed else found
    if isinstance(kind, T.ArrayType):
        return {
            "type": "array",
            "items": _or_null(_schema(kind.elementType, f"{place}[]"), kind.containsNull),
        }
    if isinstance(kind, T.MapType):
        values = _or_null(_schema(kind.valueType, f"{place}{{}}"), kind.valueContainsNull)
        return {"type": "object", "additionalProperties": values}
    if type(kind) in _INTEGERS:
        most = 1 << (_INTEGERS[type(kind)] - 1)  # type: ignore[index]
        return {"type": "integer", "minimum": -most, "maximum": most - 1}
    found_scalar = next((schema for type_, schema in _SCHEMAS if isinstance(kind, type_)), None)
    if found_scalar is None:
        raise NotTyped(f"'{place or 'the value'}' is {kind.simpleString()}, for which JSON has no type")
    return found_scalar


def _or_null(schema: dict[str, Any], nullable_: bool) -> dict[str, Any]:
    if not nullable_ or schema == {"type": "null"}:
        return schema
    return {"oneOf": [{"type": "null"}, schema]}


_SCHEMAS: tuple[tuple[type[T.DataType], dict[str, Any]], ...] = (
    (T.NullType, {"type": "null"}),
    (T.BooleanType, {"type": "boolean"}),
    (T.LongType, {"type": "integer"}),
    (T.FloatType, {"type": "number"}),
    (T.DoubleType, {"type": "number"}),
    (T.DecimalType, {"type": "number"}),
    (T.StringType, {"type": "string"}),
    (T.BinaryType, {"type": "string", "contentEncoding": "base64"}),
    (T.DateType, {"type": "string", "format": "date"}),
    (T.TimestampType, {"type": "string", "format": "date-time"}),
    (T.TimestampNTZType, {"type": "string"}),
)


# From columns to text


def encoder(kind: T.DataType, place: str = "") -> Encode:
    """Encodes columns of a type as text. Nulls, NaN and infinite numbers become null."""
    if isinstance(kind, T.NullType):
        return lambda array: [always(b"null")]
    return nullable(_value(kind, place), b"", b"null")


def _value(kind: T.DataType, place: str) -> Encode:
    if isinstance(kind, T.StructType):
        return _object(kind, place)
    if isinstance(kind, T.ArrayType):
        return _in_brackets(encoder(kind.elementType, f"{place}[]"), b"[", b"]")
    if isinstance(kind, T.MapType):
        key, value = _key(kind.keyType, place), encoder(kind.valueType, f"{place}{{}}")
        colon = always(b":")
        return _in_brackets(
            lambda entries: [*key(entries.field(0)), colon, *value(entries.field(1))], b"{", b"}"
        )
    return _scalar(kind, place)


def _object(kind: T.StructType, place: str) -> Encode:
    fields = []
    for index, field in enumerate(kind.fields):
        before = ("," if index else "{") + json.dumps(field.name, ensure_ascii=False) + ":"
        fields.append((always(before.encode()), encoder(field.dataType, f"{place}.{field.name}".lstrip("."))))
    end = always(b"}" if fields else b"{}")

    def pieces(array: pa.Array) -> list[Piece]:
        found: list[Piece] = []
        for index, (before, value) in enumerate(fields):
            found += (before, *value(array.field(index)))
        return [*found, end]

    return pieces


def _in_brackets(item: Encode, left: bytes, right: bytes) -> Encode:
    begin, end = always(left), always(right)

    def pieces(array: pa.Array) -> list[Piece]:
        lengths, items = lists(array)
        # A comma before every item but the first of its row.
        follows = np.ones(len(items), np.int64)
        starts = (np.cumsum(lengths) - lengths)[lengths > 0]
        follows[starts] = 0
        commas = from_sizes(follows, np.full(int(follows.sum()), ord(","), np.uint8))
        whole = joined([commas, *item(items)], len(items))
        return [begin, grouped(whole, lengths), end]

    return pieces


def _key(kind: T.DataType, place: str) -> Encode:
    if isinstance(kind, (T.StringType, T.DateType, T.TimestampType, T.TimestampNTZType, T.BinaryType)):
        return _scalar(kind, place)
    value = _scalar(kind, place)
    return lambda array: [_QUOTE, *value(array), _QUOTE]


def _scalar(kind: T.DataType, place: str) -> Encode:
    if isinstance(kind, T.StringType):
        return _texts
    if isinstance(kind, T.BooleanType):
        true, false = always(b"true"), always(b"false")
        return lambda array: [pc.if_else(array, true, false)]
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        return _floats
    if isinstance(kind, (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.DecimalType)):
        return lambda array: [as_bytes(array.cast(pa.string()))]
    if isinstance(kind, T.DateType):
        return lambda array: [_QUOTE, as_bytes(array.cast(pa.string())), _QUOTE]
    if isinstance(kind, T.TimestampType):
        return lambda array: _times(array, "%Y-%m-%dT%H:%M:%SZ")
    if isinstance(kind, T.TimestampNTZType):
        return lambda array: _times(array, "%Y-%m-%dT%H:%M:%S")
    if isinstance(kind, T.BinaryType):
        return lambda array: [
            _QUOTE,
            pa.array([base64.b64encode(each) for each in array.to_pylist()], pa.binary()),
            _QUOTE,
        ]
    raise NotTyped(f"'{place or 'the value'}' is {kind.simpleString()}, for which JSON has no type")


def _texts(array: pa.Array) -> list[Piece]:
    data = as_bytes(array)
    buffer = data.buffers()[2]
    if buffer is not None and _ESCAPED.search(buffer):
        # json.dumps puts the quotes.
        escaped = [json.dumps(each, ensure_ascii=False).encode() for each in array.to_pylist()]
        return [pa.array(escaped, pa.binary())]
    return [_QUOTE, data, _QUOTE]


def _floats(array: pa.Array) -> list[Piece]:
    finite = pc.is_finite(array)
    texts = as_bytes(array.cast(pa.string()))
    if pc.all(finite, min_count=0).as_py():
        return [texts]
    return [pc.if_else(finite, texts, always(b"null"))]


def _times(array: pa.Array, form: str) -> list[Piece]:
    utc = array.view(pa.int64()).view(pa.timestamp("us"))
    texts = as_bytes(utc.cast(pa.string()))
    if not len(texts) or (sizes_of(texts) != _TIME_SIZE).any():  # years beyond four digits
        return [_QUOTE, as_bytes(pc.strftime(utc, form)), _QUOTE]
    first = texts.offset * _TIME_SIZE
    data = np.frombuffer(texts.buffers()[2], np.uint8)[first : first + len(texts) * _TIME_SIZE].copy()
    data.reshape(-1, _TIME_SIZE)[:, _TIME_PLACE] = ord("T")
    end = always(b'Z"' if form.endswith("Z") else b'"')
    return [_QUOTE, from_sizes(np.full(len(texts), _TIME_SIZE), data), end]
