"""Protobuf messages as columns. Fields are found by their numbers, in the reader's message of the same name.

Fields with presence that are not set are null, others have their default. Enums are their names, uint64 is
decimal(20,0), Timestamp a timestamp, the wrappers their values; Struct, Value, ListValue and Any are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from pyspark.sql import types as T

from penstock.registry.client import RegisteredSchema, RegistryClient
from penstock.registry.formats.protobuf.parsed import ProtobufSchema
from penstock.registry.serdes.framing import Framed, Undecodable, read_indexes
from penstock.registry.serdes.protobuf import Messages, read
from penstock.spark.errors import NotTyped

Convert = Callable[[Any], Any]

F = FieldDescriptor
_SCALARS: dict[int, tuple[T.DataType, Convert | None]] = {
    F.TYPE_DOUBLE: (T.DoubleType(), None),
    F.TYPE_FLOAT: (T.FloatType(), None),
    F.TYPE_INT64: (T.LongType(), None),
    F.TYPE_SINT64: (T.LongType(), None),
    F.TYPE_SFIXED64: (T.LongType(), None),
    F.TYPE_UINT64: (T.DecimalType(20, 0), Decimal),
    F.TYPE_FIXED64: (T.DecimalType(20, 0), Decimal),
    F.TYPE_INT32: (T.IntegerType(), None),
    F.TYPE_SINT32: (T.IntegerType(), None),
    F.TYPE_SFIXED32: (T.IntegerType(), None),
    F.TYPE_UINT32: (T.LongType(), None),
    F.TYPE_FIXED32: (T.LongType(), None),
    F.TYPE_BOOL: (T.BooleanType(), None),
    F.TYPE_STRING: (T.StringType(), None),
    F.TYPE_BYTES: (T.BinaryType(), None),
}
_JSON = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue", "Any"))
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


class ProtobufColumn:
    def __init__(self, schema: ProtobufSchema, message: str | None) -> None:
        self._messages = Messages(schema)
        try:
            self._name = self._messages.find(message)
        except (KeyError, StopIteration):
            raise NotTyped(
                f"the schema has no message {message or ''}, or several of that name; it has "
                f"{', '.join(self._messages.names)}"
            ) from None
        self.spark_type, convert = self._message(self._messages.descriptor(self._name), [])
        assert convert is not None
        self._convert = convert

    def reader_for(self, writer: RegisteredSchema, client: RegistryClient) -> Convert:
        schema: Any = client.parse(writer)
        messages, wanted, convert = Messages(schema), self._name, self._convert
        new = self._messages.new

        def value_of(framed: Framed) -> Any:
            indexes, payload = read_indexes(framed)
            name = messages.name_of(indexes)
            if name != wanted:
                raise Undecodable(f"it is a {name}, and the column is of {wanted}")
            return convert(read(new(wanted), payload))

        return value_of

    def _message(self, kind: Descriptor, open_: list[str]) -> tuple[T.DataType, Convert | None]:
        if kind.full_name == "google.protobuf.Timestamp":
            return T.TimestampType(), lambda value: value.seconds * 1_000_000 + value.nanos // 1000
        if kind.full_name in _JSON:
            return T.StringType(), self._as_json
        if kind.full_name in _WRAPPERS:
            inner, of_scalar = _SCALARS[kind.fields_by_name["value"].type]
            return inner, lambda value: value.value if of_scalar is None else of_scalar(value.value)
        if kind.full_name in open_:
            way = " -> ".join([*open_, kind.full_name])
            raise NotTyped(f"{kind.full_name} contains itself ({way}): Spark's types cannot be recursive")
        fields, takes = [], []
        for field in kind.fields:
            inside, convert = self._field(field, [*open_, kind.full_name])
            fields.append(T.StructField(field.name, inside))
            takes.append((field.name, field.has_presence, convert))

        def struct(message: Any) -> dict[str, Any]:
            found = {}
            for name, presence, convert in takes:
                if presence and not message.HasField(name):
                    continue
                value = getattr(message, name)
                found[name] = value if convert is None else convert(value)
            return found

        return T.StructType(fields), struct

    def _field(self, field: FieldDescriptor, open_: list[str]) -> tuple[T.DataType, Convert | None]:
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            key, _ = self._single(entry.fields_by_name["key"], open_)
            kind, convert = self._single(entry.fields_by_name["value"], open_)
            if convert is None:
                return T.MapType(key, kind), lambda values: list(values.items())
            return T.MapType(key, kind), lambda values: [(k, convert(v)) for k, v in values.items()]
        kind, convert = self._single(field, open_)
        if not field.is_repeated:
            return kind, convert
        if convert is None:
            return T.ArrayType(kind), list
        return T.ArrayType(kind), lambda values: [convert(value) for value in values]

    def _single(self, field: FieldDescriptor, open_: list[str]) -> tuple[T.DataType, Convert | None]:
        if field.message_type is not None:
            return self._message(field.message_type, open_)
        if field.enum_type is not None:
            names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
            return T.StringType(), lambda number: names.get(number, str(number))
        return _SCALARS[field.type]

    def _as_json(self, value: Any) -> str:
        found = json_format.MessageToDict(
            value, preserving_proto_field_name=True, descriptor_pool=self._messages.pool
        )
        return json.dumps(found, ensure_ascii=False, separators=(",", ":"))
