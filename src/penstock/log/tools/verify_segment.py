"""Verifies one segment: every batch, every record, and each index against the log file.

The check does not trust the code that wrote the files: it computes positions and timestamps from the batches.
`LogState` has the state that must be consistent from one segment to the next.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from penstock.errors import ApiError
from penstock.fs import Fs
from penstock.log.index import OffsetIndex, TimeIndex, TransactionIndex
from penstock.log.recovery.scan import CorruptSegment, scan_batches, segment_path
from penstock.log.tools.verify_transactions import Severity, TransactionCheck
from penstock.wire.batches.records import BatchHeader, Record, iter_records, parse_control

REBUILD = "stop the broker and delete this file: it is rebuilt from the log at the next start"
RESTORE = "restore the segment from another replica or a backup; what follows it cannot be read safely"
RESTART = "restart the broker: recovery cuts the log at the last whole batch"
REPORT = "records were written out of order; keep the files and report this as a bug"

TORN = "readers may see a part of a transaction; keep the files and report this as a bug"
HARMLESS = "nothing: it changes no record"

_TAIL_ATTEMPTS = 5
_MAX_INT = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a file: what is wrong, where, and what to do about it."""

    path: str
    position: int | None
    what: str
    remedy: str
    severity: Severity = "error"  # a warning may be harmless: the log alone does not show it


@dataclass(slots=True)
class LogState:
    """The state from one batch to the next, across segments, and counters."""

    next_offset: int = -1
    leader_epoch: int = -1
    # producer id -> (epoch, last sequence, number of offset gaps seen by then)
    producers: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    holes: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    problems: list[Problem] = field(default_factory=list)
    transactions: TransactionCheck = field(default_factory=TransactionCheck)
    first_offset: int | None = None


