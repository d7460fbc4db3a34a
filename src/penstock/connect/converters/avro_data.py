"""Connect's schemas as Avro's and back, with Confluent's properties (`connect.name`)."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from penstock.connect.errors import DataError
from penstock.connect.schemas import (
    DATE,
    DATE_SCHEMA,
    DECIMAL,
    TIME,
    TIME_SCHEMA,
    TIMESTAMP,
    TIMESTAMP_SCHEMA,
    Schema,
    SchemaField,
    Type,
    array_schema,
    decimal_schema,
    map_schema,
)

_TO_AVRO = {
    Type.INT8: "int",
    Type.INT16: "int",
    Type.INT32: "int",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_FROM_AVRO = {
    "int": Type.INT32,
    "long": Type.INT64,
    "float": Type.FLOAT32,
    "double": Type.FLOAT64,
    "boolean": Type.BOOLEAN,
    "string": Type.STRING,
    "bytes": Type.BYTES,
    "enum": Type.STRING,
    "fixed": Type.BYTES,
}
_LOGICAL = {DATE: "date", TIME: "time-millis", TIMESTAMP: "timestamp-millis"}
_KNOWN_LOGICAL = ("decimal", "date", "time-millis", "timestamp-millis")
_DEFAULT_NAME = "ConnectDefault"
_ENTRY = "io.confluent.connect.avro.MapEntry"


def to_avro(schema: Schema) -> Any:
    return _Writer().write(schema)


class _Writer:
    def __init__(self) -> None:
        self._names: dict[str, Schema] = {}
        self._unnamed = 0

    def write(self, schema: Schema) -> Any:
        avro = self._plain(schema)
        if not schema.optional:
            return avro
        return [avro, "null"] if schema.default is not None else ["null", avro]

    def _plain(self, schema: Schema) -> Any:
        if schema.type is Type.STRUCT:
            return self._record(schema)
        more: dict[str, Any] = {}
        if schema.name is not None:
            more["connect.name"] = schema.name
        if schema.version is not None:
            more["connect.version"] = schema.version
        if schema.parameters:
            more["connect.parameters"] = dict(schema.parameters)
        if schema.type in (Type.INT8, Type.INT16):
            more["connect.type"] = schema.type.value
        if schema.name == DECIMAL:
            scale = int(schema.parameter("scale") or 0)
            precision = int(schema.parameter("connect.decimal.precision") or 64)
            more |= {"logicalType": "decimal", "precision": precision, "scale": scale}
        elif schema.name in _LOGICAL:
            more["logicalType"] = _LOGICAL[schema.name]
        if schema.type is Type.ARRAY:
            assert schema.value_schema is not None
            return {"type": "array", "items": self.write(schema.value_schema), **more}
        if schema.type is Type.MAP:
            assert schema.key_schema is not None and schema.value_schema is not None
            if schema.key_schema.type is not Type.STRING or schema.key_schema.optional:
                raise DataError("the Avro converter takes maps whose keys are strings")
            return {"type": "map", "values": self.write(schema.value_schema), **more}
        name = _TO_AVRO[schema.type]
        return {"type": name, **more} if more else name

    def _record(self, schema: Schema) -> Any:
        name = schema.name
        if name is None:
            self._unnamed += 1
            name = _DEFAULT_NAME if self._unnamed == 1 else f"{_DEFAULT_NAME}{self._unnamed}"
        elif name in self._names:
            return name
        self._names[name] = schema
        namespace, _, last = name.rpartition(".")
        record: dict[str, Any] = {"type": "record", "name": last}
        if namespace:
            record["namespace"] = namespace
        fields = []
        for each in schema.fields:
            field: dict[str, Any] = {"name": each.name, "type": self.write(each.schema)}
            if each.schema.doc:
                field["doc"] = each.schema.doc
            if each.schema.default is not None and each.schema.type in _TO_AVRO and not each.schema.name:
                field["default"] = _default(each.schema.default)
            elif each.schema.optional and each.schema.default is None:
                field["default"] = None
            fields.append(field)
        record["fields"] = fields
        if schema.version is not None:
            record["connect.version"] = schema.version
        if schema.name is not None:
            record["connect.name"] = schema.name
        return record


def _default(value: Any) -> Any:
    return bytes(value).decode("latin-1") if isinstance(value, (bytes, bytearray, memoryview)) else value


def encoder(avro: Any, schema: Schema) -> Callable[[Any], bytes]:
    import fastavro

    try:
        parsed = fastavro.parse_schema(avro)
    except Exception as error:  # fastavro's errors have no common base class
        raise DataError(f"the schema is not an Avro schema: {error}") from error

    def encode(value: Any) -> bytes:
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, parsed, value)
        except (ValueError, TypeError, KeyError, OverflowError, IndexError) as error:
            raise DataError(f"the value does not fit its Avro schema: {error}") from error
        return out.getvalue()

    return encode


def schema_of(avro: Any) -> Schema:
    """Converts an Avro schema to Connect's. Raises DataError if Connect has no such type."""
    return _Reader().read(avro)


