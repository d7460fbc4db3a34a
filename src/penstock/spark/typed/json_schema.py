"""JSON values as columns of a JSON Schema. Parts without a defined type become strings of JSON.

JSON Schema has no rules for schema resolution: a record is read with the column's schema. Properties that it
does not name are left out, missing ones are null.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql import types as T

from penstock.registry.client import RegisteredSchema, RegistryClient
from penstock.registry.formats.json_schema.model import (
    Array,
    Combined,
    Node,
    Nothing,
    Number,
    Object,
    Ref,
    Simple,
    Text,
    Values,
)
from penstock.registry.formats.json_schema.parsed import JsonSchema
from penstock.registry.serdes.framing import Framed
from penstock.registry.serdes.json_schema import read
from penstock.spark.typed.text_values import base64_bytes, described, json_array, json_object, misfit

Convert = Callable[[Any], Any]

NULL = T.NullType()
_MOST_DEEP = 60


class JsonText(T.StringType):
    """A string that holds JSON, while types are being found; a StringType to Spark."""


_TEXT = JsonText()


class JsonColumn:
    def __init__(self, schema: JsonSchema) -> None:
        kind = _type(schema.root, [])
        self._convert = _converter(kind, "")
        self.spark_type = _plain(kind)

    def reader_for(self, writer: RegisteredSchema, client: RegistryClient) -> Convert:
        convert = self._convert

        def value_of(framed: Framed) -> Any:
            value = read(framed.payload)
            return None if value is None else convert(value)

        return value_of


# From the schema to types


def _type(node: Node | None, open_: list[Node]) -> T.DataType:
    if node is None or node in open_ or len(open_) > _MOST_DEEP:
        return _TEXT  # anything goes, or it contains itself
    inside = [*open_, node]
    if isinstance(node, Ref):
        return _type(node.target, inside)
    if isinstance(node, Simple):
        return NULL if node.type == "null" else T.BooleanType()
    if isinstance(node, Text):
        return T.BinaryType() if node.encoding == "base64" else T.StringType()
    if isinstance(node, Number):
        return T.LongType() if node.integer else T.DoubleType()
    if isinstance(node, Object):
        return _object(node, inside)
    if isinstance(node, Array):
        if node.items:
            return _TEXT  # each place has a type of its own
        return T.ArrayType(_type(node.every, inside))
    if isinstance(node, Values):
        return _of_values(node.keys)
    if isinstance(node, Combined):
        parts = [_type(part, inside) for part in node.parts]
        return _all(parts) if node.criterion == "allOf" else _any(parts)
    return _TEXT


def _object(node: Object, inside: list[Node]) -> T.DataType:
    if node.properties:
        return T.StructType(
            [T.StructField(name, _type(below, inside)) for name, below in node.properties.items()]
        )
    values = [*node.patterns.values()]
    if node.additional is not None and not isinstance(node.additional, Nothing):
        values.append(node.additional)
    if len(values) == 1:
        return T.MapType(T.StringType(), _type(values[0], inside))
    return _TEXT


def _of_values(keys: frozenset[str]) -> T.DataType:
    """The type of an enum, by the spelling of its values."""
    kinds: set[T.DataType] = set()
    for key in keys - {"None"}:
        if key.startswith("'"):
            kinds.add(T.StringType())
        elif key in ("True", "False"):
            kinds.add(T.BooleanType())
        elif key[:1] in "{[":
            kinds.add(_TEXT)
        else:
            kinds.add(T.LongType() if key.lstrip("-").isdecimal() else T.DoubleType())
    return _any(list(kinds)) if kinds else NULL


def _any(kinds: list[T.DataType]) -> T.DataType:
    """One of several types; null is ignored, because every column may be null."""
    different: list[T.DataType] = []
    for kind in kinds:
        if kind != NULL and not any(_same(kind, other) for other in different):
            different.append(kind)
    if len(different) == 1:
        return different[0]
    if different and all(isinstance(kind, (T.LongType, T.DoubleType)) for kind in different):
        return T.DoubleType()
    return _TEXT if different else NULL


def _all(kinds: list[T.DataType]) -> T.DataType:
    """allOf: parts without a type are ignored."""
    known: list[T.DataType] = []
    for kind in kinds:
        if not isinstance(kind, JsonText) and not any(_same(kind, other) for other in known):
            known.append(kind)
    if len(known) == 1:
        return known[0]
    if known and all(isinstance(kind, T.StructType) for kind in known):
        fields: dict[str, T.DataType] = {}
        for kind in known:
            assert isinstance(kind, T.StructType)
            for field in kind.fields:
                before = fields.get(field.name)
                fields[field.name] = field.dataType if before is None else _all([before, field.dataType])
        return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])
    if known and all(isinstance(kind, (T.LongType, T.DoubleType)) for kind in known):
        return T.LongType()
    return _TEXT


def _same(one: T.DataType, other: T.DataType) -> bool:
    return type(one) is type(other) and one == other


def _plain(kind: T.DataType) -> T.DataType:
    if isinstance(kind, JsonText):
        return T.StringType()
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(field.name, _plain(field.dataType)) for field in kind.fields])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_plain(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(T.StringType(), _plain(kind.valueType))
    return kind


# Converts values strictly for Arrow, which would truncate 1.5 to 1


def _converter(kind: T.DataType, place: str) -> Convert:
    where = described(place)
    if isinstance(kind, JsonText):
        return lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(kind, T.StructType):
        return json_object(kind, place, _converter)
    if isinstance(kind, T.ArrayType):
        return json_array(kind, place, _converter)
    if isinstance(kind, T.MapType):
        below = _converter(kind.valueType, f"{place}{{}}")

        def mapping(value: Any) -> Any:
            if not isinstance(value, dict):
                raise misfit(where, value, "an object")
            return {name: None if each is None else below(each) for name, each in value.items()}

        return mapping
    return _scalar(kind, where)


def _scalar(kind: T.DataType, where: str) -> Convert:
    def scalar(value: Any) -> Any:
        if isinstance(kind, T.StringType) and isinstance(value, str):
            return value
        if isinstance(kind, T.BinaryType) and isinstance(value, str):
            return base64_bytes(value, where)
        if isinstance(kind, T.BooleanType) and isinstance(value, bool):
            return value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if isinstance(kind, T.DoubleType):
                return float(value)
            if isinstance(kind, T.LongType) and (isinstance(value, int) or value.is_integer()):
                return int(value)
        names = {T.StringType: "a string", T.BooleanType: "a boolean", T.LongType: "a whole number"}
        names[T.BinaryType] = "bytes in base64"
        raise misfit(where, value, names.get(type(kind), "a number"))

    return scalar
