"""Invariants of an open log; `PartitionLog.check` runs them.

Unit tests that open a log and the simulators run the check, never the path of a record: it reads batch
headers. `verify` checks files alone; this compares the log in memory with its files.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.log.recovery.replay import marker_of
from penstock.log.segment import Segment

if TYPE_CHECKING:
    from penstock.log.partition_log import PartitionLog


class InvariantViolated(PenstockError):
    """A log or a replica with inconsistent state: a bug in the code that changed it."""


def check_log(log: PartitionLog, *, whole: bool = True) -> None:
    """Raise InvariantViolated unless all invariants hold.

    With `whole` false it reads of the files only the batches at the end of the active segment: cheap enough
    after every step.
    """
    _Check(log).run(whole)


class _Check:
    def __init__(self, log: PartitionLog) -> None:
        self.log = log

    def that(self, holds: bool, what: str) -> None:
        if not holds:
            log = self.log
            raise InvariantViolated(
                f"{log.topic}-{log.partition}: {what} (log start {log.log_start_offset}, high watermark"
                f" {log.high_watermark}, recovery point {log.recovery_point}, log end {log.log_end_offset},"
                f" segments {[segment.base_offset for segment in log.segments]})"
            )

    def run(self, whole: bool) -> None:
        self._offsets()
        if whole:
            self._segments()
        else:
            self._end()
        self._epochs()
        self._producers()

    def _offsets(self) -> None:
        log = self.log
        self.that(bool(log.segments), "the log has no segment")
        bases = [segment.base_offset for segment in log.segments]
        self.that(all(a < b for a, b in pairwise(bases)), "segments are not in order")
        self.that(bases == log._bases, f"the list of base offsets is {log._bases}")
        self.that(bases[0] <= log.log_start_offset, "the log starts before its first segment")
        self.that(log.log_start_offset <= log.high_watermark, "the log starts above its high watermark")
        self.that(log.high_watermark <= log.log_end_offset, "the high watermark is above the log's end")
        self.that(log.recovery_point <= log.log_end_offset, "the recovery point is above the log's end")
        self.that(bases[-1] <= log.log_end_offset, "the active segment begins above the log's end")
        stable = log.last_stable_offset
        self.that(stable <= log.high_watermark, f"the last stable offset {stable} is too high")

    def _segments(self) -> None:
        log = self.log
        ends = [*(segment.base_offset for segment in log.segments[1:]), log.log_end_offset]
        for segment, end in zip(log.segments, ends, strict=True):
            is_active = segment is log.segments[-1]
            name = f"segment {segment.base_offset}"
            self.that(not segment.retired, f"{name} is out of use")
            on_disk = os.fstat(segment.file.open().fd).st_size
            self.that(
                on_disk == segment.size or (is_active and on_disk > segment.size),
                f"{name} has {segment.size} bytes, its file {on_disk}",
            )
            next_offset, starts, aborts = segment.base_offset, {}, set()
            position = 0
            for position, header in segment.headers():
                self.that(
                    header.base_offset >= next_offset, f"offset {header.base_offset} in {name} is early"
                )
                starts[position] = header
                next_offset = header.last_offset + 1
                position += header.size
                if header.is_control and header.count:
                    if marker_of(segment.batch(position - header.size, header))[0] == "abort":
                        aborts.add((header.producer_id, header.base_offset))
            self.that(position == segment.size, f"{name} has no whole batch at byte {position}")
            self.that(next_offset <= end, f"{name} reaches to {next_offset}, beyond {end}")
            if is_active:
                self.that(next_offset == end, f"the last batch ends at {next_offset}")
            self._indexes(segment, name, end, {at: header.base_offset for at, header in starts.items()})
            newest = max((header.max_timestamp for header in starts.values()), default=-1)
            self.that(
                segment.max_timestamp >= newest, f"{name} has {segment.max_timestamp}, a record {newest}"
            )
            for txn in segment.txns:
                self.that(
                    (txn.producer_id, txn.last_offset) in aborts and txn.first_offset <= txn.last_offset,
                    f"{txn} of {name} has no abort marker",
                )

    def _end(self) -> None:
        """The active segment ends with a whole batch, which ends the log."""
        segment, end = self.log.active, self.log.log_end_offset
        name = f"segment {segment.base_offset}"
        on_disk = os.fstat(segment.file.open().fd).st_size
        self.that(on_disk >= segment.size, f"{name} has {segment.size} bytes, its file {on_disk}")
        position, next_offset = segment.offsets.position_back(1), segment.base_offset
        for start, header in segment.headers(position):
            next_offset = header.last_offset + 1
            position = start + header.size
        self.that(position == segment.size, f"{name} has no whole batch at byte {position}")
        self.that(next_offset == end, f"the last batch ends at {next_offset}")

    def _indexes(self, segment: Segment, name: str, end: int, starts: dict[int, int]) -> None:
        entries = [segment.offsets.entry(i) for i in range(segment.offsets.count)]
        for (a, b), (c, d) in pairwise(entries):
            self.that(a < c and b < d, f"the index of {name} is not in order")
        for relative, position in entries:
            offset = segment.base_offset + relative
            self.that(position in starts, f"the index of {name} has {position}, where no batch starts")
            self.that(starts[position] <= offset < end, f"the index of {name} has offset {offset}")
        times = [segment.times.entry(i) for i in range(segment.times.count)]
        for (a, b), (c, d) in pairwise(times):
            self.that(a < c and b <= d, f"the time index of {name} is not in order")
        for timestamp, relative in times:
            offset = segment.base_offset + relative
            self.that(offset < max(end, segment.base_offset + 1), f"the time index of {name} has {offset}")
            self.that(timestamp <= segment.max_timestamp, f"the time index of {name} has {timestamp}")

    def _epochs(self) -> None:
        entries = self.log.epochs.entries
        for a, b in pairwise(entries):
            self.that(
                a.epoch < b.epoch and a.start_offset <= b.start_offset, f"leader epochs {a} and {b} are wrong"
            )
        if entries:
            last = entries[-1]
            self.that(last.start_offset <= self.log.log_end_offset, f"leader epoch {last} is past the end")

    def _producers(self) -> None:
        log = self.log
        if not log.is_settled:
            return
        producers = log.producers
        open_at = {
            entry.txn_first_offset: producer_id
            for producer_id, entry in producers.producers.items()
            if entry.txn_first_offset is not None
        }
        self.that(producers.ongoing == open_at, f"open transactions {producers.ongoing}, producers {open_at}")
        self.that(all(first < log.log_end_offset for first in open_at), f"transactions {open_at} are cut")
        for producer_id, entry in producers.producers.items():
            last = [mark.last_offset for mark in entry.batches]
            self.that(
                all(a < b for a, b in pairwise(last)) and all(offset < log.log_end_offset for offset in last),
                f"producer {producer_id} has batches at {last}",
            )
        for first, marker in producers._unreplicated.items():
            self.that(
                first <= marker < log.log_end_offset and marker >= log.high_watermark,
                f"the marker {marker} of the transaction at {first} is not between high watermark and end",
            )
