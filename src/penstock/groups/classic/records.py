"""GroupMetadataKey (version 2) and GroupMetadataValue (versions 0-4) of `__consumer_offsets`.

Value version 3 is written, as in Kafka: the newest that older brokers can read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from penstock.errors import WireError
from penstock.wire.primitives import (
    INT16,
    INT32,
    INT64,
    compact_nullable_string,
    encode_nullable_string,
    encode_string,
    nullable_string,
    skip_tags,
    uvarint,
)

KEY_VERSION = 2
_VALUE_VERSION = 3


class MemberMetadata(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int  # -1 if the record is older than the field
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadata(NamedTuple):
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp: int  # -1 where the record is older than the field
    members: tuple[MemberMetadata, ...]


def encode_key(group_id: str) -> bytes:
    return b"\x00\x02" + encode_string(group_id)


def decode_key(key: bytes) -> str:
    group_id, _ = nullable_string(key, 2, len(key))
    return group_id or ""


def _bytes(value: bytes) -> bytes:
    return INT32.pack(len(value)) + value


def encode_value(group: GroupMetadata) -> bytes:
    parts = [
        INT16.pack(_VALUE_VERSION),
        encode_string(group.protocol_type),
        INT32.pack(group.generation),
        encode_nullable_string(group.protocol),
        encode_nullable_string(group.leader),
        INT64.pack(group.state_timestamp),
        INT32.pack(len(group.members)),
    ]
    for member in group.members:
        parts += (
            encode_string(member.member_id),
            encode_nullable_string(member.instance_id),
            encode_string(member.client_id),
            encode_string(member.client_host),
            INT32.pack(member.rebalance_timeout_ms),
            INT32.pack(member.session_timeout_ms),
            _bytes(member.subscription),
            _bytes(member.assignment),
        )
    return b"".join(parts)


def decode_value(value: bytes) -> GroupMetadata:
    (version,) = INT16.unpack_from(value)
    if not 0 <= version <= 4:
        raise WireError(f"a GroupMetadataValue of version {version}")
    reader = _Reader(value, 2, flexible=version >= 4)
    protocol_type = reader.string()
    generation = reader.int32()
    protocol = reader.nullable_string()
    leader = reader.nullable_string()
    timestamp = reader.int64() if version >= 2 else -1
    members = tuple(_member(reader, version) for _ in range(reader.length()))
    return GroupMetadata(protocol_type, generation, protocol, leader, timestamp, members)


def _member(reader: _Reader, version: int) -> MemberMetadata:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout = reader.int32() if version >= 1 else -1
    session_timeout = reader.int32()
    subscription, assignment = reader.data(), reader.data()
    reader.tags()
    return MemberMetadata(
        member_id, instance_id, client_id, client_host, rebalance_timeout, session_timeout,
        subscription, assignment,
    )  # fmt: skip


class _Reader:
    """Reads a value; in flexible versions its strings, bytes and arrays are compact."""

    __slots__ = ("_end", "_flexible", "_pos", "_value")

    def __init__(self, value: bytes, pos: int, *, flexible: bool) -> None:
        self._value = value
        self._pos = pos
        self._end = len(value)
        self._flexible = flexible

    def int32(self) -> int:
        (number,) = INT32.unpack_from(self._value, self._pos)
        self._pos += 4
        return int(number)

    def int64(self) -> int:
        (number,) = INT64.unpack_from(self._value, self._pos)
        self._pos += 8
        return int(number)

    def nullable_string(self) -> str | None:
        read = compact_nullable_string if self._flexible else nullable_string
        text, self._pos = read(self._value, self._pos, self._end)
        return text

    def string(self) -> str:
        return self.nullable_string() or ""

    def length(self) -> int:
        if not self._flexible:
            return self.int32()
        size, self._pos = uvarint(self._value, self._pos)
        return size - 1

    def data(self) -> bytes:
        size = max(self.length(), 0)
        start = self._pos
        self._pos += size
        if self._pos > self._end:
            raise WireError("a GroupMetadataValue is cut short")
        return self._value[start : self._pos]

    def tags(self) -> None:
        if self._flexible:
            self._pos = skip_tags(self._value, self._pos, self._end)


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics in the consumer protocol's subscriptions; None if one of them cannot be parsed.

    As in Kafka, only the part that all versions share is parsed: the version and the topics.
    """
    topics: set[str] = set()
    try:
        for raw in subscriptions:
            end = len(raw)
            (count,) = INT32.unpack_from(raw, 2)
            if INT16.unpack_from(raw)[0] < 0 or not 0 <= count <= end:
                return None
            pos = 6
            for _ in range(count):
                topic, pos = nullable_string(raw, pos, end)
                if topic is None:
                    return None
                topics.add(topic)
    except (WireError, struct.error):
        return None
    return frozenset(topics)
