"""OffsetCommitKey (versions 0-1) and OffsetCommitValue (versions 0-4) of `__consumer_offsets`.

A key is the group followed by a tail with topic and partition: offsets are indexed by the tail, and values
are stored as in the log and parsed on demand. As in Kafka, keys are written in version 1 and values in
version 3, or in version 1 if the client set a retention time for the offset.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.errors import WireError
from penstock.wire.primitives import INT16, INT32, INT64, compact_nullable_string, skip_tags

KEY_VERSION = 1
_VALUE_3 = struct.Struct(">hqi")
_OFFSET = struct.Struct(">q")
_VERSION_3 = 3
_USUAL = b"\x00\x03"
_SHORTEST_USUAL = 24  # without metadata
_SHORTEST_TAIL = 6
_VERSION_1 = 1


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int  # -1: the group's retention applies


def key_prefix(group_id: str) -> bytes:
    """The first part of the keys of all offsets of a group."""
    raw = group_id.encode()
    return b"\x00\x01" + INT16.pack(len(raw)) + raw


def key_tail(topic: str, partition: int) -> bytes:
    raw = topic.encode()
    return INT16.pack(len(raw)) + raw + INT32.pack(partition)


def topic_tail(topic: str) -> bytes:
    """The common start of the tails of all partitions of a topic, without their last four bytes."""
    raw = topic.encode()
    return INT16.pack(len(raw)) + raw


def split_key(key: bytes) -> tuple[str, bytes]:
    """The group and the tail of a key of version 0 or 1."""
    stop = 4 + (key[2] << 8 | key[3])
    return str(key[4:stop], "utf-8"), key[stop:]


def read_tail(tail: bytes) -> tuple[str, int]:
    return str(tail[2:-4], "utf-8"), INT32.unpack_from(tail, len(tail) - 4)[0]


def encode_value(
    offset: int, leader_epoch: int, metadata: str, commit_timestamp: int, expire_timestamp: int = -1
) -> bytes:
    raw = metadata.encode()
    if expire_timestamp == -1:
        head = _VALUE_3.pack(_VERSION_3, offset, leader_epoch)
        return head + INT16.pack(len(raw)) + raw + INT64.pack(commit_timestamp)
    head = INT16.pack(_VERSION_1) + INT64.pack(offset) + INT16.pack(len(raw))
    return head + raw + struct.pack(">qq", commit_timestamp, expire_timestamp)


def check(tail: bytes, value: bytes) -> None:
    """Raises WireError for an invalid value: values are validated when they are loaded, because they are
    parsed later.
    """
    if len(tail) < _SHORTEST_TAIL or len(tail) != _SHORTEST_TAIL + (tail[0] << 8 | tail[1]):
        raise WireError("the key of an offset is cut short")
    if value[:2] == _USUAL and len(value) >= _SHORTEST_USUAL:
        if len(value) == _SHORTEST_USUAL + (value[14] << 8 | value[15]):
            return
    try:
        decode_value(value)
    except (struct.error, IndexError):
        raise WireError("an OffsetCommitValue is cut short") from None


def committed(value: bytes) -> int:
    """Only the offset, which has the same position in every version."""
    offset: int = _OFFSET.unpack_from(value, 2)[0]
    return offset


def decode_value(value: bytes) -> CommittedOffset:
    version, offset = struct.unpack_from(">hq", value)
    if not 0 <= version <= 4:
        raise WireError(f"an OffsetCommitValue of version {version}")
    pos, epoch, expires = 10, -1, -1
    if version >= 3:
        (epoch,) = INT32.unpack_from(value, pos)
        pos += 4
    if version >= 4:
        metadata, pos = compact_nullable_string(value, pos, len(value))
        (timestamp,) = INT64.unpack_from(value, pos)
        skip_tags(value, pos + 8, len(value))
        return CommittedOffset(offset, epoch, metadata or "", timestamp, -1)
    (size,) = INT16.unpack_from(value, pos)
    pos += 2
    text = str(value[pos : pos + max(size, 0)], "utf-8", "replace")
    (timestamp,) = INT64.unpack_from(value, pos + size)
    if version == 1:
        (expires,) = INT64.unpack_from(value, pos + size + 8)
    return CommittedOffset(offset, epoch, text, timestamp, expires)
