"""What a follower may ask for before it has appended what it was sent last. Pure.

To fetch from an offset says that all before it is there, which is not yet true of what is asked for ahead. So
it is done below the high watermark only: a follower that is behind it is not in sync, and does not get so by
what it says there; and one that is in sync never is behind it, since the high watermark waits for it.
"""

from __future__ import annotations

from penstock.wire.batches.batch import HEADER_SIZE, LOG_OVERHEAD, read_header
from penstock.wire.primitives import INT32
from penstock.wire.replica_fetch import ReplicaPartition, ReplicaResult

_LENGTH_POSITION = 8  # within a batch


def next_wanted(asked: ReplicaPartition, result: ReplicaResult, frame: bytearray) -> ReplicaPartition | None:
    """What to ask for next, if the answer is appended as it is; None where that has to be seen first."""
    if result.error_code or result.diverging_epoch is not None:
        return None
    offset, epoch = _end_of(frame, result.start, result.end)
    if not asked.fetch_offset < offset < result.high_watermark:
        return None
    return asked._replace(fetch_offset=offset, last_fetched_epoch=epoch)


def _end_of(frame: bytearray, position: int, end: int) -> tuple[int, int]:
    """The offset after the last whole batch, and its leader epoch; (-1, -1) without one."""
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
