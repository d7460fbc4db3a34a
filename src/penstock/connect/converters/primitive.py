"""Converters for values of one type: text, bytes and Kafka's own numbers; and headers as text."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from penstock.connect.converters.base import Converter
from penstock.connect.errors import DataError
from penstock.connect.schemas import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    Schema,
    Type,
)
from penstock.connect.settings import Field, Importance

_OPTIONAL_STRING = STRING_SCHEMA.as_optional()
_OPTIONAL_BYTES = BYTES_SCHEMA.as_optional()


class StringConverter(Converter):
    """Any value as its text; bytes are read as UTF-8."""

    fields = (
        Field(
            "converter.encoding",
            default="UTF-8",
            doc="The encoding of the text.",
            importance=Importance.HIGH,
            display_name="Encoding",
            width="MEDIUM",
        ),
    )

    def __init__(self, config: Mapping[str, str], *, is_key: bool = False) -> None:
        super().__init__(config, is_key=is_key)
        self._utf8 = self.settings["converter.encoding"].lower() in ("utf-8", "utf8")

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if type(value) is str:
            return value.encode(self.settings["converter.encoding"])
        return None if value is None else text_of(value).encode(self.settings["converter.encoding"])

    def from_bytes(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return _OPTIONAL_STRING, None
        try:
            return _OPTIONAL_STRING, data.decode(self.settings["converter.encoding"])
        except UnicodeDecodeError as error:
            raise DataError(f"Failed to deserialize string: {error}") from error

    def many_to_bytes(self, topic: str, schema: Schema | None, values: Sequence[Any]) -> list[bytes | None]:
        if self._utf8 and schema is not None and schema.type is Type.STRING and None not in values:
            return [value.encode() for value in values]
        return super().many_to_bytes(topic, schema, values)

    def many_from_bytes(
        self, topic: str, data: Sequence[bytes | None]
    ) -> tuple[Schema | None, list[Any]] | None:
        if self._utf8 and None not in data:
            return _OPTIONAL_STRING, [each.decode() for each in data]  # type: ignore[union-attr]
        return super().many_from_bytes(topic, data)


class ByteArrayConverter(Converter):
    """Bytes as they are."""

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None or type(value) is bytes:
            return value
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value)
        raise DataError(f"ByteArrayConverter is not compatible with objects of type {type(value).__name__}")

    def from_bytes(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        return _OPTIONAL_BYTES, data

    def many_from_bytes(
        self, topic: str, data: Sequence[bytes | None]
    ) -> tuple[Schema | None, list[Any]] | None:
        return _OPTIONAL_BYTES, list(data)


class _NumberConverter(Converter):
    layout: ClassVar[struct.Struct]
    schema: ClassVar[Schema]

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            return self.layout.pack(value)
        except struct.error as error:
            raise DataError(f"{type(self).__name__} does not take {value!r}: {error}") from error

    def from_bytes(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        schema = self.schema.as_optional()
        if data is None:
            return schema, None
        if len(data) != self.layout.size:
            raise DataError(
                f"Size of data received by {type(self).__name__} is not {self.layout.size}: {len(data)}"
            )
        return schema, self.layout.unpack(data)[0]


class ShortConverter(_NumberConverter):
    layout, schema = struct.Struct(">h"), INT16_SCHEMA


class IntegerConverter(_NumberConverter):
    layout, schema = struct.Struct(">i"), INT32_SCHEMA


class LongConverter(_NumberConverter):
    layout, schema = struct.Struct(">q"), INT64_SCHEMA


class FloatConverter(_NumberConverter):
    layout, schema = struct.Struct(">f"), FLOAT32_SCHEMA


class DoubleConverter(_NumberConverter):
    layout, schema = struct.Struct(">d"), FLOAT64_SCHEMA


class BooleanConverter(_NumberConverter):
    layout, schema = struct.Struct(">?"), BOOLEAN_SCHEMA


class SimpleHeaderConverter(Converter):
    """Writes headers as text, and reads the text as the number, boolean, list, map or string that it looks
    like.
    """

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        return None if value is None else text_of(value).encode()

    def from_bytes(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return BYTES_SCHEMA, data
        try:
            value = json.loads(text)
        except ValueError:
            return STRING_SCHEMA, text
        if isinstance(value, bool):
            return BOOLEAN_SCHEMA, value
        if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
            return INT64_SCHEMA, value
        if isinstance(value, float):
            return FLOAT64_SCHEMA, value
        if isinstance(value, str):
            return STRING_SCHEMA, value
        return None, value


def text_of(value: Any) -> str:
    """A value as text: as it is, or as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode("utf-8", "replace")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
