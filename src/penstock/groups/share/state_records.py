"""The records of `__share_group_state`: ShareSnapshot (key version 0) and ShareUpdate (key version 1).

Values are of version 0, the only one, as Kafka 4.1 writes them. A snapshot is the whole state of a share
partition; an update changes the state of the previous snapshot and updates.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from penstock.coordinator import StateRecord
from penstock.errors import WireError
from penstock.groups.share.batches import StateBatch
from penstock.wire.primitives import INT32, encode_string, encode_uvarint, nullable_string, uuid_at, uvarint

SNAPSHOT, UPDATE = 0, 1
UNCHANGED = -1
"""As the start offset of an update."""

_SNAPSHOT = struct.Struct(">hiiiqqq")
_UPDATE = struct.Struct(">hiiq")
_BATCH = struct.Struct(">qqbhB")  # with the empty list of tagged fields


class SharePartitionKey(NamedTuple):
    """A partition of a topic for one share group."""

    group_id: str
    topic_id: UUID
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The text that Kafka hashes to find the partition with the state: ids in its base 64 encoding."""
        topic = urlsafe_b64encode(self.topic_id.bytes).rstrip(b"=").decode()
        return f"{self.group_id}:{topic}:{self.partition}"


class Snapshot(NamedTuple):
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    create_timestamp: int
    write_timestamp: int
    batches: tuple[StateBatch, ...]


class Update(NamedTuple):
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]


def _key(kind: int, key: SharePartitionKey) -> bytes:
    head = struct.pack(">h", kind) + encode_string(key.group_id)
    return head + key.topic_id.bytes + INT32.pack(key.partition)


def decode_key(raw: bytes) -> tuple[int, SharePartitionKey]:
    kind = raw[0] << 8 | raw[1]
    group_id, pos = nullable_string(raw, 2, len(raw))
    (partition,) = INT32.unpack_from(raw, pos + 16)
    return kind, SharePartitionKey(group_id or "", uuid_at(raw, pos), partition)


def snapshot_record(key: SharePartitionKey, snapshot: Snapshot) -> StateRecord:
    value = _SNAPSHOT.pack(0, *snapshot[:-1]) + _batches(snapshot.batches) + b"\x00"
    return StateRecord(_key(SNAPSHOT, key), value)


def update_record(key: SharePartitionKey, update: Update) -> StateRecord:
    value = _UPDATE.pack(0, *update[:-1]) + _batches(update.batches) + b"\x00"
    return StateRecord(_key(UPDATE, key), value)


def tombstones(key: SharePartitionKey) -> list[StateRecord]:
    return [StateRecord(_key(SNAPSHOT, key), None)]


def read_snapshot(value: bytes) -> Snapshot:
    version, snapshot_epoch, state_epoch, leader_epoch, start, created, written = _unpack(_SNAPSHOT, value)
    batches = _read_batches(version, value, _SNAPSHOT.size)
    return Snapshot(snapshot_epoch, state_epoch, leader_epoch, start, created, written, batches)


def read_update(value: bytes) -> Update:
    version, snapshot_epoch, leader_epoch, start = _unpack(_UPDATE, value)
    return Update(snapshot_epoch, leader_epoch, start, _read_batches(version, value, _UPDATE.size))


def _unpack(head: struct.Struct, value: bytes) -> tuple[int, ...]:
    if len(value) < head.size:
        raise WireError("a record of a share group's state is cut short")
    return head.unpack_from(value)


def _batches(batches: Sequence[StateBatch] | Iterable[StateBatch]) -> bytes:
    parts = [_BATCH.pack(*batch, 0) for batch in batches]
    return encode_uvarint(len(parts) + 1) + b"".join(parts)


def _read_batches(version: int, value: bytes, pos: int) -> tuple[StateBatch, ...]:
    if version != 0:
        raise WireError(f"a record of a share group's state of version {version}")
    count, pos = uvarint(value, pos)
    found = []
    for _ in range(count - 1):
        if pos + _BATCH.size > len(value):
            raise WireError("a record of a share group's state is cut short")
        *fields, tags = _BATCH.unpack_from(value, pos)
        if tags:
            raise WireError("a batch of a share group's state has tagged fields, of which none is known")
        found.append(StateBatch(*fields))
        pos += _BATCH.size
    return tuple(found)
