"""Kafka's JsonConverter: JSON with Connect's envelope (`schema` and `payload`), or plain."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, TypeVar

from penstock.connect.converters.base import Converter
from penstock.connect.converters.floats import shortest_single
from penstock.connect.converters.logical import from_number, to_number
from penstock.connect.errors import DataError
from penstock.connect.schemas import DECIMAL, Schema, SchemaField, Type, check
from penstock.connect.settings import REPLACE_NULL, AnyCase, ConfigType, Field, Importance

Read = TypeVar("Read")
# A placeholder for a decimal that is written as a number: the JSON encoder has no exact decimals.
_MARK = secrets.token_hex(8)
_MARKED = re.compile(f'"{_MARK}([^"]*)"')

_FLAT = frozenset(
    (Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64, Type.BOOLEAN, Type.STRING)
)


class JsonConverter(Converter):
    fields = (
        Field(
            "schemas.enable",
            ConfigType.BOOLEAN,
            True,
            "Include schemas within each of the serialized values and keys.",
            importance=Importance.HIGH,
            group="Schemas",
            display_name="Enable Schemas",
            width="MEDIUM",
        ),
        Field(
            "schemas.cache.size",
            ConfigType.INT,
            1000,
            "The maximum number of schemas that can be cached in this converter instance.",
            importance=Importance.HIGH,
            group="Schemas",
            display_name="Schema Cache Size",
            width="MEDIUM",
        ),
        Field(
            "decimal.format",
            default="BASE64",
            doc="How decimals are written: BASE64 or NUMERIC.",
            validator=AnyCase("BASE64", "NUMERIC"),
            importance=Importance.LOW,
            group="Serialization",
            display_name="Decimal Format",
            width="MEDIUM",
        ),
        replace(
            REPLACE_NULL,
            importance=Importance.LOW,
            group="Serialization",
            display_name="Replace null with default",
            width="MEDIUM",
        ),
    )

    def __init__(self, config: Mapping[str, str], *, is_key: bool = False) -> None:
        super().__init__(config, is_key=is_key)
        self._with_schemas: bool = self.settings["schemas.enable"]
        self._replace_null: bool = self.settings[REPLACE_NULL.name]
        self._numeric = self.settings["decimal.format"].upper() == "NUMERIC"
        self._written: dict[Schema, str] = {}
        self._read: dict[str, Schema | None] = {}

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if schema is None and value is None:
            return None
        try:
            if not self._with_schemas:
                if value is None:
                    return None
                return dump(value) if schema is None else self._text(schema, value)
            if schema is None:
                return b'{"schema":null,"payload":' + dump(value) + b"}"
            check(schema, value)
            payload = self._text(schema, value)
        except (TypeError, ValueError) as error:
            raise DataError(f"Converting Connect data to JSON failed: {error}") from error
        return b'{"schema":' + self._schema_text(schema).encode() + b',"payload":' + payload + b"}"

    def many_to_bytes(self, topic: str, schema: Schema | None, values: Sequence[Any]) -> list[bytes | None]:
        if schema is None or schema.type is not Type.STRING or not {str}.issuperset(map(type, values)):
            return super().many_to_bytes(topic, schema, values)
        head, tail = "", ""
        if self._with_schemas:
            head, tail = f'{{"schema":{self._schema_text(schema)},"payload":', "}"
        quote = json.encoder.encode_basestring  # the C function of the encoder that `dump` uses
        return [f"{head}{quote(value)}{tail}".encode() for value in values]

    def from_bytes(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        try:
            return read_json(data, self._read_envelope) if self._with_schemas else (None, json.loads(data))
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"Converting byte[] to Kafka Connect data failed due to serialization error: {error}"
            ) from error

    def _read_envelope(self, value: Any) -> tuple[Schema | None, Any]:
        if not isinstance(value, dict) or value.keys() != {"schema", "payload"}:
            raise DataError(
                'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not '
                "contain additional fields. If you are trying to deserialize plain JSON data, set "
                "schemas.enable=false in your converter configuration."
            )
        schema = self._schema_of(value["schema"])
        return schema, value["payload"] if schema is None else self.value_of(schema, value["payload"])

    # Values

    def _text(self, schema: Schema, value: Any) -> bytes:
        text = dump(self.json_of(schema, value))
        return _MARKED.sub(r"\1", text.decode()).encode() if self._numeric else text

    def json_of(self, schema: Schema, value: Any) -> Any:
        if value is None:
            if schema.default is not None and self._replace_null:
                return self.json_of(schema, schema.default)
            if schema.optional:
                return None
            raise DataError(
                f"Conversion error: null value for a required {schema.type.value} that has no default value"
            )
        kind = schema.type
        if schema.name is not None:
            if schema.name == DECIMAL and self._numeric:
                return f"{_MARK}{value:f}" if isinstance(value, Decimal) and value.is_finite() else value
            number = to_number(schema, value)
            if number is not None:
                return base64.b64encode(number).decode() if isinstance(number, bytes) else number
        if kind is Type.FLOAT32 and isinstance(value, float) and math.isfinite(value):
            return float(shortest_single(value))
        if kind in _FLAT:
            return value
        if kind is Type.STRUCT:
            return {each.name: self.json_of(each.schema, value.get(each.name)) for each in schema.fields}
        if kind is Type.BYTES:
            return base64.b64encode(value).decode()
        assert schema.value_schema is not None
        if kind is Type.ARRAY:
            return [self.json_of(schema.value_schema, item) for item in value]
        assert schema.key_schema is not None
        if schema.key_schema.type is Type.STRING:
            return {key: self.json_of(schema.value_schema, item) for key, item in value.items()}
        return [
            [self.json_of(schema.key_schema, key), self.json_of(schema.value_schema, item)]
            for key, item in value.items()
        ]

    def value_of(self, schema: Schema, value: Any) -> Any:
        if value is None:
            if schema.default is not None and self._replace_null:
                return schema.default
            if schema.optional:
                return None
            raise DataError(f"Invalid null value for required {schema.type.name} field")
        kind = schema.type
        try:
            if schema.name == DECIMAL and isinstance(value, (int, float, Decimal)):
                if isinstance(value, float):
                    raise Rounded
                return Decimal(value)
            if kind is Type.BYTES:
                value = base64.b64decode(value, validate=True)
            if schema.name is not None:
                logical = from_number(schema, value)
                if logical is not None:
                    return logical
            if kind is Type.STRUCT:
                return {each.name: self.value_of(each.schema, value.get(each.name)) for each in schema.fields}
            if kind is Type.ARRAY:
                assert schema.value_schema is not None
                return [self.value_of(schema.value_schema, item) for item in value]
            if kind is Type.MAP:
                assert schema.key_schema is not None and schema.value_schema is not None
                if isinstance(value, dict):
                    return {key: self.value_of(schema.value_schema, item) for key, item in value.items()}
                return {
                    self.value_of(schema.key_schema, key): self.value_of(schema.value_schema, item)
                    for key, item in value
                }
        except (TypeError, AttributeError, ValueError, binascii.Error) as error:
            raise DataError(f"{value!r} is not the JSON of a {kind.value}: {error}") from error
        if kind in (Type.FLOAT32, Type.FLOAT64):
            if type(value) is int or isinstance(value, Decimal) or value in _NOT_FINITE:
                return float(value)
        check(schema, value)
        return value

    # Schemas

    def _schema_text(self, schema: Schema) -> str:
        text = self._written.get(schema)
        if text is None:
            if len(self._written) >= self.settings["schemas.cache.size"]:
                self._written.clear()
            plain = json.dumps(self._schema_to_json(schema), ensure_ascii=False, separators=(",", ":"))
            text = self._written[schema] = _MARKED.sub(r"\1", plain)
        return text

    def _schema_to_json(self, schema: Schema) -> dict[str, Any]:
        found: dict[str, Any] = {"type": schema.type.value}
        if schema.type is Type.ARRAY and schema.value_schema is not None:
            found["items"] = self._schema_to_json(schema.value_schema)
        elif schema.type is Type.MAP and schema.key_schema is not None and schema.value_schema is not None:
            found["keys"] = self._schema_to_json(schema.key_schema)
            found["values"] = self._schema_to_json(schema.value_schema)
        elif schema.type is Type.STRUCT:
            found["fields"] = [
                {**self._schema_to_json(each.schema), "field": each.name} for each in schema.fields
            ]
        found["optional"] = schema.optional
        if schema.name is not None:
            found["name"] = schema.name
        if schema.version is not None:
            found["version"] = schema.version
        if schema.doc is not None:
            found["doc"] = schema.doc
        if schema.parameters:
            found["parameters"] = dict(schema.parameters)
        if schema.default is not None:
            found["default"] = self.json_of(schema, schema.default)
        return found

    def _schema_of(self, found: Any) -> Schema | None:
        if found is None:
            return None
        text = json.dumps(found, sort_keys=True, default=str)
        if text not in self._read:
            if len(self._read) >= self.settings["schemas.cache.size"]:
                self._read.clear()
            self._read[text] = self._schema_from_json(found)
        return self._read[text]

    def _schema_from_json(self, found: Any) -> Schema:
        try:
            kind = Type(found["type"])
            schema = Schema(
                kind,
                optional=bool(found.get("optional", False)),
                name=found.get("name"),
                version=found.get("version"),
                doc=found.get("doc"),
                parameters=tuple((str(k), str(v)) for k, v in (found.get("parameters") or {}).items()),
                key_schema=self._schema_from_json(found["keys"]) if kind is Type.MAP else None,
                value_schema=self._schema_from_json(found["values" if kind is Type.MAP else "items"])
                if kind in (Type.MAP, Type.ARRAY)
                else None,
                fields=tuple(
                    SchemaField(str(each["field"]), self._schema_from_json(each)) for each in found["fields"]
                )
                if kind is Type.STRUCT
                else (),
            )
            default = found.get("default")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"the schema of the JSON envelope cannot be read: {error!r}") from error
        return schema if default is None else schema.with_default(self.value_of(schema, default))


class Rounded(Exception):
    """A decimal was parsed as a float: the text must be parsed again."""


def read_json(data: bytes, read: Callable[[Any], Read]) -> Read:
    """Applies `read` to the JSON. Parses exact decimals, which is slower, only if `read` needs them."""
    try:
        return read(json.loads(data))
    except Rounded:
        return read(json.loads(data, parse_float=Decimal))


def dump(value: Any) -> bytes:
    try:
        return _dump(value)
    except ValueError:
        return _dump(_with_names(value))


def _dump(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain, allow_nan=False)
    return text.encode()


_NOT_FINITE = ("NaN", "Infinity", "-Infinity")


def _with_names(value: Any) -> Any:
    """The name of a number that is not finite, which JSON cannot express, as Kafka's converter writes it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _with_names(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_names(item) for item in value]
    return value


def _plain(value: Any) -> Any:
    """Encodes values without a schema whose type JSON lacks."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return str(value)
