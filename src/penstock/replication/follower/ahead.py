"""Fetching ahead: what a follower may request before it has appended the last response. Pure.

A fetch from an offset tells the leader that the follower has all records before it, which is not yet true for
a fetch ahead. So a follower fetches ahead only below the high watermark: there it is not in sync, and a fetch
offset below the high watermark cannot make it join the ISR. An in-sync follower is never below the high
watermark, because the high watermark does not advance without it.
"""

from __future__ import annotations

from penstock.wire.batches.batch import HEADER_SIZE, LOG_OVERHEAD, read_header
from penstock.wire.primitives import INT32
from penstock.wire.replica_fetch import ReplicaPartition, ReplicaResult

_LENGTH_POSITION = 8  # within a batch


def next_wanted(asked: ReplicaPartition, result: ReplicaResult, frame: bytearray) -> ReplicaPartition | None:
    """The next fetch of this partition, assuming that the result is appended; None if that is not certain, or
    if the next fetch would not be below the high watermark."""
    if result.error_code or result.diverging_epoch is not None:
        return None
    offset, epoch = _end_of(frame, result.start, result.end)
    if not asked.fetch_offset < offset < result.high_watermark:
        return None
    return asked._replace(fetch_offset=offset, last_fetched_epoch=epoch)


def _end_of(frame: bytearray, position: int, end: int) -> tuple[int, int]:
    """The offset after the last complete batch, and its leader epoch; (-1, -1) if there is no complete
    batch."""
    last = -1
    while position + HEADER_SIZE <= end:
        (length,) = INT32.unpack_from(frame, position + _LENGTH_POSITION)
        if length <= 0 or position + LOG_OVERHEAD + length > end:
            break
        last, position = position, position + LOG_OVERHEAD + length
    if last < 0:
        return -1, -1
    header = read_header(frame, last)
    return header.last_offset + 1, header.leader_epoch
