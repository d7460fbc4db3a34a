"""Connect's schemas as Protobuf messages and back. Values go through Protobuf's own JSON."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from penstock.connect.converters.json import JsonConverter
from penstock.connect.errors import DataError
from penstock.connect.schemas import (
    TIMESTAMP,
    TIMESTAMP_SCHEMA,
    Schema,
    SchemaField,
    Type,
    array_schema,
    map_schema,
)

_TO_PROTO = {
    Type.INT8: "int32",
    Type.INT16: "int32",
    Type.INT32: "int32",
    Type.INT64: "int64",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "bool",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_TIMESTAMP = "google.protobuf.Timestamp"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def to_proto(schema: Schema) -> str:
    if schema.type is not Type.STRUCT:
        raise DataError("the Protobuf converter takes structs only")
    package, _, name = (schema.name or "ConnectDefault1").rpartition(".")
    lines: list[str] = []
    uses: set[str] = set()
    _message(schema, name, lines, "", uses)
    head = ['syntax = "proto3";']
    if package:
        head.append(f"package {package};")
    if _TIMESTAMP in uses:
        head.append('import "google/protobuf/timestamp.proto";')
    return "\n".join([*head, "", *lines, ""])


def _message(schema: Schema, name: str, lines: list[str], indent: str, uses: set[str]) -> None:
    lines.append(f"{indent}message {name} {{")
    inner = indent + "  "
    taken: dict[str, Schema | None] = {name: None, **{each.name: None for each in schema.fields}}
    for number, each in enumerate(schema.fields, 1):
        if not _NAME.fullmatch(each.name):
            raise DataError(f"{each.name!r} cannot be the name of a Protobuf field")
        field, label = each.schema, ""
        if field.type is Type.ARRAY:
            assert field.value_schema is not None
            field, label = field.value_schema, "repeated "
        elif field.optional and field.type in _TO_PROTO and field.name != TIMESTAMP:
            label = "optional "
        if field.type is Type.MAP and not label:
            assert field.key_schema is not None and field.value_schema is not None
            kind = (
                f"map<{_kind(field.key_schema, each.name, lines, inner, uses, taken)}, "
                f"{_kind(field.value_schema, each.name, lines, inner, uses, taken)}>"
            )
        else:
            kind = _kind(field, each.name, lines, inner, uses, taken)
        lines.append(f"{inner}{label}{kind} {each.name} = {number};")
    lines.append(f"{indent}}}")


def _kind(
    schema: Schema,
    field: str,
    lines: list[str],
    indent: str,
    uses: set[str],
    taken: dict[str, Schema | None],
) -> str:
    if schema.name == TIMESTAMP:
        uses.add(_TIMESTAMP)
        return _TIMESTAMP
    if schema.type is Type.STRUCT:
        name = (schema.name or f"{field[:1].upper()}{field[1:]}Value").rpartition(".")[2]
        plain = schema.as_required()
        # A field and a message of one scope must differ in their names.
        while name in taken and taken[name] != plain:
            name += "Value"
        if name not in taken:
            taken[name] = plain
            _message(schema, name, lines, indent, uses)
        return name
    if schema.type not in _TO_PROTO:
        raise DataError(f"the Protobuf converter has no type for a {schema.type.value} inside another one")
    return _TO_PROTO[schema.type]


def encoder(parsed: Any, schema: Schema) -> Callable[[Any], bytes]:
    from penstock.registry.serdes.protobuf import ProtobufJson

    serde = ProtobufJson(parsed)
    name = serde.messages.find(schema.name or "ConnectDefault1")
    plain = JsonConverter({"schemas.enable": "false"})

    def encode(value: Any) -> bytes:
        return serde.encode(_to_json(plain, schema, value), name)

    return encode


def _to_json(plain: JsonConverter, schema: Schema, value: Any) -> Any:
    if value is None:
        return None
    if schema.name == TIMESTAMP:
        return value.isoformat().replace("+00:00", "Z")
    if schema.type is Type.STRUCT:
        pairs = ((each.name, _to_json(plain, each.schema, value.get(each.name))) for each in schema.fields)
        return {name: item for name, item in pairs if item is not None}
    if schema.type is Type.ARRAY and schema.value_schema is not None:
        return [_to_json(plain, schema.value_schema, item) for item in value]
    if schema.type is Type.MAP and schema.value_schema is not None:
        return {str(key): _to_json(plain, schema.value_schema, item) for key, item in value.items()}
    return plain.json_of(schema, value)


def decoder(parsed: Any) -> Callable[[Any], tuple[Schema | None, Any]]:
    from penstock.registry.serdes.framing import read_indexes
    from penstock.registry.serdes.protobuf import Messages, read

    messages = Messages(parsed)
    schemas: dict[str, Schema] = {}

    def decode(framed: Any) -> tuple[Schema | None, Any]:
        indexes, payload = read_indexes(framed)
        name = messages.name_of(indexes)
        message = read(messages.new(name), payload)
        if name not in schemas:
            schemas[name] = _schema_of(message.DESCRIPTOR, ())
        return schemas[name], _value_of(message)

    return decode


def _value_of(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            found[field.name] = None
            continue
        value = getattr(message, field.name)
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            inner = kind.fields_by_name["value"].message_type
            found[field.name] = {key: _single(inner, item) for key, item in value.items()}
        elif field.is_repeated:
            found[field.name] = [_named(field, _single(kind, item)) for item in value]
        else:
            found[field.name] = _named(field, _single(kind, value))
    return found


def _single(kind: Any, value: Any) -> Any:
    if kind is None:
        return value
    if kind.full_name == _TIMESTAMP:
        import datetime

        return value.ToDatetime(tzinfo=datetime.UTC)
    return _value_of(value)


def _named(field: Any, value: Any) -> Any:
    """Enums by their names."""
    if field.enum_type is None:
        return value
    found = field.enum_type.values_by_number.get(value)
    return str(value) if found is None else found.name


def _schema_of(descriptor: Any, outer: tuple[str, ...]) -> Schema:
    if descriptor.full_name in outer:
        raise DataError(f"the message {descriptor.full_name} contains itself, which Connect's schemas cannot")
    outer = (*outer, descriptor.full_name)
    fields = []
    for field in descriptor.fields:
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            entry = kind.fields_by_name
            schema = map_schema(_field_schema(entry["key"], outer), _field_schema(entry["value"], outer))
        elif field.is_repeated:
            schema = array_schema(_field_schema(field, outer))
        else:
            schema = _field_schema(field, outer)
            if field.has_presence:
                schema = schema.as_optional()
        fields.append(SchemaField(field.name, schema))
    return Schema(Type.STRUCT, name=descriptor.full_name, fields=tuple(fields))


def _field_schema(field: Any, outer: tuple[str, ...]) -> Schema:
    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return TIMESTAMP_SCHEMA
        return _schema_of(field.message_type, outer)
    kinds = {
        field.CPPTYPE_INT32: Type.INT32,
        field.CPPTYPE_UINT32: Type.INT64,
        field.CPPTYPE_INT64: Type.INT64,
        field.CPPTYPE_UINT64: Type.INT64,
        field.CPPTYPE_FLOAT: Type.FLOAT32,
        field.CPPTYPE_DOUBLE: Type.FLOAT64,
        field.CPPTYPE_BOOL: Type.BOOLEAN,
        field.CPPTYPE_ENUM: Type.STRING,
    }
    if field.cpp_type == field.CPPTYPE_STRING:
        return Schema(Type.BYTES if field.type == field.TYPE_BYTES else Type.STRING)
    return Schema(kinds[field.cpp_type])
