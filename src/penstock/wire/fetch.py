"""Hand-written codec of Fetch (key 1), versions 4 to 18: record bytes are never copied into a response.

5 log start offset; 7 sessions; 9 current leader epoch; 11 rack and preferred replica; 12 flexible,
last fetched epoch, diverging epoch and current leader; 13 topic ids instead of names; 15 replica
state; 16 node endpoints (KIP-951); 17 replica directory; 18 the follower's high watermark.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from penstock.errors import WireError
from penstock.wire.primitives import (
    INT16,
    INT32,
    INT64,
    MAX_ITEMS,
    ZERO_UUID,
    Buffer,
    compact_nullable_string,
    encode_compact_string,
    encode_string,
    encode_uvarint,
    nullable_string,
    skip_tags,
    text,
    too_many_items,
    uuid_at,
    uvarint,
)
from penstock.wire.produce import NodeEndpoint, encode_endpoints_tag

UNKNOWN_HIGH_WATERMARK = (1 << 63) - 1


class FetchPartition(NamedTuple):
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int
    replica_directory_id: UUID = ZERO_UUID
    high_watermark: int = UNKNOWN_HIGH_WATERMARK


FetchTopic = tuple[str | None, UUID | None, list[FetchPartition]]
ForgottenTopic = tuple[str | None, UUID | None, list[int]]

_V4 = struct.Struct(">iqi")
_V5 = struct.Struct(">iqqi")
_V9 = struct.Struct(">iiqqi")
_V12 = struct.Struct(">iiqiqi")
_HEAD_V4 = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_REPLICA_STATE = struct.Struct(">iq")
_NO_TAGS = (ZERO_UUID, UNKNOWN_HIGH_WATERMARK)


class FetchRequest:
    __slots__ = (
        "cluster_id",
        "forgotten",
        "isolation_level",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "rack_id",
        "replica_epoch",
        "replica_id",
        "session_epoch",
        "session_id",
        "topics",
    )

    def __init__(self) -> None:
        self.replica_id = -1
        self.replica_epoch = -1
        self.max_wait_ms = 0
        self.min_bytes = 0
        self.max_bytes = 0x7FFFFFFF
        self.isolation_level = 0
        self.session_id = 0
        self.session_epoch = -1
        self.topics: list[FetchTopic] = []
        self.forgotten: list[ForgottenTopic] = []
        self.rack_id = ""
        self.cluster_id: str | None = None


def parse_fetch(buf: Buffer, pos: int, end: int, version: int) -> FetchRequest:
    """The request between pos and end; WireError if the bytes are malformed."""
    try:
        request = FetchRequest()
        if version >= 12:
            pos = _parse_flexible(request, buf, pos, end, version)
        else:
            pos = _parse_classic(request, buf, pos, end, version)
    except (struct.error, IndexError):
        raise WireError("a fetch request is cut short") from None
    if pos != end:
        raise WireError(f"a fetch request ends {end - pos} bytes before its frame")
    return request


def _parse_classic(request: FetchRequest, buf: Buffer, pos: int, end: int, version: int) -> int:
    (request.replica_id,) = INT32.unpack_from(buf, pos)
    request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level = _HEAD_V4.unpack_from(
        buf, pos + 4
    )
    pos += 17
    if version >= 7:
        request.session_id, request.session_epoch = _SESSION.unpack_from(buf, pos)
        pos += 8
    count, pos = _count(buf, pos, end, 6)
    left = MAX_ITEMS - count
    for _ in range(count):
        name, pos = _name(buf, pos, end)
        partition_count, pos = _count(buf, pos, end, 16)
        left -= partition_count
        if left < 0:
            raise too_many_items()
        partitions = []
        for _ in range(partition_count):
            if version >= 9:
                index, epoch, offset, log_start, max_bytes = _V9.unpack_from(buf, pos)
                pos += 28
            elif version >= 5:
                index, offset, log_start, max_bytes = _V5.unpack_from(buf, pos)
                epoch = -1
                pos += 24
            else:
                index, offset, max_bytes = _V4.unpack_from(buf, pos)
                epoch = log_start = -1
                pos += 16
            partitions.append(FetchPartition(index, epoch, offset, -1, log_start, max_bytes))
        request.topics.append((name, None, partitions))
    if version >= 7:
        count, pos = _count(buf, pos, end, 6)
        left -= count
        for _ in range(count):
            name, pos = _name(buf, pos, end)
            partition_count, pos = _count(buf, pos, end, 4)
            left -= partition_count
            if left < 0:
                raise too_many_items()
            indexes = struct.unpack_from(f">{partition_count}i", buf, pos)
            pos += 4 * partition_count
            request.forgotten.append((name, None, list(indexes)))
    if version >= 11:
        rack, pos = nullable_string(buf, pos, end)
        if rack is None:
            raise WireError("a fetch request's rack is null")
        request.rack_id = rack
    return pos


def _count(buf: Buffer, pos: int, end: int, item: int) -> tuple[int, int]:
    """The length of an array whose items take at least `item` bytes each."""
    (count,) = INT32.unpack_from(buf, pos)
    pos += 4
    if not 0 <= count * item <= end - pos:
        raise WireError(f"an array says it has {count} items in {end - pos} bytes")
    return count, pos


def _name(buf: Buffer, pos: int, end: int) -> tuple[str, int]:
    (size,) = INT16.unpack_from(buf, pos)
    pos += 2
    if not 0 <= size <= end - pos:
        raise WireError(f"a topic name has length {size}")
    return text(buf, pos, pos + size), pos + size


def _compact_count(buf: Buffer, pos: int, end: int, item: int) -> tuple[int, int]:
    count, pos = uvarint(buf, pos)
    if not 0 <= (count - 1) * item <= end - pos:
        raise WireError(f"an array says it has {count - 1} items in {end - pos} bytes")
    return count - 1, pos


def _parse_flexible(request: FetchRequest, buf: Buffer, pos: int, end: int, version: int) -> int:
    if version < 15:
        (request.replica_id,) = INT32.unpack_from(buf, pos)
        pos += 4
    request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level = _HEAD_V4.unpack_from(
        buf, pos
    )
    request.session_id, request.session_epoch = _SESSION.unpack_from(buf, pos + 13)
    count, pos = _compact_count(buf, pos + 21, end, 3)
    left = MAX_ITEMS - count
    by_id = version >= 13
    unpack, new = _V12.unpack_from, tuple.__new__
    for _ in range(count):
        name, topic_id, pos = _topic(buf, pos, end, by_id)
        partition_count, pos = _compact_count(buf, pos, end, 33)
        left -= partition_count
        if left < 0:
            raise too_many_items()
        partitions: list[FetchPartition] = []
        for _ in range(partition_count):
            # The first request of a session names every partition, so this loop must be fast: the fields are
            # in the order of FetchPartition and are unpacked into one with a single call.
            fields = unpack(buf, pos)
            pos += 32
            if buf[pos]:
                tags, pos = _partition_tags(buf, pos, end, version)
            else:
                tags = _NO_TAGS
                pos += 1
            partitions.append(new(FetchPartition, fields + tags))
        pos = skip_tags(buf, pos, end) if buf[pos] else pos + 1
        request.topics.append((name, topic_id, partitions))
    count, pos = _compact_count(buf, pos, end, 3)
    left -= count
    for _ in range(count):
        name, topic_id, pos = _topic(buf, pos, end, by_id)
        partition_count, pos = _compact_count(buf, pos, end, 4)
        left -= partition_count
        if left < 0:
            raise too_many_items()
        indexes = struct.unpack_from(f">{partition_count}i", buf, pos)
        pos += 4 * partition_count
        pos = skip_tags(buf, pos, end) if buf[pos] else pos + 1
        request.forgotten.append((name, topic_id, list(indexes)))
    rack, pos = compact_nullable_string(buf, pos, end)
    if rack is None:
        raise WireError("a fetch request's rack is null")
    request.rack_id = rack
    return _request_tags(request, buf, pos, end, version) if buf[pos] else pos + 1


def _topic(buf: Buffer, pos: int, end: int, by_id: bool) -> tuple[str | None, UUID | None, int]:
    if by_id:
        return None, uuid_at(buf, pos), pos + 16
    name, pos = compact_nullable_string(buf, pos, end)
    if name is None:
        raise WireError("a topic name is null")
    return name, None, pos


def _tags(buf: Buffer, pos: int, end: int) -> tuple[list[tuple[int, int, int]], int]:
    """(tag, start, end) of each tagged field."""
    count, pos = uvarint(buf, pos)
    if count > end - pos:
        raise WireError(f"{count} tagged fields do not fit in {end - pos} bytes")
    found = []
    for _ in range(count):
        tag, pos = uvarint(buf, pos)
        size, pos = uvarint(buf, pos)
        if size > end - pos:
            raise WireError("a tagged field goes past the end of the request")
        found.append((tag, pos, pos + size))
        pos += size
    return found, pos


def _partition_tags(buf: Buffer, pos: int, end: int, version: int) -> tuple[tuple[UUID, int], int]:
    directory, high_watermark = _NO_TAGS
    found, pos = _tags(buf, pos, end)
    for tag, start, stop in found:
        if tag == 0 and version >= 17:
            if stop - start != 16:
                raise WireError("a replica directory id is not 16 bytes")
            directory = uuid_at(buf, start)
        elif tag == 1 and version >= 18:
            if stop - start != 8:
                raise WireError("a high watermark is not 8 bytes")
            (high_watermark,) = INT64.unpack_from(buf, start)
    return (directory, high_watermark), pos


def _request_tags(request: FetchRequest, buf: Buffer, pos: int, end: int, version: int) -> int:
    found, pos = _tags(buf, pos, end)
    for tag, start, stop in found:
        if tag == 0:
            request.cluster_id, after = compact_nullable_string(buf, start, stop)
        elif tag == 1 and version >= 15:
            request.replica_id, request.replica_epoch = _REPLICA_STATE.unpack_from(buf, start)
            after = skip_tags(buf, start + 12, stop)
        else:
            continue
        if after != stop:
            raise WireError(f"tagged field {tag} of a fetch request has a wrong size")
    return pos


class RecordSlice(Protocol):
    """Record bytes that are stored elsewhere, for example in a log file."""

    @property
    def length(self) -> int: ...


class FetchPartitionResult:
    """The result of one partition. `aborted` has (producer id, first offset) pairs, None if the reader does
    not use read_committed; `diverging_epoch` is (epoch, end offset), `current_leader` (leader id, leader
    epoch). A slice is an object with a length, or bytes."""

    __slots__ = (
        "aborted",
        "current_leader",
        "diverging_epoch",
        "error_code",
        "high_watermark",
        "index",
        "last_stable_offset",
        "log_start_offset",
        "preferred_read_replica",
        "slices",
    )

    def __init__(
        self,
        index: int,
        error_code: int = 0,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        aborted: Sequence[tuple[int, int]] | None = None,
        preferred_read_replica: int = -1,
        slices: Sequence[RecordSlice | bytes] = (),
        diverging_epoch: tuple[int, int] | None = None,
        current_leader: tuple[int, int] | None = None,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.aborted = aborted
        self.preferred_read_replica = preferred_read_replica
        self.slices = slices
        self.diverging_epoch = diverging_epoch
        self.current_leader = current_leader


TopicResult = tuple[str | None, UUID | None, Sequence[FetchPartitionResult]]

_RESULT_V4 = struct.Struct(">ihqq")
_RESULT_V5 = struct.Struct(">ihqqq")
_RESULT_V12 = struct.Struct(">ihqqqBi")
_ABORTED = struct.Struct(">qq")
_ABORTED_FLEXIBLE = struct.Struct(">qqx")
_THROTTLE_AND_SESSION = struct.Struct(">ihi")
_DIVERGING_TAG = struct.Struct(">BBiqx")
_LEADER_TAG = struct.Struct(">BBiix")


def encode_fetch_response(
    version: int,
    throttle_ms: int,
    error_code: int,
    session_id: int,
    topics: Sequence[TopicResult],
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[bytes | RecordSlice]:
    """The body of the response in chunks, in order: bytes to send, and the given slices."""
    chunks: list[bytes | RecordSlice] = []
    out = bytearray()
    if version >= 7:
        out += _THROTTLE_AND_SESSION.pack(throttle_ms, error_code, session_id)
    else:
        out += INT32.pack(throttle_ms)
    flexible = version >= 12
    out += encode_uvarint(len(topics) + 1) if flexible else INT32.pack(len(topics))
    for name, topic_id, partitions in topics:
        if version >= 13:
            out += (topic_id or ZERO_UUID).bytes
        elif flexible:
            out += encode_compact_string(name or "")
        else:
            out += encode_string(name or "")
        out += encode_uvarint(len(partitions) + 1) if flexible else INT32.pack(len(partitions))
        for one in partitions:
            size = 0
            for piece in one.slices:
                size += len(piece) if isinstance(piece, bytes) else piece.length
            if flexible:
                _put_flexible_head(out, one, size)
            else:
                _put_classic_head(out, one, size, version)
            for piece in one.slices:
                if isinstance(piece, bytes):
                    out += piece
                else:
                    if out:
                        chunks.append(bytes(out))
                        out.clear()
                    chunks.append(piece)
            if flexible:
                _put_partition_tags(out, one)
        if flexible:
            out.append(0)
    if flexible:
        if node_endpoints and version >= 16:
            out += encode_endpoints_tag(node_endpoints)
        else:
            out.append(0)
    if out:
        chunks.append(bytes(out))
    return chunks


def _put_classic_head(out: bytearray, one: FetchPartitionResult, size: int, version: int) -> None:
    if version >= 5:
        out += _RESULT_V5.pack(
            one.index, one.error_code, one.high_watermark, one.last_stable_offset, one.log_start_offset
        )
    else:
        out += _RESULT_V4.pack(one.index, one.error_code, one.high_watermark, one.last_stable_offset)
    if one.aborted is None:
        out += b"\xff\xff\xff\xff"
    else:
        out += INT32.pack(len(one.aborted))
        for producer_id, first_offset in one.aborted:
            out += _ABORTED.pack(producer_id, first_offset)
    if version >= 11:
        out += INT32.pack(one.preferred_read_replica)
    out += INT32.pack(size)


def _put_flexible_head(out: bytearray, one: FetchPartitionResult, size: int) -> None:
    aborted = one.aborted
    if not aborted:
        out += _RESULT_V12.pack(
            one.index,
            one.error_code,
            one.high_watermark,
            one.last_stable_offset,
            one.log_start_offset,
            0 if aborted is None else 1,
            one.preferred_read_replica,
        )
    else:
        out += _RESULT_V5.pack(
            one.index, one.error_code, one.high_watermark, one.last_stable_offset, one.log_start_offset
        )
        out += encode_uvarint(len(aborted) + 1)
        for producer_id, first_offset in aborted:
            out += _ABORTED_FLEXIBLE.pack(producer_id, first_offset)
        out += INT32.pack(one.preferred_read_replica)
    out += encode_uvarint(size + 1)


def _put_partition_tags(out: bytearray, one: FetchPartitionResult) -> None:
    diverging, leader = one.diverging_epoch, one.current_leader
    if diverging is None and leader is None:
        out.append(0)
        return
    out.append((diverging is not None) + (leader is not None))
    if diverging is not None:
        out += _DIVERGING_TAG.pack(0, 13, *diverging)
    if leader is not None:
        out += _LEADER_TAG.pack(1, 9, *leader)
