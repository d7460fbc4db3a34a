"""The segments of a partition's log in their order, and how they are read.

`PartitionLog` writes, truncates and deletes; it keeps the offsets here up to date. All is called from the
thread of the event loop unless it says otherwise.
"""

from __future__ import annotations

import bisect
import logging
from collections.abc import Iterator
from typing import NamedTuple

from penstock.clock import Clock
from penstock.errors import CorruptMessage, KafkaStorageError, OffsetOutOfRange
from penstock.log.epochs import EpochEntry, LeaderEpochCache
from penstock.log.files import FileSlice
from penstock.log.index import AbortedTxn
from penstock.log.recovery.replay import batches_from
from penstock.log.segment import Segment
from penstock.wire.batches.records import BatchHeader, iter_records

_MAX_HINTS = 32
_COMPLAIN_MS = 10_000  # a full disk is logged at this interval, not for each request

logger = logging.getLogger(__name__)


class TimestampOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


class SegmentedLog:
    def __init__(
        self, directory: str, topic: str, partition: int, clock: Clock, epochs: LeaderEpochCache
    ) -> None:
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.clock = clock
        self.epochs = epochs
        self.segments: list[Segment] = []
        self._bases: list[int] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self._hints: dict[int, tuple[Segment, int]] = {}
        self._complained_ms = 0

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    def set_segments(self, segments: list[Segment]) -> None:
        self.segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._hints.clear()

    def _floor(self, offset: int) -> int:
        return max(bisect.bisect_right(self._bases, offset) - 1, 0)

    def _readable(self) -> list[Segment]:
        """The segments that have readable records. May run in a thread."""
        segments = list(self.segments)
        start = self.log_start_offset
        first = bisect.bisect_right(segments, start, key=lambda segment: segment.base_offset) - 1
        return segments[max(first, 0) :]

    def segment_base(self, offset: int) -> int:
        """The base offset of the segment that contains `offset`."""
        return self._bases[self._floor(offset)]

    def _storage_error(self, error: OSError) -> KafkaStorageError:
        now = self.clock.now_ms()
        if now - self._complained_ms >= _COMPLAIN_MS:
            self._complained_ms = now
            logger.error("%s-%d: %s in %s", self.topic, self.partition, error.strerror, self.directory)
        return KafkaStorageError(f"{self.topic}-{self.partition}: {error.strerror} in {self.directory}")

    # reading

    def read(
        self, offset: int, max_bytes: int, upper_bound_offset: int, *, min_one: bool = True
    ) -> list[FileSlice]:
        """Complete batches from the one that contains `offset`, below `upper_bound_offset`, as file slices.

        With `min_one` the first batch is returned even if it is larger than `max_bytes` (KIP-74).
        """
        if offset < self.log_start_offset or offset > self.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.topic}-{self.partition} is outside"
                f" {self.log_start_offset} to {self.log_end_offset}"
            )
        if offset >= upper_bound_offset:
            return []
        try:
            return self._slices(offset, max_bytes, upper_bound_offset, min_one)
        except OSError as error:
            raise self._storage_error(error) from error

    def warm_up(self, offset: int, max_bytes: int) -> None:
        """Load into the page cache what `read` needs: index entries and batch headers. Runs in a thread."""
        for segment in self.segments[self._floor(offset) :]:
            try:
                found = segment.locate(offset, mend=False)
                if found is not None:
                    segment.boundary_before(found[0], found[0] + max_bytes)
                    return
            except (OSError, CorruptMessage):
                return  # `read` raises the error

    def _slices(self, offset: int, max_bytes: int, upper_bound_offset: int, min_one: bool) -> list[FileSlice]:
        hint = self._hints.get(offset)
        if hint is not None:
            segment, position = hint
            if position < segment.file.size:
                return self._cut(segment, position, max_bytes, upper_bound_offset, min_one)
        for i in range(self._floor(offset), len(self.segments)):
            segment = self.segments[i]
            if segment.base_offset >= upper_bound_offset:
                break
            found = segment.locate(offset)
            if found is not None:
                return self._cut(segment, found[0], max_bytes, upper_bound_offset, min_one)
        return []

    def _cut(
        self, segment: Segment, start: int, max_bytes: int, upper: int, min_one: bool
    ) -> list[FileSlice]:
        end = segment.file.size
        if upper < self.log_end_offset:
            beyond = segment.locate(upper)
            if beyond is not None:
                end = beyond[0]
        if end - start > max_bytes:
            limit, next_offset = segment.boundary_before(start, start + max_bytes)
            if limit == start:
                if not min_one:
                    return []
                limit, next_offset = self._after_first(segment, start), -1
            end = limit
            if next_offset >= 0:
                self._hint(next_offset, segment, end)
        elif upper >= self.log_end_offset and segment is self.segments[-1]:
            self._hint(self.log_end_offset, segment, end)
        return [FileSlice(segment.file, start, end - start)] if end > start else []

    @staticmethod
    def _after_first(segment: Segment, start: int) -> int:
        for position, header in segment.headers(start):
            return position + header.size
        return start

    def _hint(self, offset: int, segment: Segment, position: int) -> None:
        """Remember where the next fetch will start: most readers continue where they stopped."""
        if len(self._hints) >= _MAX_HINTS:
            self._hints.clear()
        self._hints[offset] = (segment, position)

    def aborted_transactions(self, first_offset: int, end_offset: int) -> list[AbortedTxn]:
        """The aborted transactions with records from `first_offset` to before `end_offset`."""
        found = []
        for segment in self.segments[self._floor(first_offset) :]:
            for txn in segment.txns:
                if txn.last_offset >= first_offset and txn.first_offset < end_offset:
                    found.append(txn)
                if txn.last_stable_offset >= end_offset:
                    return found
        return found

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record whose timestamp is at least `timestamp`. May run in a thread."""
        for segment in self._readable():
            if segment.max_timestamp < timestamp:
                continue
            for position, header in segment.timed_batches(timestamp):
                if header.last_offset < self.log_start_offset:
                    continue
                for record in iter_records(segment.batch(position, header)):
                    if record.timestamp >= timestamp and record.offset >= self.log_start_offset:
                        return TimestampOffset(record.offset, record.timestamp, header.leader_epoch)
        return None

    def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first record with the largest timestamp in the log."""
        newest = max((segment.max_timestamp for segment in self._readable()), default=-1)
        return self.offset_for_timestamp(newest) if newest >= 0 else None

    def end_offset_for_epoch(self, epoch: int) -> EpochEntry:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def headers(self, offset: int) -> Iterator[tuple[Segment, int, BatchHeader]]:
        """All batches from the one that contains `offset`."""
        return batches_from(self.segments[self._floor(offset) :], offset)
