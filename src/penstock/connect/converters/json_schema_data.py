"""Connect's schemas as JSON Schema and back, with Confluent's properties (`connect.type`, `title`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from penstock.connect.converters.json import JsonConverter, read_json
from penstock.connect.errors import DataError
from penstock.connect.schemas import Schema, SchemaField, Type, array_schema, map_schema

_TO_JSON = {
    Type.INT8: "integer",
    Type.INT16: "integer",
    Type.INT32: "integer",
    Type.INT64: "integer",
    Type.FLOAT32: "number",
    Type.FLOAT64: "number",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "string",
}
_CONNECT_TYPE = {
    Type.INT8: "int8",
    Type.INT16: "int16",
    Type.INT32: "int32",
    Type.INT64: "int64",
    Type.FLOAT32: "float32",
    Type.FLOAT64: "float64",
    Type.BYTES: "bytes",
    Type.MAP: "map",
}
_BY_CONNECT_TYPE = {text: kind for kind, text in _CONNECT_TYPE.items()}
_FROM_JSON = {
    "integer": Type.INT64,
    "number": Type.FLOAT64,
    "boolean": Type.BOOLEAN,
    "string": Type.STRING,
}


def to_json_schema(schema: Schema, index: int | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if schema.type is Type.STRUCT:
        found["type"] = "object"
        found["properties"] = {
            each.name: to_json_schema(each.schema, at) for at, each in enumerate(schema.fields)
        }
    elif schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        found |= {"type": "array", "items": to_json_schema(schema.value_schema)}
    elif schema.type is Type.MAP:
        assert schema.key_schema is not None and schema.value_schema is not None
        if schema.key_schema.type is not Type.STRING:
            raise DataError("the JSON Schema converter takes maps whose keys are strings")
        found |= {"type": "object", "additionalProperties": to_json_schema(schema.value_schema)}
    else:
        found["type"] = _TO_JSON[schema.type]
    if schema.type in _CONNECT_TYPE:
        found["connect.type"] = _CONNECT_TYPE[schema.type]
    if schema.name is not None:
        found["title"] = schema.name
    if schema.version is not None:
        found["connect.version"] = schema.version
    if schema.parameters:
        found["connect.parameters"] = dict(schema.parameters)
    if schema.doc:
        found["description"] = schema.doc
    if schema.optional:
        found = {"oneOf": [{"type": "null"}, found]}
    if index is not None:
        found["connect.index"] = index
    return found


def from_json_schema(found: Any) -> Schema:
    """Raises DataError if Connect has no such type."""
    branches = [each for each in found.get("oneOf") or found.get("anyOf") or () if each != {"type": "null"}]
    if branches:
        if len(branches) > 1:
            raise DataError("the JSON Schema converter takes oneOf of null and one other type")
        return from_json_schema(branches[0]).as_optional()
    kind = found.get("type")
    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        if len(others) != 1:
            raise DataError(f"the JSON Schema converter takes one type, not {kind}")
        return from_json_schema({**found, "type": others[0]}).as_optional()
    common: dict[str, Any] = {
        "name": found.get("title"),
        "version": found.get("connect.version"),
        "doc": found.get("description"),
        "parameters": tuple((str(k), str(v)) for k, v in (found.get("connect.parameters") or {}).items()),
    }
    if kind == "object":
        if "properties" not in found and isinstance(found.get("additionalProperties"), dict):
            return map_schema(Schema(Type.STRING), from_json_schema(found["additionalProperties"]))
        properties = found.get("properties") or {}
        required = found.get("required")
        ordered = sorted(properties.items(), key=lambda item: item[1].get("connect.index", len(properties)))
        fields = []
        for name, each in ordered:
            schema = from_json_schema(each)
            if "connect.index" not in each and name not in (required or ()):
                schema = schema.as_optional()
            fields.append(SchemaField(name, schema))
        return Schema(Type.STRUCT, fields=tuple(fields), **common)
    if kind == "array":
        return array_schema(from_json_schema(found.get("items") or {"type": "string"}))
    if kind not in _FROM_JSON:
        raise DataError(f"the JSON Schema converter has no type for {json.dumps(found)[:100]}")
    return Schema(_BY_CONNECT_TYPE.get(found.get("connect.type", ""), _FROM_JSON[kind]), **common)


def _plain() -> JsonConverter:
    return JsonConverter({"schemas.enable": "false"})


def encoder(schema: Schema) -> Callable[[Any], bytes]:
    plain = _plain()
    return lambda value: plain.to_bytes("", schema, value) or b"null"


def decoder(text: Any) -> Callable[[memoryview], tuple[Schema | None, Any]]:
    schema = from_json_schema(text)
    plain = _plain()

    def decode(payload: memoryview) -> tuple[Schema | None, Any]:
        try:
            return schema, read_json(bytes(payload), lambda value: plain.value_of(schema, value))
        except ValueError as error:
            raise DataError(f"it is not JSON: {error}") from error

    return decode