class SegmentCheck:
    """One pass over a segment. `wait` is called while the last batch of a growing log is incomplete."""

    def __init__(
        self,
        directory: str,
        base_offset: int,
        state: LogState,
        fs: Fs,
        *,
        is_active: bool,
        wait: Callable[[], None],
        progress: Callable[[int], None],
    ) -> None:
        self.path = segment_path(directory, base_offset)
        self.base_offset = base_offset
        self.state = state
        self.fs = fs
        self.is_active = is_active
        self.wait = wait
        self.progress = progress
        self.abort_markers: set[tuple[int, int]] = set()
        self.max_timestamp = -1
        self.last_offset = base_offset - 1
        # Read the indexes before the log: an entry is written after its batch, so it cannot be ahead of the
        # log.
        self.index = _IndexCheck(self, self._entries(directory, ".index", OffsetIndex))
        self.times = _TimeIndexCheck(self, self._entries(directory, ".timeindex", TimeIndex))
        self.txn_path = segment_path(directory, base_offset, ".txnindex")
        self.txn_data = fs.read_bytes(self.txn_path) if fs.exists(self.txn_path) else b""

    def run(self) -> None:
        whole = True
        for position, header, batch in self._sound_batches():
            if position < 0:
                # Index entries of a batch that cannot be read cannot be verified.
                whole = False
                self.state.holes += 1
                continue
            self._check_header(position, header)
            self._check_records(position, header, batch)
            if whole:
                self.index.on_batch(position, header)
                self.times.on_batch(header)
            self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
            self.last_offset = header.last_offset
            self.state.batches += 1
            self.state.bytes += header.size
            self.progress(self.state.bytes)
        if whole:
            self.index.on_end()
            self.times.on_end()
            self._check_txn_index()

    def problem(self, position: int | None, what: str, remedy: str, path: str | None = None) -> None:
        self.state.problems.append(Problem(path or self.path, position, what, remedy))

    # the log

    def _sound_batches(self) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """The readable batches; a position of -1 stands for one that cannot be read."""
        start, attempts = 0, 0
        end = self.fs.stat_size(self.path)
        while True:
            try:
                yield from scan_batches(self.path, start=start, end=end, fs=self.fs)
                return
            except CorruptSegment as error:
                start = position = error.position
                if self.is_active and attempts < _TAIL_ATTEMPTS:
                    # The batch is just being written: read it again after a moment.
                    attempts += 1
                    self.wait()
                    end = self.fs.stat_size(self.path)
                    continue
                if self.is_active and self._is_zero(position, end):
                    return  # preallocated space
                yield -1, _NO_BATCH, memoryview(b"")
                if self.is_active and error.torn:
                    self.problem(position, f"torn tail of {end - position} bytes: {error.reason}", RESTART)
                else:
                    self.problem(position, error.reason, RESTORE)
                if error.next_position is None:
                    return
                start = error.next_position
                self.state.next_offset = -1

    def _is_zero(self, position: int, end: int) -> bool:
        fd = self.fs.open(self.path, os.O_RDONLY)
        try:
            while position < end:
                chunk = self.fs.pread(fd, 1 << 20, position)
                if not chunk:
                    return True
                if chunk.count(0) != len(chunk):
                    return False
                position += len(chunk)
            return True
        finally:
            self.fs.close(fd)

    def _check_header(self, position: int, header: BatchHeader) -> None:
        state = self.state
        base, last = header.base_offset, header.last_offset
        if header.last_offset_delta < 0 or header.count > header.last_offset_delta + 1:
            what = f"{header.count} records do not fit a last offset delta of {header.last_offset_delta}"
            self.problem(position, what, RESTORE)
        if base < self.base_offset or last - self.base_offset > _MAX_INT:
            what = f"offsets {base} to {last} do not belong into the segment {self.base_offset}"
            self.problem(position, what, REPORT)
        if state.first_offset is None:
            state.first_offset = base
        if base < state.next_offset:
            what = f"offset {base} comes after offset {state.next_offset - 1}"
            self.problem(position, what, REPORT)
        elif state.next_offset >= 0 and base > state.next_offset:
            state.holes += 1
        state.next_offset = max(state.next_offset, last + 1)
        if header.count <= header.last_offset_delta:
            state.holes += 1
        if header.leader_epoch < state.leader_epoch:
            what = f"leader epoch {header.leader_epoch} comes after {state.leader_epoch}"
            self.problem(position, what, REPORT)
        state.leader_epoch = max(state.leader_epoch, header.leader_epoch)
        if header.producer_id >= 0:
            self._check_producer(position, header)

    def _check_producer(self, position: int, header: BatchHeader) -> None:
        state = self.state
        before = state.producers.get(header.producer_id)
        sequence, seen_holes = header.last_sequence, state.holes
        if before is not None:
            epoch, last_sequence, holes = before
            name = f"producer {header.producer_id}"
            if header.producer_epoch < epoch:
                what = f"{name}: epoch {header.producer_epoch} comes after {epoch}"
                self.problem(position, what, REPORT)
            elif header.producer_epoch == epoch and last_sequence >= 0 and header.base_sequence >= 0:
                ahead = (header.base_sequence - last_sequence - 1) % (_MAX_INT + 1)
                # Sequences may be missing only where compaction has removed batches.
                if ahead > _MAX_INT // 2 or (ahead and holes == state.holes):
                    what = f"{name}: sequence {header.base_sequence} comes after {last_sequence}"
                    self.problem(position, what, REPORT)
            if header.producer_epoch == epoch and sequence < 0:
                sequence, seen_holes = last_sequence, holes  # a marker has no sequence
        state.producers[header.producer_id] = (header.producer_epoch, sequence, seen_holes)
        if header.is_transactional and not header.is_control:
            state.transactions.on_data(header, state.holes)

    def _check_records(self, position: int, header: BatchHeader, batch: memoryview) -> None:
        previous, last = header.base_offset - 1, header.last_offset
        try:
            for record in iter_records(batch):
                if not previous < record.offset <= last:
                    what = f"record offset {record.offset} is out of order in the batch {header.base_offset}"
                    self.problem(position, what, RESTORE)
                    return
                previous = record.offset
                self.state.records += 1
                if header.is_control:
                    self._check_marker(position, header, record)
        except ApiError as error:
            self.problem(position, f"records do not decode: {error.message}", RESTORE)

    def _check_marker(self, position: int, header: BatchHeader, record: Record) -> None:
        state = self.state
        kind, coordinator_epoch = parse_control(record)
        if kind == "abort":
            self.abort_markers.add((header.producer_id, record.offset))
        finding = state.transactions.on_marker(
            header, kind, coordinator_epoch, state.holes, from_start=state.first_offset == 0
        )
        if finding is not None:
            remedy = TORN if finding.severity == "error" else HARMLESS
            state.problems.append(Problem(self.path, position, finding.what, remedy, finding.severity))

    # the indexes

    def _entries(
        self, directory: str, kind: str, layout: type[OffsetIndex] | type[TimeIndex]
    ) -> tuple[str, list[tuple[int, int]] | None]:
        path = segment_path(directory, self.base_offset, kind)
        if not self.fs.exists(path):
            if not self.is_active:
                self.problem(None, "is missing", "restart the broker: it is rebuilt from the log", path)
            return path, None
        data = self.fs.read_bytes(path)
        size = layout.ENTRY.size
        if len(data) % size and not self.is_active:
            self.problem(
                len(data) - len(data) % size, f"{len(data)} bytes are not a multiple of {size}", REBUILD, path
            )
        entries: list[tuple[int, int]] = list(layout.ENTRY.iter_unpack(data[: len(data) - len(data) % size]))
        while self.is_active and entries and entries[-1] == (0, 0):
            entries.pop()  # zeros: Kafka preallocates the index of the active segment
        return path, entries

    def _check_txn_index(self) -> None:
        size = TransactionIndex.ENTRY.size
        data, path = self.txn_data, self.txn_path
        if len(data) % size:
            self.problem(
                len(data) - len(data) % size, f"{len(data)} bytes are not a multiple of {size}", REBUILD, path
            )
        whole = data[: len(data) - len(data) % size]
        for number, (version, producer_id, first, last, stable) in enumerate(
            TransactionIndex.ENTRY.iter_unpack(whole)
        ):
            position = number * size
            if version != 0:
                self.problem(position, f"entry of version {version}, 0 is known", REBUILD, path)
            elif not first <= last or stable < 0:
                what = f"an impossible transaction: offsets {first} to {last}, last stable offset {stable}"
                self.problem(position, what, REBUILD, path)
            elif (producer_id, last) not in self.abort_markers:
                what = f"no abort marker of producer {producer_id} at offset {last}"
                self.problem(position, what, REBUILD, path)


