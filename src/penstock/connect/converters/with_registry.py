"""Confluent's converters: Avro, JSON Schema or Protobuf, with the id of a registered schema before each.

The schema of a topic's values is registered under the subject `TOPIC-value`, of its keys under `TOPIC-key`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from penstock.connect.converters.base import Converter
from penstock.connect.converters.inferred import infer
from penstock.connect.errors import ConnectError, DataError, RetriableError
from penstock.connect.schemas import Schema, check
from penstock.connect.settings import ConfigType, Field, Importance

_Encode = Callable[[Any], bytes]
_Decode = Callable[[Any], tuple[Schema | None, Any]]


class _RegistryConverter(Converter):
    schema_type: ClassVar[str]
    fields = (
        Field(
            "schema.registry.url",
            ConfigType.STRING,
            doc="The schema registry; several with commas.",
            importance=Importance.HIGH,
        ),
        Field("basic.auth.user.info", ConfigType.PASSWORD, None, "User and password, as NAME:PASSWORD."),
        Field("auto.register.schemas", ConfigType.BOOLEAN, True, "Register schemas that are not registered."),
        Field(
            "use.latest.version",
            ConfigType.BOOLEAN,
            False,
            "Write with the latest version of the subject; only without auto.register.schemas.",
        ),
    )

    def __init__(self, config: Mapping[str, str], *, is_key: bool = False) -> None:
        super().__init__(config, is_key=is_key)
        from penstock.registry.client import RegistryClient, RegistrySettings

        self._client = RegistryClient(
            RegistrySettings(
                url=self.settings["schema.registry.url"], user=self.settings["basic.auth.user.info"]
            )
        )
        self._encoders: dict[tuple[str, Schema], tuple[int, _Encode]] = {}
        self._decoders: dict[tuple[int | None, str | None], _Decode] = {}

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        from penstock.registry.errors import RegistryError
        from penstock.registry.serdes.framing import frame

        if value is None and (schema is None or schema.optional):
            return None
        if schema is None:
            schema = infer(value)
        try:
            found = self._encoders.get((topic, schema))
            if found is None:
                found = self._encoders[topic, schema] = self._encoder_for(topic, schema)
            check(schema, value)
            return frame(found[0], found[1](value))
        except RegistryError as error:
            raise self._failure(error, f"{self.schema_type} data of topic {topic}") from error

    def from_bytes(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        from penstock.registry.errors import RegistryError
        from penstock.registry.serdes import writer_schema
        from penstock.registry.serdes.framing import take_apart

        if data is None:
            return None, None
        try:
            framed = take_apart(data, "key" if self.is_key else "value")
            key = (framed.schema_id, framed.guid)
            decode = self._decoders.get(key)
            if decode is None:
                registered = writer_schema(self._client, framed, self.schema_type)
                decode = self._decoders[key] = self._decoder(registered)
            return decode(framed)
        except RegistryError as error:
            raise self._failure(error, f"{self.schema_type} data of topic {topic}") from error

    def _encoder_for(self, topic: str, schema: Schema) -> tuple[int, _Encode]:
        subject = f"{topic}-{'key' if self.is_key else 'value'}"
        text = self._text(schema)
        body = {"schema": text, "schemaType": self.schema_type}
        if self.settings["auto.register.schemas"]:
            number = self._client.register(subject, body)
        elif self.settings["use.latest.version"]:
            latest = self._client.version(subject, "latest")
            number, text = latest.id, latest.schema
        else:
            number = self._client.look_up(subject, body).id
        return number, self._encoder(schema, text, number)

    def _failure(self, error: Exception, what: str) -> ConnectError:
        from penstock.registry.client import RequestRefused, Unreachable

        if isinstance(error, Unreachable) or (isinstance(error, RequestRefused) and error.status >= 500):
            return RetriableError(f"{what}: {error}")
        return DataError(f"{what}: {error}")

    def _text(self, schema: Schema) -> str:
        raise NotImplementedError

    def _encoder(self, schema: Schema, text: str, number: int) -> _Encode:
        raise NotImplementedError

    def _decoder(self, registered: Any) -> _Decode:
        raise NotImplementedError

    def close(self) -> None:
        self._client.close()


class AvroConverter(_RegistryConverter):
    schema_type = "AVRO"

    def _text(self, schema: Schema) -> str:
        from penstock.connect.converters.avro_data import to_avro

        return json.dumps(to_avro(schema))

    def _encoder(self, schema: Schema, text: str, number: int) -> _Encode:
        from penstock.connect.converters.avro_data import encoder

        return encoder(json.loads(text), schema)

    def _decoder(self, registered: Any) -> _Decode:
        from penstock.connect.converters.avro_data import decoder

        parsed: Any = self._client.parse(registered)
        decode = decoder(json.loads(parsed.formatted("resolved")))
        return lambda framed: decode(framed.payload)


class JsonSchemaConverter(_RegistryConverter):
    schema_type = "JSON"

    def _text(self, schema: Schema) -> str:
        from penstock.connect.converters.json_schema_data import to_json_schema

        return json.dumps(to_json_schema(schema))

    def _encoder(self, schema: Schema, text: str, number: int) -> _Encode:
        from penstock.connect.converters.json_schema_data import encoder

        return encoder(schema)

    def _decoder(self, registered: Any) -> _Decode:
        from penstock.connect.converters.json_schema_data import decoder

        decode = decoder(json.loads(registered.schema))
        return lambda framed: decode(framed.payload)


class ProtobufConverter(_RegistryConverter):
    schema_type = "PROTOBUF"

    def _text(self, schema: Schema) -> str:
        from penstock.connect.converters.protobuf_data import to_proto

        return to_proto(schema)

    def _encoder(self, schema: Schema, text: str, number: int) -> _Encode:
        from penstock.connect.converters.protobuf_data import encoder

        return encoder(self._client.parse(self._client.by_id(number)), schema)

    def _decoder(self, registered: Any) -> _Decode:
        from penstock.connect.converters.protobuf_data import decoder

        return decoder(self._client.parse(registered))
