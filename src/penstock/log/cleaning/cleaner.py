"""Compaction of one log, in a separate process: reads segments and writes `.cleaned` ones, without swapping
them.

There are two passes. The first maps each key of the dirty part to its newest offset, until the map is full.
The second copies every segment up to that end, without superseded records, without aborted data, and without
tombstones and markers whose delete horizon has passed. Offsets do not change.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass

from penstock.errors import ApiError
from penstock.fs import REAL_FS, Fs
from penstock.log.cleaning.batch_filter import RawRecord, filter_batch, payload, raw_records
from penstock.log.cleaning.cleaned_segment import CleanedSegment, discard_cleaned
from penstock.log.cleaning.cleaned_transactions import CleanedTransactions, read_aborted
from penstock.log.cleaning.compaction import CleanJob, CompactedSegment, group_segments
from penstock.log.cleaning.offset_map import OffsetMap
from penstock.log.recovery.scan import CorruptSegment, scan_batches, segment_path
from penstock.wire.batches.records import BatchHeader


@dataclass(frozen=True, slots=True)
class CleanedGroup:
    """The old segments that become the one segment `new_base_offset`, whose `.cleaned` files are on disk."""

    old_base_offsets: tuple[int, ...]
    new_base_offset: int
    old_size: int


@dataclass(frozen=True, slots=True)
class CleanStats:
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    invalid_records: int = 0  # without a key, which a compacted topic does not accept
    map_utilization: float = 0.0


@dataclass(frozen=True, slots=True)
class CleanResult:
    """The groups must be swapped in this order, oldest first: a tombstone must not be removed before the
    records that it deletes.

    Afterwards the cleaner checkpoint of the log is `end_offset`, the first offset that was not cleaned.
    """

    topic: str
    partition: int
    groups: tuple[CleanedGroup, ...]
    end_offset: int
    stats: CleanStats
    truncations: int = 0


def clean(job: CleanJob, fs: Fs = REAL_FS) -> CleanResult:
    """Run a job. Raises CorruptSegment for a batch that cannot be read, OSError for a disk error; in both
    cases no `.cleaned` file is left and the log is unchanged."""
    return _Cleaner(job, fs).run()


class _Cleaner:
    def __init__(self, job: CleanJob, fs: Fs) -> None:
        self.job = job
        self.fs = fs
        span = job.first_uncleanable_offset - job.first_dirty_offset
        self.map = OffsetMap(job.dedupe_buffer_bytes, job.dedupe_load_factor, expected=span)
        self.aborted = read_aborted(
            job.directory, job.txn_index_base_offsets, job.first_uncleanable_offset, fs
        )
        self.end_offset = job.first_dirty_offset
        self.bytes_read = self.bytes_written = 0
        self.records_read = self.records_written = self.invalid_records = 0
        # State of the current batch:
        self.discard_records = False
        self.keep_tombstones = True

    def run(self) -> CleanResult:
        job = self.job
        self.end_offset = self.build_map()
        todo = [segment for segment in job.segments if segment.base_offset < self.end_offset]
        groups = group_segments(
            todo,
            segment_bytes=job.segment_bytes,
            segment_index_bytes=job.segment_index_bytes,
            end_offset=job.first_uncleanable_offset,
        )
        transactions = CleanedTransactions(self.aborted)
        done: list[CleanedGroup] = []
        with ExitStack() as on_failure:
            for group in groups:
                on_failure.callback(discard_cleaned, job.directory, group[0].base_offset, self.fs)
                done.append(self.clean_group(group, transactions))
            on_failure.pop_all()
        stats = CleanStats(
            self.bytes_read,
            self.bytes_written,
            self.records_read,
            self.records_written,
            self.invalid_records,
            self.map.utilization,
        )
        return CleanResult(job.topic, job.partition, tuple(done), self.end_offset, stats, job.truncations)

    def build_map(self) -> int:
        """Fill the map. Returns the first offset that is not in it, where the pass ends."""
        job = self.job
        start, put = job.first_dirty_offset, self.map.put
        ends = [*(segment.base_offset for segment in job.segments[1:]), job.first_uncleanable_offset]
        dirty = [segment for segment, end in zip(job.segments, ends) if end > start]
        # Skip transactions that ended in the clean part: this pass does not see their markers.
        begin = dirty[0].base_offset if dirty else start
        transactions = CleanedTransactions([txn for txn in self.aborted if txn.last_offset >= begin])
        for segment in dirty:
            path = segment_path(job.directory, segment.base_offset)
            for position, header, batch in scan_batches(path, end=segment.size, fs=self.fs):
                try:
                    if header.is_control:
                        transactions.on_control(header, batch)
                    elif not transactions.on_data(header) and header.last_offset >= start:
                        for record in raw_records(header, payload(header, batch)):
                            if record.key is not None and record.offset >= start:
                                if not put(record.key, record.offset):
                                    return record.offset
                except ApiError as error:
                    raise _corrupt(path, position, error) from error
        return job.first_uncleanable_offset

    def clean_group(self, group: list[CompactedSegment], transactions: CleanedTransactions) -> CleanedGroup:
        job = self.job
        target = CleanedSegment(
            job.directory,
            group[0].base_offset,
            self.fs,
            index_interval_bytes=job.index_interval_bytes,
            max_index_bytes=job.segment_index_bytes,
        )
        modified_ns = 0
        with target:
            for segment in group:
                modified_ns = os.stat(segment_path(job.directory, segment.base_offset)).st_mtime_ns
                self.clean_into(target, segment, transactions)
            target.finish(modified_ns)
        old_size = sum(segment.size for segment in group)
        self.bytes_read += old_size
        self.bytes_written += target.size
        bases = tuple(segment.base_offset for segment in group)
        return CleanedGroup(bases, bases[0], old_size)

    def clean_into(
        self, target: CleanedSegment, segment: CompactedSegment, transactions: CleanedTransactions
    ) -> None:
        job = self.job
        horizon = job.now_ms + job.delete_retention_ms
        path = segment_path(job.directory, segment.base_offset)
        for position, header, batch in scan_batches(path, end=segment.size, fs=self.fs):
            last_offset = header.last_offset
            if header.base_offset >= self.end_offset:
                # The map does not cover these records; the next pass starts here.
                if header.is_control:
                    transactions.on_copied(header)
                target.append(batch, last_offset, header.max_timestamp)
                self.records_read += header.count
                self.records_written += header.count
                continue
            try:
                retain_empty = (
                    self.is_last_of_producer(header) or last_offset + 1 == job.first_uncleanable_offset
                )
                self.keep_tombstones = not header.has_delete_horizon or job.now_ms < header.base_timestamp
                if header.is_control:
                    disposable = transactions.on_control(header, batch)
                    # A marker whose header must be retained is kept as it is: an empty control batch saves no
                    # space, and readers interpret it differently.
                    self.discard_records = disposable and not self.keep_tombstones and not retain_empty
                else:
                    disposable = self.discard_records = transactions.on_data(header)
                if self.discard_records and not retain_empty:
                    self.records_read += header.count
                    continue
                kept = filter_batch(
                    header,
                    batch,
                    self.keep_marker if header.is_control else self.keep_record,
                    retain_empty=retain_empty,
                    delete_horizon=horizon if disposable or not header.is_control else None,
                    always_horizon=header.is_control and disposable,
                )
            except ApiError as error:
                raise _corrupt(path, position, error) from error
            self.records_read += kept.records_read
            self.records_written += kept.records_kept
            if kept.data is not None:
                target.append(kept.data, last_offset, kept.max_timestamp)
        target.add_aborted(transactions.take_retained())

    def keep_marker(self, record: RawRecord) -> bool:
        return not self.discard_records

    def keep_record(self, record: RawRecord) -> bool:
        if self.discard_records:
            return False
        if record.offset >= self.end_offset:
            return True
        if record.key is None:
            self.invalid_records += 1
            return False
        if record.offset < self.map.get(record.key):
            return False
        return record.has_value or self.keep_tombstones

    def is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether this batch keeps the last sequence, or at least the epoch, of an active producer."""
        if header.producer_id < 0:
            return False
        last = self.job.last_batches.get(header.producer_id)
        if last is None:
            return False
        if last.offset >= 0:
            return header.last_offset == last.offset
        return header.is_control and header.producer_epoch == last.epoch


def _corrupt(path: str, position: int, error: ApiError) -> CorruptSegment:
    return CorruptSegment(path, position, error.message or error.kafka_name)
