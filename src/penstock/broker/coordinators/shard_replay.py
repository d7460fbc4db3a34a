"""A shard's state from its partition: every record is replayed, and what nobody can read is skipped."""

from __future__ import annotations

import logging
import struct

from penstock.coordinator import Producer, Shard, StateRecord
from penstock.errors import PenstockError, WireError
from penstock.log.partition_log import PartitionLog
from penstock.wire.batches.records import BatchHeader, iter_records, parse_control

_UNREADABLE = (PenstockError, struct.error, ValueError, LookupError)
"""What bytes that no coordinator wrote can lead to when they are replayed."""

log = logging.getLogger(__name__)


def replay(shard: Shard, partition_log: PartitionLog, start: int) -> int:
    """Replay the log from `start`. Returns the offset after the last record that was replayed."""
    end = partition_log.log_end_offset
    for segment, position, header in partition_log.headers(start):
        if header.base_offset >= end:
            break
        if header.base_offset < start or header.count == 0:
            continue
        batch = segment.batch(position, header)  # a disk that cannot be read stops it: nothing is left out
        try:
            _replay_batch(shard, batch, header, segment.file.path)
        except _UNREADABLE as error:
            log.error("%s: skipped batch %d: %r", segment.file.path, header.base_offset, error)
    return end


def _replay_batch(shard: Shard, batch: bytes, header: BatchHeader, path: str) -> None:
    producer = None
    if header.is_transactional:
        producer = Producer(header.producer_id, header.producer_epoch)
    if header.is_control:
        kind, _ = parse_control(next(iter_records(batch)))
        if producer is not None:
            shard.replay_marker(producer, kind == "commit")
        return
    for record in iter_records(batch):
        try:
            if record.key is None:
                raise WireError("it has no key")
            shard.replay(StateRecord(record.key, record.value), timestamp=record.timestamp, producer=producer)
        except _UNREADABLE as error:
            # One bad record must not take all groups of the partition with it.
            log.error("%s: skipped record %d: %r", path, record.offset, error)
