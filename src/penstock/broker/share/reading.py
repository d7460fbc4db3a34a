"""Reads a partition for a share group: batches from the log, and which of them can be delivered."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from penstock.errors import CorruptMessage, InvalidRecord, UnsupportedCompressionType
from penstock.groups.share.batches import StateBatch
from penstock.groups.share.partition import Acquired, BatchSpan, SharePartition
from penstock.replication.partition import READ_COMMITTED, Partition
from penstock.wire.batches.records import HEADER_SIZE, Record, iter_records, read_header

UNREADABLE = "penstock.share.unreadable"
_READ_BYTES = 1 << 20
_MOST_READS = 16
"""The limit for one partition of a request, so that it does not block the event loop for long."""


class Acquisition(NamedTuple):
    records: bytes
    acquired: list[Acquired]
    written: list[StateBatch]


def acquire(
    share: SharePartition,
    partition: Partition,
    member: str,
    isolation_level: int,
    max_bytes: int,
    max_records: int,
    deadline: int,
    *,
    batch_size: int,
    exact: bool,
) -> Acquisition:
    """Acquire available records for the member; returns them with the bytes of their batches.

    At least one batch is read, however large, so that a member can get past it (KIP-74). The log is read in
    pieces, because a member may request far more bytes than it can take records. Acquired records are divided
    into batches of about `batch_size`, for members that acknowledge whole batches.
    """
    log = partition.log
    share.log_starts_at(log.log_start_offset)
    pieces: list[bytes] = []
    acquired: list[Acquired] = []
    written: list[StateBatch] = []
    for _ in range(_MOST_READS):
        bound = partition.upper_bound(isolation_level)
        offset = share.wants(bound)
        if offset is None or max_records <= 0:
            break
        size = min(max_bytes, _READ_BYTES)
        slices = log.read(offset, size, bound, min_one=not acquired)
        data = b"".join(piece.read() for piece in slices)
        found = _spans(data)
        if not found:
            break
        spans = [span for span, _, _ in found]
        if isolation_level == READ_COMMITTED:
            spans = _committed(partition, offset, found)
        taken, changed = share.acquire(member, spans, offset, max_records, deadline, exact=exact)
        written += changed
        if taken:
            acquired += _in_batches(taken, spans, batch_size)
            pieces.append(_bytes_of(data, found, taken))
            max_bytes -= len(pieces[-1])
            max_records -= sum(one.last - one.first + 1 for one in taken)
        elif not changed:
            break
    return Acquisition(b"".join(pieces), acquired, written)


def _in_batches(taken: list[Acquired], spans: list[BatchSpan], batch_size: int) -> Iterator[Acquired]:
    """Divides acquired records into batches of at least `batch_size` records (the last may be smaller), at
    the boundaries of record batches."""
    starts = [span.first for span in spans]
    for one in taken:
        first = one.first
        if 0 < batch_size <= one.last - first:
            for start in starts[bisect_right(starts, first) : bisect_right(starts, one.last)]:
                if start - first >= batch_size:
                    yield one._replace(first=first, last=start - 1)
                    first = start
        yield one._replace(first=first)


class _Found(NamedTuple):
    span: BatchSpan
    position: int
    producer_id: int  # -1 if it belongs to no transaction


def _spans(data: bytes) -> list[_Found]:
    found = []
    position = 0
    while position + HEADER_SIZE <= len(data):
        header = read_header(data, position)
        if position + header.size > len(data):
            break
        span = BatchSpan(header.base_offset, header.last_offset, not header.is_control and header.count > 0)
        found.append(_Found(span, position, header.producer_id if header.is_transactional else -1))
        position += header.size
    return found


def _committed(partition: Partition, offset: int, found: list[_Found]) -> list[BatchSpan]:
    """The batches without those of aborted transactions, which are not delivered."""
    end = found[-1].span.last + 1
    aborted: dict[int, list[tuple[int, int]]] = {}
    for transaction in partition.log.aborted_transactions(min(offset, found[0].span.first), end):
        one = (transaction.first_offset, transaction.last_offset)
        aborted.setdefault(transaction.producer_id, []).append(one)
    return [
        span._replace(deliverable=False)
        if any(first <= span.first <= last for first, last in aborted.get(producer_id, ()))
        else span
        for span, _, producer_id in found
    ]


def _bytes_of(data: bytes, found: list[_Found], acquired: list[Acquired]) -> bytes:
    """The bytes from the first to the last batch with acquired records; members skip the other records."""
    first, last = acquired[0].first, acquired[-1].last
    begin = next(position for span, position, _ in found if span.last >= first)
    end = next((position for span, position, _ in found if span.first > last), len(data))
    return data[begin:end]


def readable_bytes(share: SharePartition, partition: Partition, isolation_level: int, max_bytes: int) -> int:
    """How many bytes a fetch would return now; 0 if nothing can be acquired."""
    bound = partition.upper_bound(isolation_level)
    offset = share.wants(bound)
    if offset is None or offset < partition.log.log_start_offset:
        return 0 if offset is None else 1
    return sum(len(piece) for piece in partition.log.read(offset, max_bytes, bound))


def records_between(partition: Partition, first: int, last: int) -> Iterator[Record]:
    """The records that still exist in this range of offsets. One that cannot be read is returned empty, with
    an additional header."""
    for segment, position, header in partition.log.headers(first):
        if header.base_offset > last:
            return
        if header.is_control or header.count == 0:
            continue
        batch = segment.batch(position, header)
        try:
            records = list(iter_records(batch))
        except (CorruptMessage, InvalidRecord, UnsupportedCompressionType) as error:
            # A record may have been rejected because it cannot be read: report it without its content.
            records = [
                Record(offset, header.max_timestamp, None, None, ((UNREADABLE, str(error).encode()),))
                for offset in range(max(first, header.base_offset), min(last, header.last_offset) + 1)
            ]
        yield from (record for record in records if first <= record.offset <= last)
