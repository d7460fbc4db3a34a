"""Requests in exact versions, and record bytes made by hand, for tests of the protocol itself."""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Iterable

from penstock.testing import WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import BatchHeader, Record, build_batch, read_header
from penstock.wire.codec import Message

NOW = 1_750_000_000_000


def batch_of(
    values: Iterable[bytes | None],
    *,
    key: bytes | None = None,
    timestamp: int = NOW,
    codec: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A batch of format 2; `producer` is (id, epoch, first sequence)."""
    producer_id, producer_epoch, base_sequence = producer
    return build_batch(
        [Record(0, timestamp, key, value) for value in values],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def old_message(magic: int, value: bytes, timestamp: int = NOW) -> bytes:
    """A message set of one message in format 0 or 1, as clients before Kafka 0.11 sent it."""
    fields = struct.pack(">bb", magic, 0) + (struct.pack(">q", timestamp) if magic == 1 else b"")
    body = fields + struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def topic_id(wire: WireClient, topic: str) -> uuid.UUID:
    answer = wire.request(ApiKey.METADATA, 12, Message(topics=[Message(name=topic)]))
    found: uuid.UUID = answer.topics[0].topic_id
    return found


def produce_request(wire: WireClient, topic: str, version: int, records: bytes, acks: int = -1) -> Message:
    data = Message(name=topic, partition_data=[Message(index=0, records=records)])
    if version >= 13:
        data.topic_id = topic_id(wire, topic)
    return Message(transactional_id=None, acks=acks, timeout_ms=10_000, topic_data=[data])


def produce(wire: WireClient, topic: str, records: bytes, version: int = 9) -> Message:
    """The answer for partition 0."""
    answer = wire.request(ApiKey.PRODUCE, version, produce_request(wire, topic, version, records))
    return answer.responses[0].partition_responses[0]


def init_producer(wire: WireClient) -> tuple[int, int]:
    request = Message(transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1)
    answer = wire.request(ApiKey.INIT_PRODUCER_ID, 4, request)
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


def stored_batches(wire: WireClient, topic: str) -> list[BatchHeader]:
    """The headers of the batches of partition 0, as a consumer gets them."""
    partition = Message(partition=0, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1 << 20)
    request = Message(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=0,
        session_epoch=-1,
        topics=[Message(topic=topic, partitions=[partition])],
    )
    stored = wire.request(ApiKey.FETCH, 11, request).responses[0].partitions[0].records
    headers, position = [], 0
    while position < len(stored):
        headers.append(read_header(stored, position))
        position += headers[-1].size
    return headers
