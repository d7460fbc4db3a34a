"""Protobuf messages of a schema, created from its descriptors: found by index or name, converted to JSON and
back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError, EncodeError, Message

from penstock.registry.formats.protobuf.parsed import ProtobufSchema
from penstock.registry.serdes.framing import Framed, Undecodable, read_indexes, write_indexes
from penstock.registry.serdes.values import Unencodable

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor


class Messages:
    """The message types of one schema, in their own pool, so that two versions of a name do not conflict."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self.pool = descriptor_pool.DescriptorPool()
        for file in (*schema.imported, schema.raw):
            self.pool.AddSerializedFile(file.SerializeToString())
        self._file = schema.raw
        self._indexes: dict[str, tuple[int, ...]] = {}
        self._names: dict[tuple[int, ...], str] = {}
        prefix = f"{schema.raw.package}." if schema.raw.package else ""
        for index, kind in enumerate(schema.raw.message_type):
            self._add(kind, prefix, (index,))

    def _add(self, kind: Any, prefix: str, indexes: tuple[int, ...]) -> None:
        name = prefix + kind.name
        self._indexes[name], self._names[indexes] = indexes, name
        for index, nested in enumerate(kind.nested_type):
            self._add(nested, f"{name}.", (*indexes, index))

    @property
    def names(self) -> list[str]:
        return list(self._indexes)

    def name_of(self, indexes: tuple[int, ...]) -> str:
        name = self._names.get(indexes)
        if name is None:
            raise Undecodable(
                f"its schema has no message {list(indexes)}: it has {len(self._names)} messages"
            )
        return name

    def indexes_of(self, name: str) -> tuple[int, ...]:
        """KeyError if the schema has no such message."""
        return self._indexes[name]

    def find(self, name: str | None) -> str:
        """The full name of a message; of the first one if none is named. KeyError if there is none."""
        if name is None:
            return next(iter(self._indexes))
        matches = [full for full in self._indexes if full == name or full.endswith(f".{name}")]
        if len(matches) != 1:
            raise KeyError(name)
        return matches[0]

    def descriptor(self, name: str) -> Descriptor:
        return self.pool.FindMessageTypeByName(name)

    def new(self, name: str) -> Message:
        message: Message = message_factory.GetMessageClass(self.descriptor(name))()
        return message


def read(message: Message, payload: bytes | memoryview) -> Message:
    try:
        message.ParseFromString(bytes(payload))
    except (DecodeError, RuntimeError) as error:
        name = message.DESCRIPTOR.full_name
        raise Undecodable(f"its {len(payload)} bytes are not a {name}: {error}") from None
    return message


class ProtobufJson:
    """Messages of one schema as Protobuf's JSON, with the names of the .proto file."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self.messages = Messages(schema)

    def decode(self, framed: Framed) -> Any:
        indexes, payload = read_indexes(framed)
        message = read(self.messages.new(self.messages.name_of(indexes)), payload)
        try:
            return json_format.MessageToDict(
                message,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                descriptor_pool=self.messages.pool,
            )
        except (ValueError, TypeError, OverflowError, json_format.Error) as error:
            raise Undecodable(f"it has no form in JSON: {error}") from None

    def encode(self, value: Any, name: str) -> bytes:
        """The message with its indexes in front."""
        message = self.messages.new(name)
        try:
            json_format.ParseDict(value, message, descriptor_pool=self.messages.pool)
            payload: bytes = message.SerializeToString()
        except json_format.ParseError as error:
            raise Unencodable(str(error)[:300]) from None
        except (EncodeError, ValueError, TypeError, AttributeError) as error:
            raise Unencodable(f"it is not of type {name}: {str(error)[:300]}") from None
        return write_indexes(self.messages.indexes_of(name)) + payload
