"""Shared by the hand-written and the generated codecs: varints, strings, tagged fields, ids.

Readers take (buf, pos) and return (value, new pos). They may read past the end of the frame, but past the end
of the buffer they raise IndexError or struct.error. Positions only increase, and readers of arrays and
strings compare their size with the remaining bytes, so one check of the final position detects every overrun.
"""

from __future__ import annotations

import struct
from uuid import UUID

from penstock.errors import WireError

Buffer = bytes | bytearray | memoryview

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")
ZERO_UUID = UUID(int=0)
# The limit of array items in one request: one or two bytes can become an object of a hundred bytes, and each
# takes microseconds of the broker's one thread. Responses of brokers are not limited.
MAX_ITEMS = 100_000
MAX_ANSWERED_ITEMS = 1_000_000
_UUIDS_KEPT = 4096
_uuids: dict[bytes, UUID] = {bytes(16): ZERO_UUID}


def too_many_items(limit: int = MAX_ITEMS) -> WireError:
    return WireError(f"a message has more than {limit} items in its arrays")


def uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits."""
    byte = buf[pos]
    pos += 1
    if byte < 128:
        return byte, pos
    value = byte & 127
    for shift in (7, 14, 21, 28):
        byte = buf[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> 32:
                break
            return value, pos
    raise WireError("a varint is longer than 32 bits")


def uuid_at(buf: Buffer, pos: int) -> UUID:
    """The UUID at pos. Cached, because creating one takes a microsecond and clients repeat the same few."""
    raw = bytes(buf[pos : pos + 16])
    found = _uuids.get(raw)
    if found is None:
        if len(raw) != 16:
            raise WireError("a UUID is cut short")
        if len(_uuids) >= _UUIDS_KEPT:
            _uuids.clear()
            _uuids[bytes(16)] = ZERO_UUID
        found = _uuids[raw] = UUID(bytes=raw)
    return found


def text(buf: Buffer, pos: int, stop: int) -> str:
    try:
        return str(buf[pos:stop], "utf-8")
    except UnicodeDecodeError:
        raise WireError("a string is not UTF-8") from None


def nullable_string(buf: Buffer, pos: int, end: int) -> tuple[str | None, int]:
    """A string with an int16 length, -1 for null."""
    (size,) = INT16.unpack_from(buf, pos)
    pos += 2
    if size < 0:
        if size != -1:
            raise WireError(f"a string has length {size}")
        return None, pos
    stop = pos + size
    if stop > end:
        raise WireError(f"a string of {size} bytes goes past the end of the request")
    return text(buf, pos, stop), stop


def compact_nullable_string(buf: Buffer, pos: int, end: int) -> tuple[str | None, int]:
    size, pos = uvarint(buf, pos)
    if size == 0:
        return None, pos
    stop = pos + size - 1
    if stop > end:
        raise WireError(f"a string of {size - 1} bytes goes past the end of the request")
    return text(buf, pos, stop), stop


def skip_tags(buf: Buffer, pos: int, end: int) -> int:
    """Skip unknown tagged fields."""
    number, pos = uvarint(buf, pos)
    if number > end - pos:
        raise WireError(f"{number} tagged fields do not fit in {end - pos} bytes")
    for _ in range(number):
        _, pos = uvarint(buf, pos)
        size, pos = uvarint(buf, pos)
        pos += size
        if pos > end:
            raise WireError("a tagged field goes past the end of the request")
    return pos


def encode_uvarint(value: int) -> bytes:
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_string(value: str) -> bytes:
    raw = value.encode()
    return INT16.pack(len(raw)) + raw


def encode_nullable_string(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else encode_string(value)


def encode_compact_string(value: str) -> bytes:
    raw = value.encode()
    return encode_uvarint(len(raw) + 1) + raw


def encode_compact_nullable_string(value: str | None) -> bytes:
    return b"\x00" if value is None else encode_compact_string(value)
