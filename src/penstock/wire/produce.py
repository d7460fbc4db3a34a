"""Hand-written codec of Produce (key 0), versions 0 to 13: record bytes are located, but not copied.

3 transactional id; 9 flexible; 13 topic ids instead of names. In the response: 1 throttle time;
2 log append time; 5 log start offset; 8 record errors and a message; 10 the current leader and its
address (KIP-951). Versions 0-2 are here because librdkafka compresses only if they are offered.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from penstock.errors import WireError
from penstock.wire.primitives import (
    INT16,
    INT32,
    MAX_ITEMS,
    ZERO_UUID,
    Buffer,
    compact_nullable_string,
    encode_compact_nullable_string,
    encode_compact_string,
    encode_nullable_string,
    encode_string,
    encode_uvarint,
    nullable_string,
    skip_tags,
    text,
    too_many_items,
    uuid_at,
    uvarint,
)

# (node id, host, port, rack)
NodeEndpoint = tuple[int, str, int, str | None]
# (partition, start, end of the record bytes in the request's buffer; -1, -1 for null)
PartitionData = tuple[int, int, int]
# (name or None, topic id or None, partitions)
TopicData = tuple[str | None, UUID | None, list[PartitionData]]

_ACKS = struct.Struct(">hii")
_ACKS_COMPACT = struct.Struct(">hi")
_PARTITION = struct.Struct(">ii")


class ProduceRequest:
    __slots__ = ("acks", "timeout_ms", "topics", "transactional_id")

    def __init__(
        self, transactional_id: str | None, acks: int, timeout_ms: int, topics: list[TopicData]
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics


def parse_produce(buf: Buffer, pos: int, end: int, version: int) -> ProduceRequest:
    """The request between pos and end; WireError if the bytes are malformed."""
    try:
        if version >= 9:
            request, pos = _parse_flexible(buf, pos, end, version)
        else:
            request, pos = _parse_classic(buf, pos, end, version)
    except (struct.error, IndexError):
        raise WireError("a produce request is cut short") from None
    if pos != end:
        raise WireError(f"a produce request ends {end - pos} bytes before its frame")
    return request


def _parse_classic(buf: Buffer, pos: int, end: int, version: int) -> tuple[ProduceRequest, int]:
    transactional_id = None
    if version >= 3:
        transactional_id, pos = nullable_string(buf, pos, end)
    acks, timeout_ms, topic_count = _ACKS.unpack_from(buf, pos)
    pos += 10
    topics: list[TopicData] = []
    if not 0 <= topic_count * 6 <= end - pos:
        raise WireError(f"{topic_count} topics do not fit in {end - pos} bytes")
    left = MAX_ITEMS - topic_count
    for _ in range(topic_count):
        (size,) = INT16.unpack_from(buf, pos)
        pos += 2
        if size < 0 or size > end - pos:
            raise WireError(f"a topic name has length {size}")
        name = text(buf, pos, pos + size)
        pos += size
        (count,) = INT32.unpack_from(buf, pos)
        pos += 4
        if not 0 <= count * 8 <= end - pos:
            raise WireError(f"{count} partitions do not fit in {end - pos} bytes")
        left -= count
        if left < 0:
            raise too_many_items()
        partitions: list[PartitionData] = []
        for _ in range(count):
            partition, size = _PARTITION.unpack_from(buf, pos)
            pos += 8
            if size >= 0:
                stop = pos + size
                if stop > end:
                    raise WireError(f"{size} bytes of records go past the end of the request")
                partitions.append((partition, pos, stop))
                pos = stop
            elif size == -1:
                partitions.append((partition, -1, -1))
            else:
                raise WireError(f"records have length {size}")
        topics.append((name, None, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics), pos


def _parse_flexible(buf: Buffer, pos: int, end: int, version: int) -> tuple[ProduceRequest, int]:
    by_id = version >= 13
    transactional_id = None
    if buf[pos]:
        transactional_id, pos = compact_nullable_string(buf, pos, end)
    else:
        pos += 1
    acks, timeout_ms = _ACKS_COMPACT.unpack_from(buf, pos)
    topic_count, pos = uvarint(buf, pos + 6)
    topics: list[TopicData] = []
    if not 0 <= (topic_count - 1) * 3 <= end - pos:
        raise WireError(f"{topic_count - 1} topics do not fit in {end - pos} bytes")
    left = MAX_ITEMS - topic_count
    for _ in range(topic_count - 1):
        name = topic_id = None
        if by_id:
            topic_id = uuid_at(buf, pos)
            pos += 16
        else:
            size, pos = uvarint(buf, pos)
            if size == 0 or size - 1 > end - pos:
                raise WireError(f"a topic name has length {size - 1}")
            name = text(buf, pos, pos + size - 1)
            pos += size - 1
        count, pos = uvarint(buf, pos)
        if not 0 <= (count - 1) * 6 <= end - pos:
            raise WireError(f"{count - 1} partitions do not fit in {end - pos} bytes")
        left -= count
        if left < 0:
            raise too_many_items()
        partitions: list[PartitionData] = []
        for _ in range(count - 1):
            (partition,) = INT32.unpack_from(buf, pos)
            size, pos = uvarint(buf, pos + 4)
            if size:
                stop = pos + size - 1
                if stop > end:
                    raise WireError(f"{size - 1} bytes of records go past the end of the request")
                partitions.append((partition, pos, stop))
                pos = stop
            else:
                partitions.append((partition, -1, -1))
            pos = skip_tags(buf, pos, end) if buf[pos] else pos + 1
        pos = skip_tags(buf, pos, end) if buf[pos] else pos + 1
        topics.append((name, topic_id, partitions))
    pos = skip_tags(buf, pos, end) if buf[pos] else pos + 1
    return ProduceRequest(transactional_id, acks, timeout_ms, topics), pos


class PartitionResult:
    """The result of one partition. `record_errors` are (batch index, message) pairs, `current_leader` is
    (leader id, leader epoch)."""

    __slots__ = (
        "base_offset",
        "current_leader",
        "error_code",
        "error_message",
        "index",
        "log_append_time",
        "log_start_offset",
        "record_errors",
    )

    def __init__(
        self,
        index: int,
        error_code: int = 0,
        base_offset: int = -1,
        log_append_time: int = -1,
        log_start_offset: int = -1,
        error_message: str | None = None,
        record_errors: Sequence[tuple[int, str | None]] = (),
        current_leader: tuple[int, int] | None = None,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self.log_start_offset = log_start_offset
        self.error_message = error_message
        self.record_errors = record_errors
        self.current_leader = current_leader


TopicResult = tuple[str | None, UUID | None, Sequence[PartitionResult]]

_BASIC = struct.Struct(">ihq")
_WITH_TIME = struct.Struct(">ihqq")
_WITH_START = struct.Struct(">ihqqq")
# One partition with no record errors, no message, no tagged fields of its own or of its topic, then
# the throttle time and no tagged fields of the response.
_FLEXIBLE_ONE = struct.Struct(">BihqqqBBBBiB")
_LEADER_TAG = struct.Struct(">BBBiiB")


def encode_produce_response(
    version: int,
    topics: Sequence[TopicResult],
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """The body of the response. `node_endpoints` and current leaders are sent from version 10 on."""
    if version >= 9:
        if len(topics) == 1 and not node_endpoints:
            name, topic_id, partitions = topics[0]
            if len(partitions) == 1:
                one = partitions[0]
                if not one.record_errors and one.error_message is None and one.current_leader is None:
                    return (
                        b"\x02"
                        + _flexible_topic(version, name, topic_id)
                        + _FLEXIBLE_ONE.pack(
                            2,
                            one.index,
                            one.error_code,
                            one.base_offset,
                            one.log_append_time,
                            one.log_start_offset,
                            1,
                            0,
                            0,
                            0,
                            throttle_ms,
                            0,
                        )
                    )
        return _encode_flexible(version, topics, throttle_ms, node_endpoints)
    return _encode_classic(version, topics, throttle_ms)


def _encode_classic(version: int, topics: Sequence[TopicResult], throttle_ms: int) -> bytes:
    out = bytearray(INT32.pack(len(topics)))
    for name, _, partitions in topics:
        out += encode_string(name or "")
        out += INT32.pack(len(partitions))
        for one in partitions:
            if version >= 5:
                out += _WITH_START.pack(
                    one.index, one.error_code, one.base_offset, one.log_append_time, one.log_start_offset
                )
            elif version >= 2:
                out += _WITH_TIME.pack(one.index, one.error_code, one.base_offset, one.log_append_time)
            else:
                out += _BASIC.pack(one.index, one.error_code, one.base_offset)
            if version >= 8:
                out += INT32.pack(len(one.record_errors))
                for batch_index, message in one.record_errors:
                    out += INT32.pack(batch_index)
                    out += encode_nullable_string(message)
                out += encode_nullable_string(one.error_message)
    if version >= 1:
        out += INT32.pack(throttle_ms)
    return bytes(out)


def _flexible_topic(version: int, name: str | None, topic_id: UUID | None) -> bytes:
    if version >= 13:
        return (topic_id or ZERO_UUID).bytes
    return encode_compact_string(name or "")


def _encode_flexible(
    version: int, topics: Sequence[TopicResult], throttle_ms: int, node_endpoints: Sequence[NodeEndpoint]
) -> bytes:
    out = bytearray(encode_uvarint(len(topics) + 1))
    for name, topic_id, partitions in topics:
        out += _flexible_topic(version, name, topic_id)
        out += encode_uvarint(len(partitions) + 1)
        for one in partitions:
            out += _WITH_START.pack(
                one.index, one.error_code, one.base_offset, one.log_append_time, one.log_start_offset
            )
            out += encode_uvarint(len(one.record_errors) + 1)
            for batch_index, message in one.record_errors:
                out += INT32.pack(batch_index)
                out += encode_compact_nullable_string(message)
                out.append(0)
            out += encode_compact_nullable_string(one.error_message)
            if one.current_leader is not None and version >= 10:
                # One tagged field: tag 0, nine bytes, of which the last ends the struct's own tags.
                out += _LEADER_TAG.pack(1, 0, 9, *one.current_leader, 0)
            else:
                out.append(0)
        out.append(0)
    out += INT32.pack(throttle_ms)
    if node_endpoints and version >= 10:
        out += encode_endpoints_tag(node_endpoints)
    else:
        out.append(0)
    return bytes(out)


def encode_endpoints_tag(node_endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The tagged fields of a response that has only tag 0, the node endpoints (KIP-951)."""
    body = bytearray(encode_uvarint(len(node_endpoints) + 1))
    for node_id, host, port, rack in node_endpoints:
        body += INT32.pack(node_id)
        body += encode_compact_string(host)
        body += INT32.pack(port)
        body += encode_compact_nullable_string(rack)
        body.append(0)
    return b"\x01\x00" + encode_uvarint(len(body)) + body
