"""The framing of Confluent's serializers, which identifies the schema of a key or a value.

Magic 0 and an id of four bytes before the payload, or, in a header of the record, magic 1 and a GUID. With
Protobuf the indexes of the message in its file follow.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from penstock.registry.errors import RegistryError

MAGIC_ID = 0
MAGIC_GUID = 1
HEADERS = {"key": "__key_schema_id", "value": "__value_schema_id"}

_ID = struct.Struct(">bI")
_MOST_INDEXES = 1000


class Undecodable(RegistryError):
    """The bytes name no schema, or cannot be read with the schema that they name."""

    def __init__(self, reason: str, schema_id: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.schema_id = schema_id


class Framed(NamedTuple):
    """A payload and the schema it was written with, by id or by GUID."""

    schema_id: int | None
    guid: str | None
    payload: memoryview
    prefix: memoryview
    """The bytes with the indexes of a Protobuf message: in the payload, or after the GUID in the header."""


def take_apart(data: bytes, part: str, headers: Iterable[tuple[str, bytes | None]] = ()) -> Framed:
    """`part` is `key` or `value`: each has a header of its own."""
    name = HEADERS[part]
    for key, value in headers:
        if key == name and value is not None:
            return _from_header(value, data)
    if len(data) < 5 or data[0] != MAGIC_ID:
        if len(data) >= 17 and data[0] == MAGIC_GUID:
            view = memoryview(data)
            return Framed(None, str(UUID(bytes=data[1:17])), view[17:], view[17:])
        shown = data[:8].hex(" ") + (" …" if len(data) > 8 else "")
        raise Undecodable(
            "it does not begin with the magic byte 0 and a schema id: it was not written with a schema "
            f"registry's serializer (its bytes: {shown or 'none'})"
        )
    rest = memoryview(data)[5:]
    return Framed(_ID.unpack_from(data)[1], None, rest, rest)


def _from_header(value: bytes, data: bytes) -> Framed:
    view = memoryview(value)
    if len(value) >= 17 and value[0] == MAGIC_GUID:
        return Framed(None, str(UUID(bytes=value[1:17])), memoryview(data), view[17:])
    if len(value) >= 5 and value[0] == MAGIC_ID:
        return Framed(_ID.unpack_from(value)[1], None, memoryview(data), view[5:])
    raise Undecodable(f"the header that names its schema cannot be read ({value[:20].hex(' ')})")


def frame(schema_id: int, payload: bytes, indexes: tuple[int, ...] | None = None) -> bytes:
    prefix = _ID.pack(MAGIC_ID, schema_id)
    if indexes is None:
        return prefix + payload
    return prefix + write_indexes(indexes) + payload


def write_indexes(indexes: tuple[int, ...]) -> bytes:
    """The first message of a file is the most frequent one, and is a single 0."""
    if indexes == (0,):
        return b"\0"
    out = bytearray()
    for number in (len(indexes), *indexes):
        zigzag = number << 1
        while zigzag > 0x7F:
            out.append(zigzag & 0x7F | 0x80)
            zigzag >>= 7
        out.append(zigzag)
    return bytes(out)


def read_indexes(framed: Framed) -> tuple[tuple[int, ...], memoryview]:
    """The indexes of a Protobuf message, and its bytes."""
    count, position = _varint(framed.prefix, 0)
    if not 0 <= count <= _MOST_INDEXES:
        raise Undecodable(f"it names its message with {count} indexes", framed.schema_id)
    indexes = []
    for _ in range(count):
        index, position = _varint(framed.prefix, position)
        indexes.append(index)
    payload = framed.payload if framed.payload is not framed.prefix else framed.prefix[position:]
    return tuple(indexes) or (0,), payload


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise Undecodable("the indexes that name its message cannot be read")
