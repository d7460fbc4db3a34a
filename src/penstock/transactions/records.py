"""The records of `__transaction_state`: TransactionLogKey version 0, TransactionLogValue versions 0 and 1.

Version 1 is written, as Kafka does from transaction version 1 on; both are read, and tagged fields that a
later Kafka adds are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from penstock.errors import WireError
from penstock.transactions.state import NO_PRODUCER_ID, TV_0, State, TopicPartition, Transaction
from penstock.wire.primitives import (
    INT16,
    INT32,
    INT64,
    compact_nullable_string,
    encode_string,
    encode_uvarint,
    nullable_string,
    skip_tags,
    uvarint,
)

_HEAD = struct.Struct(">hqhib")  # version, producer id and epoch, timeout, state
_TIMES = struct.Struct(">qq")
_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_VERSION = 0, 1, 2  # tags
_TAGGED_ID = struct.Struct(">BBq")
_TAGGED_VERSION = struct.Struct(">BBh")


def encode_key(transactional_id: str) -> bytes:
    return b"\0\0" + encode_string(transactional_id)


def decode_key(key: bytes) -> str | None:
    """The transactional id; None for an unknown version, which Kafka skips too."""
    if len(key) < 2 or key[:2] != b"\0\0":
        return None
    try:
        transactional_id, _ = nullable_string(key, 2, len(key))
    except struct.error:
        raise WireError("a key of __transaction_state is cut short") from None
    return transactional_id


def encode_value(transaction: Transaction) -> bytes:
    state = transaction.state
    parts = [
        _HEAD.pack(1, transaction.producer_id, transaction.producer_epoch, transaction.timeout_ms, state)
    ]
    if state == State.EMPTY:
        parts.append(b"\0")
    else:
        _encode_partitions(parts, transaction.partitions)
    parts.append(_TIMES.pack(transaction.last_update_ms, transaction.start_ms))
    tags = []
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags.append(_TAGGED_ID.pack(_PREVIOUS_PRODUCER_ID, 8, transaction.previous_producer_id))
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags.append(_TAGGED_ID.pack(_NEXT_PRODUCER_ID, 8, transaction.next_producer_id))
    if transaction.client_version != TV_0:
        tags.append(_TAGGED_VERSION.pack(_CLIENT_VERSION, 2, transaction.client_version))
    parts.append(bytes((len(tags),)))
    return b"".join(parts + tags)


def _encode_partitions(parts: list[bytes], partitions: Iterable[TopicPartition]) -> None:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    parts.append(encode_uvarint(len(topics) + 1))
    for topic, indexes in topics.items():
        name = topic.encode()
        parts += (encode_uvarint(len(name) + 1), name, encode_uvarint(len(indexes) + 1))
        parts.append(struct.pack(f">{len(indexes)}iB", *indexes, 0))


def decode_value(value: bytes) -> Transaction:
    try:
        return _decode_value(value)
    except (struct.error, IndexError):
        raise WireError("a value of __transaction_state is cut short") from None


def _decode_value(value: bytes) -> Transaction:
    version, producer_id, epoch, timeout_ms, state = _HEAD.unpack_from(value)
    if version not in (0, 1):
        raise WireError(f"a value of __transaction_state has version {version}")
    if state not in State._value2member_map_:
        raise WireError(f"a value of __transaction_state has state {state}")
    partitions, pos = (_partitions_1 if version else _partitions_0)(value, _HEAD.size)
    last_update_ms, start_ms = _TIMES.unpack_from(value, pos)
    previous, following, client_version = NO_PRODUCER_ID, NO_PRODUCER_ID, TV_0
    if version:
        count, pos = uvarint(value, pos + _TIMES.size)
        for _ in range(count):
            tag, pos = uvarint(value, pos)
            size, pos = uvarint(value, pos)
            if tag == _PREVIOUS_PRODUCER_ID:
                (previous,) = INT64.unpack_from(value, pos)
            elif tag == _NEXT_PRODUCER_ID:
                (following,) = INT64.unpack_from(value, pos)
            elif tag == _CLIENT_VERSION:
                (client_version,) = INT16.unpack_from(value, pos)
            pos += size
            if pos > len(value):
                raise WireError("a tagged field goes past the end of a value of __transaction_state")
    return Transaction(
        producer_id,
        epoch,
        timeout_ms,
        State(state),
        partitions,
        last_update_ms,
        start_ms,
        previous,
        following,
        client_version,
    )


def _partitions_0(value: bytes, pos: int) -> tuple[frozenset[TopicPartition], int]:
    found: set[TopicPartition] = set()
    (topics,) = INT32.unpack_from(value, pos)
    pos += 4
    for _ in range(topics):  # -1 is null
        topic, pos = nullable_string(value, pos, len(value))
        (count,) = INT32.unpack_from(value, pos)
        pos = _indexes(value, pos + 4, topic, count, found)
    return frozenset(found), pos


def _partitions_1(value: bytes, pos: int) -> tuple[frozenset[TopicPartition], int]:
    if value[pos] < 2:  # null or empty
        return frozenset(), pos + 1
    found: set[TopicPartition] = set()
    topics, pos = uvarint(value, pos)
    for _ in range(topics - 1):
        topic, pos = compact_nullable_string(value, pos, len(value))
        count, pos = uvarint(value, pos)
        pos = _indexes(value, pos, topic, count - 1, found)
        pos = skip_tags(value, pos, len(value))
    return frozenset(found), pos


def _indexes(value: bytes, pos: int, topic: str | None, count: int, found: set[TopicPartition]) -> int:
    if topic is None or count < 0 or count > (len(value) - pos) // 4:
        raise WireError("the partitions in a value of __transaction_state cannot be read")
    for index in struct.unpack_from(f">{count}i", value, pos):
        found.add((topic, index))
    return pos + 4 * count
