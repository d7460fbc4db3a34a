"""Encodes a Fetch request for one partition, and decodes its response without copying the records."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from uuid import UUID

from penstock.errors import ApiError, WireError
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message, encode_request
from penstock.wire.frame import response_start
from penstock.wire.primitives import INT16, INT32, ZERO_UUID, skip_tags, uvarint

NAMES_AT_MOST = 12  # later versions identify topics by id only

_PARTITION = struct.Struct(">ihqq")
_ABORTED = struct.Struct(">qq")
_INT64 = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class FetchedBytes:
    """A broker's response for one partition. Offsets are -1 if the broker did not report them.

    `error` is None or OffsetOutOfRange: other errors are retried or raised. `aborted` are pairs of a producer
    id and the first offset of its aborted transaction. `data` is complete batches and possibly a part of one
    more; it may hold records before the requested offset.
    """

    error: ApiError | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    data: memoryview


@dataclass(frozen=True, slots=True)
class FetchQuery:
    """The fields of a Fetch request."""

    topic: str
    partition: int
    offset: int
    max_bytes: int
    min_bytes: int
    max_wait_ms: int
    isolation: int


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """The response for one partition, as on the wire."""

    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    preferred_read_replica: int
    data: memoryview


def encode_fetch(version: int, query: FetchQuery, topic_id: UUID, leader_epoch: int, rack: str) -> bytes:
    """A request without a fetch session: for a single fetch the broker need not keep any state."""
    partition = Message(
        partition=query.partition,
        current_leader_epoch=leader_epoch,
        fetch_offset=query.offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=query.max_bytes,
    )
    request = Message(
        cluster_id=None,
        replica_id=-1,
        max_wait_ms=query.max_wait_ms,
        min_bytes=query.min_bytes,
        max_bytes=query.max_bytes,
        isolation_level=query.isolation,
        session_id=0,
        session_epoch=-1,
        topics=[Message(topic=query.topic, topic_id=topic_id, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id=rack,
    )
    return encode_request(ApiKey.FETCH, version, request)


def decode_fetch(version: int, frame: bytearray, topic: str) -> FetchAnswer:
    """The one partition of a response to `encode_fetch`. Raises WireError for malformed bytes."""
    try:
        return _decode(version, frame, topic)
    except (struct.error, IndexError):
        raise WireError(f"the answer to a fetch of {topic} is cut short") from None


def _decode(version: int, frame: bytearray, topic: str) -> FetchAnswer:
    end = len(frame)
    flexible = version >= 12
    pos = response_start(ApiKey.FETCH, version, frame) + 4  # throttle time
    if version >= 7:
        (error_code,) = INT16.unpack_from(frame, pos)
        pos += 6
        if error_code:
            return FetchAnswer(error_code, -1, -1, -1, (), -1, memoryview(b""))
    topics, pos = _count(frame, pos, flexible)
    if topics != 1:
        raise WireError(f"the answer to a fetch of {topic} has {topics} topics")
    if version > NAMES_AT_MOST:
        pos += 16
    else:
        size, pos = _length16(frame, pos, flexible)
        pos += size
    partitions, pos = _count(frame, pos, flexible)
    if partitions != 1:
        raise WireError(f"the answer to a fetch of {topic} has {partitions} partitions")
    _, error_code, high_watermark, last_stable_offset = _PARTITION.unpack_from(frame, pos)
    pos += _PARTITION.size
    log_start_offset = -1
    if version >= 5:
        (log_start_offset,) = _INT64.unpack_from(frame, pos)
        pos += 8
    number, pos = _count(frame, pos, flexible)
    if number * 16 > end - pos:
        raise WireError(f"{number} aborted transactions do not fit in {end - pos} bytes")
    aborted: list[tuple[int, int]] = []
    for _ in range(number):
        aborted.append(_ABORTED.unpack_from(frame, pos))
        pos += 16
        if flexible:
            pos = skip_tags(frame, pos, end)
    preferred = -1
    if version >= 11:
        (preferred,) = INT32.unpack_from(frame, pos)
        pos += 4
    size, pos = _count(frame, pos, flexible)
    size = max(size, 0)
    if size > end - pos:
        raise WireError(f"{size} bytes of records do not fit in {end - pos} bytes")
    data = memoryview(frame)[pos : pos + size]
    return FetchAnswer(
        error_code, high_watermark, last_stable_offset, log_start_offset, tuple(aborted), preferred, data
    )


def _count(frame: bytearray, pos: int, flexible: bool) -> tuple[int, int]:
    """The length of an array or of records, -1 for null."""
    if flexible:
        count, pos = uvarint(frame, pos)
        return count - 1, pos
    return INT32.unpack_from(frame, pos)[0], pos + 4


def _length16(frame: bytearray, pos: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        size, pos = uvarint(frame, pos)
        return size - 1, pos
    return INT16.unpack_from(frame, pos)[0], pos + 2


def version_limit(topic_id: UUID) -> int:
    """The newest version that can identify this topic: a cluster older than 2.8 gives topics no ids."""
    return 32767 if topic_id != ZERO_UUID else NAMES_AT_MOST
