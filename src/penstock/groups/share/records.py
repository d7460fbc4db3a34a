"""The records of share groups in `__consumer_offsets`: keys of versions 10 to 15, and their values.

All values are of version 0, the only one, as Kafka 4.1 writes them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from penstock.coordinator import StateRecord
from penstock.groups.consumer.assignors import Partitions
from penstock.groups.consumer.records import Reader
from penstock.wire.primitives import (
    INT32,
    encode_compact_nullable_string,
    encode_compact_string,
    encode_string,
    encode_uvarint,
    nullable_string,
    uuid_at,
)

MEMBER, GROUP, TARGET_EPOCH, TARGET_MEMBER, CURRENT, STATE_PARTITIONS = 10, 11, 12, 13, 14, 15
KEY_VERSIONS = frozenset((MEMBER, GROUP, TARGET_EPOCH, TARGET_MEMBER, CURRENT, STATE_PARTITIONS))

_OF_THE_GROUP = frozenset((GROUP, TARGET_EPOCH, STATE_PARTITIONS))
_VERSION = b"\x00\x00"
_NO_TAGS = b"\x00"
_GROUP_VALUE = struct.Struct(">hiqb")
_CURRENT_HEAD = struct.Struct(">hiib")
_STABLE = 0


class MemberMetadata(NamedTuple):
    """The metadata of a member."""

    rack_id: str | None
    client_id: str
    client_host: str
    topics: frozenset[str]


class CurrentAssignment(NamedTuple):
    epoch: int
    previous_epoch: int
    assigned: Partitions


StatePartitions = Mapping[UUID, tuple[str, frozenset[int]]]
"""The partitions whose share state exists: topic id, its name, and the partitions."""


def key(kind: int, group_id: str, member_id: str | None = None) -> bytes:
    head = struct.pack(">h", kind) + encode_string(group_id)
    return head if member_id is None else head + encode_string(member_id)


def decode_key(raw: bytes) -> tuple[int, str, str]:
    """The kind, the group, and the member id if the kind has one."""
    kind = raw[0] << 8 | raw[1]
    group_id, pos = nullable_string(raw, 2, len(raw))
    if kind in _OF_THE_GROUP:
        return kind, group_id or "", ""
    member_id, _ = nullable_string(raw, pos, len(raw))
    return kind, group_id or "", member_id or ""


def tombstone(kind: int, group_id: str, member_id: str | None = None) -> StateRecord:
    return StateRecord(key(kind, group_id, member_id), None)


def group_record(group_id: str, epoch: int, metadata_hash: int) -> StateRecord:
    return StateRecord(key(GROUP, group_id), _GROUP_VALUE.pack(0, epoch, metadata_hash, 0))


def read_group(value: bytes) -> tuple[int, int]:
    """The epoch and the hash of the topics."""
    reader = Reader(value)
    return reader.int32(), reader.int64()


def member_record(group_id: str, member_id: str, said: MemberMetadata) -> StateRecord:
    value = b"".join((
        _VERSION,
        encode_compact_nullable_string(said.rack_id),
        encode_compact_string(said.client_id),
        encode_compact_string(said.client_host),
        _array(map(encode_compact_string, sorted(said.topics))),
        _NO_TAGS,
    ))  # fmt: skip
    return StateRecord(key(MEMBER, group_id, member_id), value)


def read_member(value: bytes) -> MemberMetadata:
    reader = Reader(value)
    return MemberMetadata(
        reader.nullable_string(), reader.string(), reader.string(), frozenset(reader.strings())
    )


def target_epoch_record(group_id: str, epoch: int) -> StateRecord:
    return StateRecord(key(TARGET_EPOCH, group_id), _VERSION + INT32.pack(epoch) + _NO_TAGS)


def read_target_epoch(value: bytes) -> int:
    return Reader(value).int32()


def target_record(group_id: str, member_id: str, target: Partitions) -> StateRecord:
    return StateRecord(key(TARGET_MEMBER, group_id, member_id), _VERSION + _partitions(target) + _NO_TAGS)


def read_target(value: bytes) -> Partitions:
    return Reader(value).partitions()


def current_record(group_id: str, member_id: str, current: CurrentAssignment) -> StateRecord:
    head = _CURRENT_HEAD.pack(0, current.epoch, current.previous_epoch, _STABLE)
    return StateRecord(key(CURRENT, group_id, member_id), head + _partitions(current.assigned) + _NO_TAGS)


def read_current(value: bytes) -> CurrentAssignment:
    reader = Reader(value)
    epoch, previous, _ = reader.int32(), reader.int32(), reader.int8()
    return CurrentAssignment(epoch, previous, reader.partitions())


def state_partitions_record(group_id: str, initialized: StatePartitions) -> StateRecord:
    """Partitions are never partly initialized or deleted here: these two lists are empty."""
    topics = (
        topic_id.bytes + encode_compact_string(name) + _numbers(partitions) + _NO_TAGS
        for topic_id, (name, partitions) in sorted(initialized.items())
    )
    nothing = encode_uvarint(1)
    value = _VERSION + nothing + _array(topics) + nothing + _NO_TAGS
    return StateRecord(key(STATE_PARTITIONS, group_id), value)


def read_state_partitions(value: bytes) -> StatePartitions:
    """Includes partitions that a Kafka broker was initializing: here the first fetch does it."""
    reader = _Reader(value)
    found: dict[UUID, tuple[str, frozenset[int]]] = {}
    for _ in range(2):
        for _ in range(reader.length()):
            topic_id = reader.uuid()
            name = reader.string()
            numbers = frozenset(reader.int32() for _ in range(reader.length()))
            reader.tags()
            known = found.get(topic_id)
            found[topic_id] = (name, numbers if known is None else known[1] | numbers)
    return found


class _Reader(Reader):
    __slots__ = ()

    def uuid(self) -> UUID:
        self._pos += 16
        return uuid_at(self._value, self._pos - 16)


def _array(items: Iterable[bytes]) -> bytes:
    parts = list(items)
    return encode_uvarint(len(parts) + 1) + b"".join(parts)


def _numbers(numbers: Iterable[int]) -> bytes:
    return _array(map(INT32.pack, sorted(numbers)))


def _partitions(by_topic: Partitions) -> bytes:
    return _array(topic.bytes + _numbers(by_topic[topic]) + _NO_TAGS for topic in sorted(by_topic))
