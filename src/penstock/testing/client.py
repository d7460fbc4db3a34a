"""Topics and records for tests: the wire protocol behind the helpers of `PenstockBroker`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import OffsetNotAvailable, error_for_code
from penstock.testing.wire_client import WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import compression as codecs
from penstock.wire.batches.records import Record, build_batch, iter_records, parse_control, read_header
from penstock.wire.codec import Message

__all__ = ["ConsumedRecord", "RecordLike", "WireClient", "connect", "consume", "create_topic", "produce"]

# The newest versions that identify topics by name: a helper should not need a topic's id.
_PRODUCE, _FETCH, _LIST_OFFSETS = 9, 12, 7
_CREATE_TOPICS, _DELETE_TOPICS, _METADATA = 7, 6, 12
_ISOLATION = {"read_uncommitted": 0, "read_committed": 1}
_EARLIEST, _LATEST = -2, -1
_FETCH_BYTES = 8 << 20
_LONGEST_POLL_MS = 500
_RETRY_BACKOFF = 0.02

RecordLike = bytes | str | None | tuple[Any, Any] | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """A record with its position."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def connect(port: int, *, timeout: float = 10.0) -> WireClient:
    # Longer than the waits it is used for: those end with a response, not with a socket timeout.
    return WireClient(port, timeout=timeout + 10.0)


def create_topic(wire: WireClient, name: str, partitions: int, config: Mapping[str, str]) -> None:
    topic = Message(
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        assignments=[],
        configs=[Message(name=key, value=value) for key, value in config.items()],
    )
    request = Message(topics=[topic], timeout_ms=10_000, validate_only=False)
    _check(wire.request(ApiKey.CREATE_TOPICS, _CREATE_TOPICS, request).topics[0])


def delete_topic(wire: WireClient, name: str) -> None:
    request = Message(topics=[Message(name=name)], timeout_ms=10_000)
    _check(wire.request(ApiKey.DELETE_TOPICS, _DELETE_TOPICS, request).responses[0])


def partition_count(wire: WireClient, topic: str) -> int:
    request = Message(topics=[Message(name=topic)], allow_auto_topic_creation=False)
    answer = wire.request(ApiKey.METADATA, _METADATA, request).topics[0]
    _check(answer)
    return len(answer.partitions)


def produce(
    wire: WireClient,
    topic: str,
    records: Iterable[RecordLike],
    *,
    partition: int = 0,
    compression: str = "none",
    now_ms: int,
) -> list[ConsumedRecord]:
    codec = _codec(compression)
    given = [_given(topic, record, partition, now_ms) for record in records]
    by_partition: dict[int, list[int]] = {}
    for index, record in enumerate(given):
        by_partition.setdefault(record.partition, []).append(index)
    stored = list(given)
    for target, indexes in by_partition.items():
        batch = build_batch(
            [Record(0, given[i].timestamp, given[i].key, given[i].value, given[i].headers) for i in indexes],
            codec=codec,
        )
        answer = _produce_batch(wire, topic, target, batch)
        appended = answer.log_append_time_ms
        for delta, i in enumerate(indexes):
            record = given[i]
            stored[i] = ConsumedRecord(
                topic,
                target,
                answer.base_offset + delta,
                record.timestamp if appended == -1 else appended,
                record.key,
                record.value,
                record.headers,
            )
    return stored


def _produce_batch(wire: WireClient, topic: str, partition: int, batch: bytes) -> Message:
    data = Message(name=topic, partition_data=[Message(index=partition, records=batch)])
    request = Message(transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=[data])
    answer: Message = wire.request(ApiKey.PRODUCE, _PRODUCE, request).responses[0].partition_responses[0]
    _check(answer)
    return answer


def consume(
    wire: WireClient,
    topic: str,
    count: int | None = None,
    *,
    partition: int | None = None,
    offset: int = 0,
    isolation: str = "read_uncommitted",
    timeout: float = 10.0,
) -> list[ConsumedRecord]:
    if isolation not in _ISOLATION:
        raise ValueError(f"isolation={isolation!r}: must be one of {', '.join(_ISOLATION)}")
    partitions = range(partition_count(wire, topic)) if partition is None else [partition]
    level = _ISOLATION[isolation]
    deadline = time.monotonic() + timeout
    starts = _list_offsets(wire, topic, partitions, _EARLIEST, level, deadline)
    positions = {p: max(offset, starts[p]) for p in partitions}
    # Without a count: the records up to the current end, without waiting for more.
    ends = _list_offsets(wire, topic, partitions, _LATEST, level, deadline) if count is None else None
    records: list[ConsumedRecord] = []
    while True:
        open_positions = {
            p: position for p, position in positions.items() if ends is None or position < ends[p]
        }
        if (count is not None and len(records) >= count) or not open_positions:
            return records[:count]
        left_ms = round((deadline - time.monotonic()) * 1000)
        if left_ms <= 0:
            wanted = "all" if count is None else count
            raise TimeoutError(f"{len(records)} of {wanted} records of {topic} after {timeout} s")
        for found in _fetch(wire, topic, open_positions, level, min(left_ms, _LONGEST_POLL_MS)):
            if found.error_code:
                raise error_for_code(found.error_code)(f"fetching {topic}-{found.partition_index}")
            index = found.partition_index
            for header_last_offset, batch_records in _visible(found):
                for record in batch_records:
                    if record.offset >= positions[index]:
                        records.append(
                            ConsumedRecord(
                                topic,
                                index,
                                record.offset,
                                record.timestamp,
                                record.key,
                                record.value,
                                tuple(record.headers),
                            )
                        )
                positions[index] = max(positions[index], header_last_offset + 1)