def decoder(avro: Any) -> Callable[[memoryview], tuple[Schema | None, Any]]:
    import fastavro

    schema = schema_of(avro)
    parsed = fastavro.parse_schema(_without_other_logical(avro))

    def decode(payload: memoryview) -> tuple[Schema | None, Any]:
        try:
            return schema, fastavro.schemaless_reader(io.BytesIO(payload), parsed, None)
        except (ValueError, TypeError, KeyError, EOFError, OverflowError, IndexError) as error:
            raise DataError(f"the bytes are not of their Avro schema: {error}") from error

    return decode


def _without_other_logical(avro: Any) -> Any:
    """Connect has only millisecond times: a finer time stays a number, as with Confluent's converter."""
    if isinstance(avro, list):
        return [_without_other_logical(each) for each in avro]
    if not isinstance(avro, dict):
        return avro
    return {
        key: _without_other_logical(value) if key in ("type", "items", "values", "fields") else value
        for key, value in avro.items()
        if key != "logicalType" or value in _KNOWN_LOGICAL
    }


class _Reader:
    def __init__(self) -> None:
        self._names: dict[str, Schema] = {}

    def read(self, avro: Any, namespace: str = "") -> Schema:
        if isinstance(avro, list):
            branches = [each for each in avro if each != "null"]
            if len(branches) != 1:
                raise DataError("the Avro converter takes unions of null and one other type")
            schema = self.read(branches[0], namespace)
            return schema.as_optional() if len(branches) < len(avro) else schema
        if isinstance(avro, str):
            if avro in _FROM_AVRO:
                return Schema(_FROM_AVRO[avro])
            found = self._names.get(avro) or self._names.get(f"{namespace}.{avro}")
            if found is None:
                raise DataError(f"the Avro schema names {avro}, which is recursive or undefined")
            return found
        return self._object(avro, namespace)

    def _object(self, avro: dict[str, Any], namespace: str) -> Schema:
        kind = avro["type"]
        if isinstance(kind, (dict, list)):
            return self.read(kind, namespace)
        logical = avro.get("logicalType")
        if logical == "decimal":
            return decimal_schema(int(avro.get("scale", 0)))
        if logical == "date":
            return DATE_SCHEMA
        if logical == "time-millis":
            return TIME_SCHEMA
        if logical == "timestamp-millis":
            return TIMESTAMP_SCHEMA
        common: dict[str, Any] = {
            "name": avro.get("connect.name"),
            "version": avro.get("connect.version"),
            "parameters": tuple((avro.get("connect.parameters") or {}).items()),
        }
        if kind == "array":
            return array_schema(self.read(avro["items"], namespace))
        if kind == "map":
            return map_schema(Schema(Type.STRING), self.read(avro["values"], namespace))
        if kind in ("record", "enum", "fixed"):
            name = avro["name"]
            own = avro.get("namespace", namespace)
            full = name if "." in name or not own else f"{own}.{name}"
            own = full.rpartition(".")[0]
            if kind == "record":
                fields = tuple(SchemaField(each["name"], self._field(each, own)) for each in avro["fields"])
                schema = Schema(Type.STRUCT, name=full, version=avro.get("connect.version"), fields=fields)
            else:
                schema = Schema(_FROM_AVRO[kind])
            self._names[full] = schema
            return schema
        if kind not in _FROM_AVRO:
            return self.read(kind, namespace)
        given = avro.get("connect.type")
        return Schema(Type(given) if given in ("int8", "int16") else _FROM_AVRO[kind], **common)

    def _field(self, field: dict[str, Any], namespace: str) -> Schema:
        schema = self.read(field["type"], namespace)
        default = field.get("default")
        if default is None or schema.name is not None or schema.type not in _TO_AVRO:
            return schema
        return schema.with_default(default.encode("latin-1") if schema.type is Type.BYTES else default)
