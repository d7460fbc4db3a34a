"""The records of consumer groups in `__consumer_offsets`: keys of versions 3 to 8 and 16, and their values.

All values are of version 0, the only one. PartitionMetadata (4) is read, and deleted, but not written: since
Kafka 4.1 a hash in the group's own record takes its place (KIP-1101).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from penstock.coordinator import StateRecord
from penstock.errors import WireError
from penstock.groups.consumer.assignors import Partitions
from penstock.groups.consumer.member import ClassicMetadata, Member, MemberState
from penstock.wire.primitives import (
    INT32,
    INT64,
    compact_nullable_string,
    encode_compact_nullable_string,
    encode_compact_string,
    encode_string,
    encode_uvarint,
    nullable_string,
    uuid_at,
    uvarint,
)

GROUP, PARTITION_METADATA, MEMBER, TARGET_EPOCH, TARGET_MEMBER, CURRENT, REGEX = 3, 4, 5, 6, 7, 8, 16
KEY_VERSIONS = frozenset((GROUP, PARTITION_METADATA, MEMBER, TARGET_EPOCH, TARGET_MEMBER, CURRENT, REGEX))

_OF_THE_GROUP = frozenset((GROUP, PARTITION_METADATA, TARGET_EPOCH))
_VERSION = b"\x00\x00"
_NO_TAGS = b"\x00"
_EPOCHS = struct.Struct(">iib")


class ResolvedRegex(NamedTuple):
    """The topics that a pattern matched, and when they were resolved."""

    topics: frozenset[str]
    version: int
    timestamp: int


# keys


def group_key(kind: int, group_id: str) -> bytes:
    return struct.pack(">h", kind) + encode_string(group_id)


def member_key(kind: int, group_id: str, name: str) -> bytes:
    """`name` is the member id, or the pattern of a REGEX."""
    return group_key(kind, group_id) + encode_string(name)


def decode_key(key: bytes) -> tuple[int, str, str]:
    """The kind, the group, and the member id or pattern, if the kind has one."""
    kind = key[0] << 8 | key[1]
    group_id, pos = nullable_string(key, 2, len(key))
    if kind in _OF_THE_GROUP:
        return kind, group_id or "", ""
    name, _ = nullable_string(key, pos, len(key))
    return kind, group_id or "", name or ""


def tombstone(kind: int, group_id: str, name: str | None = None) -> StateRecord:
    return StateRecord(group_key(kind, group_id) if name is None else member_key(kind, group_id, name), None)


# the group


def group_record(group_id: str, epoch: int, metadata_hash: int) -> StateRecord:
    value = _VERSION + INT32.pack(epoch)
    if metadata_hash:
        value += b"\x01\x00\x08" + INT64.pack(metadata_hash)
    else:
        value += _NO_TAGS
    return StateRecord(group_key(GROUP, group_id), value)


def read_group(value: bytes) -> tuple[int, int]:
    """The epoch and the hash of the topics."""
    reader = Reader(value)
    epoch = reader.int32()
    found = reader.tags().get(0)
    return epoch, 0 if found is None else INT64.unpack(found)[0]


def target_epoch_record(group_id: str, epoch: int) -> StateRecord:
    return StateRecord(group_key(TARGET_EPOCH, group_id), _VERSION + INT32.pack(epoch) + _NO_TAGS)


def read_target_epoch(value: bytes) -> int:
    return Reader(value).int32()


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> StateRecord:
    value = b"".join((
        _VERSION,
        _strings(sorted(resolved.topics)),
        INT64.pack(resolved.version),
        INT64.pack(resolved.timestamp),
        _NO_TAGS,
    ))  # fmt: skip
    return StateRecord(member_key(REGEX, group_id, regex), value)


def read_regex(value: bytes) -> ResolvedRegex:
    reader = Reader(value)
    return ResolvedRegex(frozenset(reader.strings()), reader.int64(), reader.int64())


# members


def member_record(group_id: str, member: Member) -> StateRecord:
    value = b"".join((
        _VERSION,
        encode_compact_nullable_string(member.instance_id),
        encode_compact_nullable_string(member.rack_id),
        encode_compact_string(member.client_id),
        encode_compact_string(member.client_host),
        _strings(sorted(member.topics)),
        encode_compact_nullable_string(member.regex),
        INT32.pack(member.rebalance_timeout_ms),
        encode_compact_nullable_string(member.server_assignor),
        _NO_TAGS if member.classic is None else _classic_tag(member.classic),
    ))  # fmt: skip
    return StateRecord(member_key(MEMBER, group_id, member.member_id), value)


def _classic_tag(classic: ClassicMetadata) -> bytes:
    # A nullable tagged struct has a byte in front that shows whether it is null.
    parts = [b"\x01", INT32.pack(classic.session_timeout_ms), encode_uvarint(len(classic.protocols) + 1)]
    for name, metadata in classic.protocols:
        parts += (encode_compact_string(name), encode_uvarint(len(metadata) + 1), metadata, _NO_TAGS)
    parts.append(_NO_TAGS)
    body = b"".join(parts)
    return b"\x01\x00" + encode_uvarint(len(body)) + body


def read_member(member: Member, value: bytes) -> Member:
    """The member with its metadata from the record."""
    reader = Reader(value)
    instance_id, rack_id = reader.nullable_string(), reader.nullable_string()
    client_id, client_host = reader.string(), reader.string()
    topics = frozenset(reader.strings())
    regex = reader.nullable_string()
    rebalance_timeout = reader.int32()
    assignor = reader.nullable_string()
    tag = reader.tags().get(0)
    return replace(
        member,
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        topics=topics,
        regex=regex,
        rebalance_timeout_ms=rebalance_timeout,
        server_assignor=assignor,
        classic=None if tag is None or tag[:1] != b"\x01" else _read_classic(Reader(tag, 1)),
    )


def _read_classic(reader: Reader) -> ClassicMetadata:
    session = reader.int32()
    protocols = []
    for _ in range(reader.length()):
        protocols.append((reader.string(), reader.data()))
        reader.tags()
    return ClassicMetadata(session, tuple(protocols))


def current_record(group_id: str, member: Member) -> StateRecord:
    value = b"".join((
        _VERSION,
        _EPOCHS.pack(member.epoch, member.previous_epoch, member.state),
        _partitions(member.assigned),
        _partitions(member.pending_revocation),
        _NO_TAGS,
    ))  # fmt: skip
    return StateRecord(member_key(CURRENT, group_id, member.member_id), value)


def read_current(member: Member, value: bytes) -> Member:
    """The member with the current assignment from the record."""
    reader = Reader(value)
    epoch, previous, state = reader.int32(), reader.int32(), reader.int8()
    known = state in (0, 1, 2)
    return replace(
        member,
        epoch=epoch,
        previous_epoch=previous,
        state=MemberState(state) if known else MemberState.UNKNOWN,
        assigned=reader.partitions(),
        pending_revocation=reader.partitions(),
    )


def target_record(group_id: str, member_id: str, target: Partitions) -> StateRecord:
    return StateRecord(
        member_key(TARGET_MEMBER, group_id, member_id), _VERSION + _partitions(target) + _NO_TAGS
    )


def read_target(value: bytes) -> Partitions:
    return Reader(value).partitions()


# parts of values


def _strings(items: list[str]) -> bytes:
    return encode_uvarint(len(items) + 1) + b"".join(map(encode_compact_string, items))


def _partitions(by_topic: Partitions) -> bytes:
    parts = [encode_uvarint(len(by_topic) + 1)]
    for topic in sorted(by_topic):
        numbers = sorted(by_topic[topic])
        parts += (
            topic.bytes,
            encode_uvarint(len(numbers) + 1),
            struct.pack(f">{len(numbers)}i", *numbers),
            _NO_TAGS,
        )
    return b"".join(parts)


class Reader:
    """Parses a value of version 0; all strings and arrays are compact."""

    __slots__ = ("_end", "_pos", "_value")

    def __init__(self, value: bytes, pos: int = 2) -> None:
        if pos == 2 and value[:2] != _VERSION:
            raise WireError(f"a consumer group record's value begins with {value[:2]!r}, not version 0")
        self._value = value
        self._pos = pos
        self._end = len(value)

    def int8(self) -> int:
        number = self._value[self._pos]
        self._pos += 1
        return number - 256 if number > 127 else number

    def int32(self) -> int:
        (number,) = INT32.unpack_from(self._value, self._pos)
        self._pos += 4
        return int(number)

    def int64(self) -> int:
        (number,) = INT64.unpack_from(self._value, self._pos)
        self._pos += 8
        return int(number)

    def nullable_string(self) -> str | None:
        text, self._pos = compact_nullable_string(self._value, self._pos, self._end)
        return text

    def string(self) -> str:
        return self.nullable_string() or ""

    def length(self) -> int:
        size, self._pos = uvarint(self._value, self._pos)
        if size - 1 > self._end - self._pos:
            raise WireError("a consumer group record is cut short")
        return max(size - 1, 0)

    def data(self) -> bytes:
        size = self.length()
        self._pos += size
        return self._value[self._pos - size : self._pos]

    def strings(self) -> Iterable[str]:
        return [self.string() for _ in range(self.length())]

    def partitions(self) -> Partitions:
        found: dict[UUID, frozenset[int]] = {}
        for _ in range(self.length()):
            topic = uuid_at(self._value, self._pos)
            self._pos += 16
            count = self.length()
            numbers = struct.unpack_from(f">{count}i", self._value, self._pos)
            self._pos += 4 * count
            found[topic] = frozenset(numbers)
            self.tags()
        return found

    def tags(self) -> dict[int, bytes]:
        count, self._pos = uvarint(self._value, self._pos)
        found: dict[int, bytes] = {}
        for _ in range(count):
            tag, self._pos = uvarint(self._value, self._pos)
            size, self._pos = uvarint(self._value, self._pos)
            found[tag] = self._value[self._pos : self._pos + size]
            self._pos += size
        return found