def _fetch(
    wire: WireClient, topic: str, positions: Mapping[int, int], isolation: int, max_wait_ms: int
) -> list[Any]:
    partitions = [
        Message(
            partition=partition,
            current_leader_epoch=-1,
            fetch_offset=position,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=_FETCH_BYTES,
        )
        for partition, position in positions.items()
    ]
    request = Message(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=_FETCH_BYTES,
        isolation_level=isolation,
        session_id=0,
        session_epoch=-1,
        topics=[Message(topic=topic, partitions=partitions)],
        forgotten_topics_data=[],
        rack_id="",
    )
    answer = wire.request(ApiKey.FETCH, _FETCH, request)
    _check(answer)
    return [found for each in answer.responses for found in each.partitions]


def _visible(found: Message) -> Iterator[tuple[int, list[Record]]]:
    """Each complete batch's last offset and the records that an application sees of it."""
    data = found.records or b""
    # A producer's records are hidden from the first offset of its aborted transaction up to the marker.
    aborts = sorted((t.first_offset, t.producer_id) for t in found.aborted_transactions or [])
    aborting: set[int] = set()
    pos = 0
    while pos + 12 <= len(data):
        header = read_header(data, pos) if pos + 61 <= len(data) else None
        if header is None or pos + header.size > len(data):
            return  # the fetch limit truncated the batch
        while aborts and aborts[0][0] <= header.last_offset:
            aborting.add(aborts.pop(0)[1])
        if header.is_control:
            records: list[Record] = []
            if any(parse_control(record)[0] == "abort" for record in iter_records(data, pos)):
                aborting.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in aborting:
            records = []
        else:
            records = list(iter_records(data, pos))
        yield header.last_offset, records
        pos += header.size


def _list_offsets(
    wire: WireClient, topic: str, partitions: Iterable[int], timestamp: int, isolation: int, deadline: float
) -> dict[int, int]:
    while True:
        try:
            return _list_offsets_once(wire, topic, partitions, timestamp, isolation)
        except OffsetNotAvailable:
            # A leader that has just started does not know its high watermark yet (KIP-207).
            if time.monotonic() >= deadline:
                raise
            time.sleep(_RETRY_BACKOFF)


def _list_offsets_once(
    wire: WireClient, topic: str, partitions: Iterable[int], timestamp: int, isolation: int
) -> dict[int, int]:
    asked = [Message(partition_index=p, current_leader_epoch=-1, timestamp=timestamp) for p in partitions]
    request = Message(
        replica_id=-1, isolation_level=isolation, topics=[Message(name=topic, partitions=asked)]
    )
    answer = wire.request(ApiKey.LIST_OFFSETS, _LIST_OFFSETS, request).topics[0]
    for each in answer.partitions:
        _check(each)
    return {each.partition_index: each.offset for each in answer.partitions}


def _given(topic: str, record: RecordLike, partition: int, now: int) -> ConsumedRecord:
    if isinstance(record, tuple):
        key, value = record
        return ConsumedRecord(topic, partition, -1, now, _bytes(key), _bytes(value))
    if isinstance(record, Mapping):
        unknown = set(record) - {"key", "value", "headers", "timestamp", "partition"}
        if unknown:
            raise ValueError(f"a record has no {', '.join(sorted(map(repr, unknown)))}")
        headers = record.get("headers") or ()
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        return ConsumedRecord(
            topic,
            record.get("partition", partition),
            -1,
            record.get("timestamp", now),
            _bytes(record.get("key")),
            _bytes(record.get("value")),
            tuple((name, _bytes(data)) for name, data in pairs),
        )
    return ConsumedRecord(topic, partition, -1, now, None, _bytes(record))


def _bytes(data: Any) -> bytes | None:
    if isinstance(data, str):
        return data.encode()
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    raise TypeError(f"{data!r}: keys, values and headers are bytes, str or None")


def _codec(name: str) -> int:
    if name not in codecs.NAMES:
        raise ValueError(f"compression={name!r}: must be one of {', '.join(codecs.NAMES)}")
    return codecs.NAMES.index(name)


def _check(answer: Message) -> None:
    if answer.error_code:
        raise error_for_code(answer.error_code)(getattr(answer, "error_message", None))
