"""Builds a shard's state from its partition: replays every record, and skips records that cannot be read."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from penstock.coordinator import Producer, Shard, StateRecord
from penstock.errors import PenstockError, WireError
from penstock.log.partition_log import PartitionLog
from penstock.wire.batches.records import BatchHeader, iter_records, parse_control

_UNREADABLE = (PenstockError, struct.error, ValueError, LookupError)
"""The errors that replaying bytes which no coordinator wrote can raise."""

log = logging.getLogger(__name__)


_SLICE_BYTES = 1 << 13
"""How many bytes are replayed in one iteration of the event loop: less than a millisecond of work."""
_READ_BYTES = 1 << 20


class StoredBatch(NamedTuple):
    header: BatchHeader
    data: bytes
    path: str


def replay(shard: Shard, partition_log: PartitionLog, start: int) -> int:
    """Replay the log from `start`. Returns the offset after the last record that was replayed."""
    batches, end = read_batches(partition_log, start, None)
    for _ in replaying(shard, batches):
        pass
    return end


def read_batches(
    partition_log: PartitionLog, start: int, most_bytes: int | None = _READ_BYTES
) -> tuple[list[StoredBatch], int]:
    """The batches from `start` on, and the offset to continue at. May run in a thread."""
    end = partition_log.log_end_offset
    found: list[StoredBatch] = []
    size = 0
    for segment, position, header in partition_log.headers(start):
        if header.base_offset >= end:
            break
        if header.base_offset < start or header.count == 0:
            continue
        if most_bytes is not None and size >= most_bytes:
            return found, header.base_offset
        # A disk error stops the load, so that no record is left out.
        found.append(StoredBatch(header, segment.batch(position, header), segment.file.path))
        size += header.size
    return found, end


def replaying(shard: Shard, batches: Iterable[StoredBatch]) -> Iterator[None]:
    """Replay the batches in steps; the caller decides when to continue with the next one."""
    size = 0
    for batch in batches:
        try:
            for length in _replay_batch(shard, batch):
                size += length
                if size >= _SLICE_BYTES:
                    size = 0
                    yield
        except _UNREADABLE as error:
            log.error("%s: skipped batch %d: %r", batch.path, batch.header.base_offset, error)


def _replay_batch(shard: Shard, batch: StoredBatch) -> Iterator[int]:
    """Yields the size of each replayed record."""
    header = batch.header
    producer = None
    if header.is_transactional:
        producer = Producer(header.producer_id, header.producer_epoch)
    if header.is_control:
        kind, _ = parse_control(next(iter_records(batch.data)))
        if producer is not None:
            shard.replay_marker(producer, kind == "commit")
        return
    for record in iter_records(batch.data):
        try:
            if record.key is None:
                raise WireError("it has no key")
            shard.replay(StateRecord(record.key, record.value), timestamp=record.timestamp, producer=producer)
        except _UNREADABLE as error:
            # One bad record must not make all groups of the partition unavailable.
            log.error("%s: skipped record %d: %r", batch.path, record.offset, error)
        yield len(record.key or b"") + len(record.value or b"")
