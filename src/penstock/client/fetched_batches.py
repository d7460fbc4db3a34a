"""Fetched bytes as a list of the record batches that an application may see. Pure, reads headers only.

Leaves out control batches and, with `read_committed`, the batches of aborted transactions, so that later code
need not know about transactions. The CRC of each returned batch was verified.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from penstock.client.settings import READ_COMMITTED
from penstock.errors import CorruptMessage, UnsupportedForMessageFormat
from penstock.wire.batches.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    TRANSACTIONAL,
)
from penstock.wire.batches.records import iter_records, parse_control

_SIZE = struct.Struct(">qi")
_HEADER = struct.Struct(">qiibIhiqqqhii")


class Batch(NamedTuple):
    """The position of a batch's records in the data, their codec, and what its header adds to them."""

    start: int
    end: int
    codec: int
    records: int
    base_offset: int
    base_timestamp: int
    """The timestamp of every record if `log_append_time`, else the base of the records' deltas."""
    log_append_time: bool


class Scan(NamedTuple):
    """The batches with visible records, and the offset after the last complete batch, visible or not."""

    batches: list[Batch]
    next_offset: int


def scan(
    data: memoryview,
    offset: int,
    end: int,
    *,
    isolation: int,
    aborted: Sequence[tuple[int, int]],
    check_crcs: bool = True,
) -> Scan:
    """The batches in `data` that may hold records from `offset` to before `end`.

    `aborted` are (producer id, first offset) pairs from the fetch response. An incomplete batch at the end of
    the data is ignored. CorruptMessage names the damaged batch.
    """
    batches: list[Batch] = []
    pos, stop = 0, len(data)
    next_offset = offset
    to_come = sorted((first, producer) for producer, first in aborted) if isolation == READ_COMMITTED else []
    aborting: set[int] = set()
    while stop - pos > MAGIC_POSITION and next_offset < end:
        base_offset, length = _SIZE.unpack_from(data, pos)
        batch_end = pos + LOG_OVERHEAD + length
        magic = data[pos + MAGIC_POSITION]
        if magic != 2:
            raise _other_magic(magic, base_offset)
        if length < HEADER_SIZE - LOG_OVERHEAD:
            raise CorruptMessage(f"the batch at offset {base_offset} declares length {length}, too short")
        if batch_end > stop:
            break
        header = _HEADER.unpack_from(data, pos)
        _, _, _, _, crc, attributes, last_delta, base_time, max_time, producer_id, _, _, count = header
        last_offset = base_offset + last_delta
        if last_offset >= offset and base_offset < end:
            if check_crcs and crc32c(data[pos + ATTRIBUTES_POSITION : batch_end]) != crc:
                raise CorruptMessage(
                    f"the CRC of the batch at offset {base_offset} is wrong: "
                    "it is damaged on the broker's disk or on the way"
                )
            if not 0 <= count <= last_delta + 1:
                raise CorruptMessage(
                    f"the batch at offset {base_offset} has {count} records for {last_delta + 1} offsets"
                )
        while to_come and to_come[0][0] <= last_offset:
            aborting.add(to_come.pop(0)[1])
        if attributes & CONTROL:
            if producer_id in aborting and _is_abort(data, pos, base_offset):
                aborting.discard(producer_id)
        elif attributes & TRANSACTIONAL and producer_id in aborting:
            pass
        elif count and last_offset >= offset and base_offset < end:
            append_time = attributes & LOG_APPEND_TIME != 0
            batches.append(
                Batch(
                    pos + HEADER_SIZE,
                    batch_end,
                    attributes & CODEC_MASK,
                    count,
                    base_offset,
                    max_time if append_time else base_time,
                    append_time,
                )
            )
        next_offset = max(next_offset, last_offset + 1)
        pos = batch_end
    return Scan(batches, next_offset)


def _is_abort(data: memoryview, pos: int, base_offset: int) -> bool:
    for record in iter_records(data, pos):
        return parse_control(record)[0] == "abort"
    return False  # compaction has removed the marker


def _other_magic(magic: int, offset: int) -> UnsupportedForMessageFormat | CorruptMessage:
    if magic in (0, 1):
        return UnsupportedForMessageFormat(
            f"the records at offset {offset} are in format {magic}, from before Kafka 0.11, "
            "which is not supported: copy the topic with a current producer"
        )
    return CorruptMessage(f"the bytes at offset {offset} say magic {magic}: they are not a record batch")