class _IndexCheck:
    """Each entry must point to the start of a batch that is not after its offset."""

    def __init__(self, segment: SegmentCheck, found: tuple[str, list[tuple[int, int]] | None]) -> None:
        self.segment = segment
        self.path, entries = found
        self.entries = entries or []
        self.next = 0
        for number, (a, b) in enumerate(pairwise(self.entries), start=1):
            if b[0] <= a[0] or b[1] <= a[1]:
                self._problem(number, f"entry {b} does not follow {a}")
                self.next = len(self.entries)
                break

    def on_batch(self, position: int, header: BatchHeader) -> None:
        while self.next < len(self.entries) and self.entries[self.next][1] <= position:
            relative, target = self.entries[self.next]
            if target < position:
                self._problem(self.next, f"position {target} is not the start of a batch")
            elif self.segment.base_offset + relative < header.base_offset:
                offset = self.segment.base_offset + relative
                what = f"offset {offset} is said to be at {target}, where {header.base_offset} starts"
                self._problem(self.next, what)
            self.next += 1

    def on_end(self) -> None:
        for number in range(self.next, len(self.entries)):
            self._problem(number, f"position {self.entries[number][1]} is not the start of a batch")
        if self.next and self.entries and self.next == len(self.entries):
            offset = self.segment.base_offset + self.entries[-1][0]
            if offset > self.segment.last_offset:
                self._problem(len(self.entries) - 1, f"offset {offset} is past the end of the log")

    def _problem(self, number: int, what: str) -> None:
        self.segment.problem(number * OffsetIndex.ENTRY.size, what, REBUILD, self.path)


class _TimeIndexCheck:
    """Each entry promises that no record before its offset has a timestamp as large as its own."""

    def __init__(self, segment: SegmentCheck, found: tuple[str, list[tuple[int, int]] | None]) -> None:
        self.segment = segment
        self.path, entries = found
        self.entries = entries or []
        self.is_missing = entries is None
        self.next = 0
        self.newest = -1
        for number, (a, b) in enumerate(pairwise(self.entries), start=1):
            if b[0] <= a[0] or b[1] < a[1]:
                self._problem(number, f"entry {b} does not follow {a}")
                self.next = len(self.entries)
                break

    def on_batch(self, header: BatchHeader) -> None:
        before, self.newest = self.newest, max(self.newest, header.max_timestamp)
        while self.next < len(self.entries):
            timestamp, relative = self.entries[self.next]
            offset = self.segment.base_offset + relative
            if offset > header.last_offset:
                break
            if before >= timestamp:
                self._problem(
                    self.next, f"a record before offset {offset} is as new as timestamp {timestamp}"
                )
            elif timestamp > self.newest:
                what = f"no record up to offset {offset} has the timestamp {timestamp}"
                self._problem(self.next, what)
            self.next += 1

    def on_end(self) -> None:
        for number in range(self.next, len(self.entries)):
            offset = self.segment.base_offset + self.entries[number][1]
            self._problem(number, f"offset {offset} is past the end of the log")
        if self.newest >= 0 and not self.segment.is_active and not self.is_missing:
            if not self.entries or self.entries[-1][0] < self.newest:
                self._problem(len(self.entries), f"the newest timestamp {self.newest} has no entry")

    def _problem(self, number: int, what: str) -> None:
        self.segment.problem(number * TimeIndex.ENTRY.size, what, REBUILD, self.path)


_NO_BATCH = BatchHeader(0, 0, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 0)
