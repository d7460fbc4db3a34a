"""Keys and values in the framing of Confluent's serializers, as JSON: for `penstock produce` and `consume`.

`framing.py` handles the magic byte, schema ids and message indexes. Each format has a module that converts
between bytes and JSON of one schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.registry.client import (
    SCHEMA_NOT_FOUND,
    MissingLibrary,
    RegisteredSchema,
    RegistryClient,
    RequestRefused,
)
from penstock.registry.formats import InvalidSchema
from penstock.registry.serdes.framing import Framed, Undecodable, frame, take_apart
from penstock.registry.serdes.values import Unencodable

SCHEMA_TYPES = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF"}

__all__ = ["SCHEMA_TYPES", "Decoder", "Encoder", "Undecodable", "Unencodable"]


def writer_schema(
    client: RegistryClient, framed: Framed, schema_type: str, subject: str = ""
) -> RegisteredSchema:
    """The schema that a payload names; Undecodable if it does not exist or has another type."""
    try:
        if framed.schema_id is not None:
            found = client.by_id(framed.schema_id, subject)
        else:
            found = client.by_guid(framed.guid or "")
    except RequestRefused as error:
        if error.code != SCHEMA_NOT_FOUND and error.status != 404:
            raise
        what = f"GUID {framed.guid}" if framed.schema_id is None else f"id {framed.schema_id}"
        raise Undecodable(
            f"the registry at {client.url} has no schema with the {what}", framed.schema_id
        ) from None
    if found.schema_type != schema_type:
        raise Undecodable(
            f"its schema {framed.schema_id or framed.guid} is of type {found.schema_type}, not {schema_type}",
            framed.schema_id,
        )
    return found


class Decoder:
    """Reads keys or values of any schema of one type."""

    def __init__(self, client: RegistryClient, schema_type: str, part: str, subject: str = "") -> None:
        self._client = client
        self._type = schema_type
        self._part = part
        self._subject = subject
        self._serdes: dict[tuple[int | None, str | None], Any] = {}

    def decode(self, data: bytes, headers: Iterable[tuple[str, bytes | None]] = ()) -> tuple[Any, int | None]:
        """The value as JSON, and the id of its schema. Undecodable has the reason if it cannot be read."""
        framed = take_apart(data, self._part, headers)
        key = (framed.schema_id, framed.guid)
        try:
            serde = self._serdes.get(key)
            if serde is None:
                serde = self._serdes[key] = self._serde(framed)
            return serde.decode(framed if self._type == "PROTOBUF" else framed.payload), framed.schema_id
        except Undecodable as error:
            error.schema_id = framed.schema_id
            raise

    def _serde(self, framed: Framed) -> Any:
        found = writer_schema(self._client, framed, self._type, self._subject)
        try:
            return serde_of(self._client, found)
        except InvalidSchema as error:
            raise Undecodable(
                f"its schema {framed.schema_id or framed.guid} cannot be read: {error}"
            ) from None


def serde_of(client: RegistryClient, schema: RegisteredSchema) -> Any:
    """The converter for the type of the schema; InvalidSchema if the schema cannot be parsed."""
    try:
        if schema.schema_type == "JSON":
            from penstock.registry.serdes.json_schema import CheckedJson

            return CheckedJson(schema.schema, client.resolve(schema))
        parsed: Any = client.parse(schema)
        if schema.schema_type == "AVRO":
            from penstock.registry.serdes.avro import AvroJson

            return AvroJson(parsed)
        from penstock.registry.serdes.protobuf import ProtobufJson

        return ProtobufJson(parsed)
    except ImportError as error:
        raise MissingLibrary(f"A schema of type {schema.schema_type}", error) from error


class Encoder:
    """Writes keys or values of one schema; for Protobuf, of one of its messages."""

    def __init__(self, client: RegistryClient, schema: RegisteredSchema, message: str | None = None) -> None:
        self.schema = schema
        self._serde = serde_of(client, schema)
        self._message = None
        if schema.schema_type == "PROTOBUF":
            names = self._serde.messages.names
            try:
                self._message = self._serde.messages.find(message)
            except (KeyError, StopIteration):
                raise InvalidSchema(
                    f"the schema has no message {message or ''}, or several; it has {', '.join(names)}"
                ) from None

    def encode(self, value: Any) -> bytes:
        """Unencodable names the invalid field."""
        try:
            if self._message is not None:
                return frame(self.schema.id, self._serde.encode(value, self._message))
            return frame(self.schema.id, self._serde.encode(value))
        except RecursionError:
            raise Unencodable("it is nested too deeply") from None
        except UnicodeEncodeError:
            raise Unencodable("it holds half of a surrogate pair, which is not text") from None
