"""Fetched bytes as batches for the target: copied unchanged, or re-encoded if necessary. Pure.

A batch is copied with its compression, timestamps, keys, values and headers unchanged. Its records are
decoded and re-encoded only if a producer may not send such a batch: compaction has left gaps in its offsets,
its timestamps are the broker's (LogAppendTime), or its first records are not wanted. Transaction markers and,
with `read_committed`, records of aborted transactions are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.client import FetchedBytes
from penstock.client.fetched_batches import scan
from penstock.wire.batches.records import HEADER_SIZE, build_batch, iter_records, read_header

_NO_END = 1 << 62


class CopiedBatch(NamedTuple):
    """A batch for a producer, and the source's offset of each of its records."""

    data: bytes | memoryview
    offsets: Sequence[int]


def batches_to_copy(
    fetched: FetchedBytes, position: int, *, isolation: int, check_crcs: bool = True
) -> tuple[list[CopiedBatch], int]:
    """The batches with records from `position` on, and where to continue."""
    found = scan(
        fetched.data,
        position,
        _NO_END,
        isolation=isolation,
        aborted=fetched.aborted,
        check_crcs=check_crcs,
    )
    copied = []
    for each in found.batches:
        batch = _copied(fetched.data, each.start - HEADER_SIZE, each.end, position)
        if batch is not None:
            copied.append(batch)
    return copied, found.next_offset


def _copied(data: memoryview, start: int, end: int, position: int) -> CopiedBatch | None:
    header = read_header(data, start)
    whole = header.count == header.last_offset_delta + 1
    if (
        whole
        and header.base_offset >= position
        and not (header.is_log_append_time or header.has_delete_horizon)
    ):
        offsets = range(header.base_offset, header.base_offset + header.count)
        return CopiedBatch(data[start:end], offsets)
    records = [record for record in iter_records(data[:end], start) if record.offset >= position]
    if not records:
        return None
    return CopiedBatch(build_batch(records, codec=header.codec), [record.offset for record in records])
