"""Strict retention: no record older than retention.ms stays on disk, wherever it is in a segment.

Kafka keeps a record until all records of its segment are old. With `penstock.retention.strict=true`, segments
that have old records are rewritten without them, like in compaction and with the same swap; offsets do not
change. A job returns what it has found, so that a closed segment is read once and not on every pass.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.errors import ApiError
from penstock.fs import REAL_FS, Fs
from penstock.log.cleaning.batch_filter import RawRecord, filter_batch, payload, raw_records
from penstock.log.cleaning.cleaned_segment import CleanedSegment, discard_cleaned
from penstock.log.cleaning.cleaner import CleanedGroup
from penstock.log.cleaning.compaction import CompactedSegment, LastBatch, LogFacts
from penstock.log.index import TransactionIndex
from penstock.log.recovery.scan import CorruptSegment, scan_batches, segment_path
from penstock.wire.batches.records import BatchHeader

NOTHING = (1 << 63) - 1  # the timestamp of the oldest record if there is no record


class Oldest(NamedTuple):
    """The oldest timestamp and the offset of the first record, in the first `size` bytes of a segment."""

    size: int
    timestamp: int
    first_offset: int | None


@dataclass(frozen=True, slots=True)
class StrictJob:
    """Plain values and paths, for a child process. `segments` are those that may have old records; the one at
    `active_base_offset` is only read, not rewritten. Records from `high_watermark` on are retained."""

    topic: str
    partition: int
    directory: str
    segments: tuple[CompactedSegment, ...]
    base_offsets: tuple[int, ...]
    limit_ms: int
    high_watermark: int
    last_stable_offset: int
    segment_index_bytes: int
    index_interval_bytes: int
    truncations: int = 0  # of the log when this was planned
    known: Mapping[int, Oldest] = field(default_factory=dict)
    last_batches: Mapping[int, LastBatch] = field(default_factory=dict)

    @property
    def active_base_offset(self) -> int:
        return self.base_offsets[-1]


@dataclass(frozen=True, slots=True)
class StrictResult:
    """`groups` are to be swapped in, oldest first. `oldest` is what is now known, and the `known` of the next
    plan.

    `active_expired`: the active segment has old records; roll it and plan again. `first_offset` is the offset
    of the first retained record, if known: the log start offset may move there.
    """

    topic: str
    partition: int
    groups: tuple[CleanedGroup, ...]
    oldest: Mapping[int, Oldest]
    active_expired: bool
    first_offset: int | None
    records_removed: int
    truncations: int = 0


def plan_strict_retention(
    facts: LogFacts, now_ms: int, known: Mapping[int, Oldest] | None = None
) -> StrictJob | None:
    """The job for one log; None if no segment can have a record that is too old.

    `known` maps base offsets to what earlier passes have found; it must be empty after a truncation.
    """
    config = facts.config
    if not (config.retention_strict and config.delete and config.retention_ms >= 0 and facts.segments):
        return None
    limit_ms = now_ms - config.retention_ms
    known = known or {}
    suspects = []
    for segment in facts.segments:
        found = known.get(segment.base_offset)
        settled = found is not None and found.size == segment.size and found.timestamp >= limit_ms
        if segment.size and not settled and segment.base_offset < facts.high_watermark:
            suspects.append(segment)
    if not suspects:
        return None
    return StrictJob(
        topic=facts.topic,
        partition=facts.partition,
        directory=facts.directory,
        segments=tuple(suspects),
        base_offsets=tuple(segment.base_offset for segment in facts.segments),
        limit_ms=limit_ms,
        high_watermark=facts.high_watermark,
        last_stable_offset=facts.last_stable_offset,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        truncations=facts.truncations,
        known={s.base_offset: known[s.base_offset] for s in facts.segments if s.base_offset in known},
        last_batches=dict(facts.last_batches()),
    )


def rewrite_expired(job: StrictJob, fs: Fs = REAL_FS) -> StrictResult:
    """Run a job. Raises CorruptSegment or OSError; then no `.cleaned` file is left and the log is
    unchanged."""
    groups: list[CleanedGroup] = []
    oldest = dict(job.known)
    removed = 0
    active_expired = False
    with ExitStack() as on_failure:
        for segment in job.segments:
            base = segment.base_offset
            found = find_oldest(job.directory, segment, job.known.get(base), fs)
            if found.timestamp < job.limit_ms and base == job.active_base_offset:
                active_expired = True
            elif found.timestamp < job.limit_ms:
                on_failure.callback(discard_cleaned, job.directory, base, fs)
                found, gone = _rewrite(job, segment, fs)
                if gone:
                    removed += gone
                    groups.append(CleanedGroup((base,), base, segment.size))
                else:
                    discard_cleaned(job.directory, base, fs)
                    found = found._replace(size=segment.size)
            oldest[base] = found
        on_failure.pop_all()
    return StrictResult(
        topic=job.topic,
        partition=job.partition,
        groups=tuple(groups),
        oldest=oldest,
        active_expired=active_expired,
        first_offset=_first_offset(job.base_offsets, oldest),
        records_removed=removed,
        truncations=job.truncations,
    )


def find_oldest(directory: str, segment: CompactedSegment, known: Oldest | None, fs: Fs = REAL_FS) -> Oldest:
    """Find the oldest record of a segment; reads only what was appended since `known`."""
    if known is None or known.size > segment.size:
        known = Oldest(0, NOTHING, None)
    path = segment_path(directory, segment.base_offset)
    written_ms = os.stat(path).st_mtime_ns // 1_000_000
    timestamp, first_offset = known.timestamp, known.first_offset
    for position, header, batch in scan_batches(path, start=known.size, end=segment.size, fs=fs):
        if header.is_control or not header.count:
            continue
        if header.is_log_append_time and first_offset is not None:
            times = [header.max_timestamp]
        else:
            try:
                records = list(raw_records(header, payload(header, batch)))
            except ApiError as error:
                raise CorruptSegment(path, position, error.message or error.kafka_name) from error
            times = [record.timestamp for record in records]
            first_offset = records[0].offset if first_offset is None else first_offset
        timestamp = min(timestamp, *(written_ms if time < 0 else time for time in times))
    return Oldest(segment.size, timestamp, first_offset)


def _rewrite(job: StrictJob, segment: CompactedSegment, fs: Fs) -> tuple[Oldest, int]:
    """Write the segment without its old records. Returns what is left, and how many records were removed."""
    path = segment_path(job.directory, segment.base_offset)
    modified_ns = os.stat(path).st_mtime_ns
    survivors = _Survivors(job.limit_ms, job.high_watermark, modified_ns // 1_000_000)
    target = CleanedSegment(
        job.directory,
        segment.base_offset,
        fs,
        index_interval_bytes=job.index_interval_bytes,
        max_index_bytes=job.segment_index_bytes,
    )
    gone = 0
    with target:
        for position, header, batch in scan_batches(path, end=segment.size, fs=fs):
            if header.is_control:
                # A marker has no data, and the data of its transaction in other segments needs it.
                target.append(batch, header.last_offset, header.max_timestamp)
                continue
            last = position + header.size == segment.size
            try:
                kept = filter_batch(
                    header, batch, survivors.keep, retain_empty=last or _is_needed(job, header)
                )
            except ApiError as error:
                raise CorruptSegment(path, position, error.message or error.kafka_name) from error
            gone += kept.records_read - kept.records_kept
            if kept.data is not None:
                target.append(kept.data, header.last_offset, kept.max_timestamp)
        target.add_aborted(
            list(TransactionIndex(segment_path(job.directory, segment.base_offset, ".txnindex"), fs))
        )
        target.finish(modified_ns)
    return Oldest(target.size, survivors.oldest, survivors.first_offset), gone


class _Survivors:
    """Decides which records are retained, and tracks the oldest and the first of them."""

    def __init__(self, limit_ms: int, high_watermark: int, written_ms: int) -> None:
        self.limit_ms = limit_ms
        self.high_watermark = high_watermark
        self.written_ms = written_ms
        self.oldest = NOTHING
        self.first_offset: int | None = None

    def keep(self, record: RawRecord) -> bool:
        # A record without a timestamp counts as old as the last write to its file, as in Kafka's retention.
        timestamp = record.timestamp if record.timestamp >= 0 else self.written_ms
        if timestamp < self.limit_ms and record.offset < self.high_watermark:
            return False
        if self.first_offset is None:
            self.first_offset = record.offset
        self.oldest = min(self.oldest, timestamp)
        return True


def _is_needed(job: StrictJob, header: BatchHeader) -> bool:
    """Whether the header must be retained, because a producer's sequence or an open transaction needs it."""
    if header.producer_id < 0:
        return False
    if header.is_transactional and header.last_offset >= job.last_stable_offset:
        return True
    last = job.last_batches.get(header.producer_id)
    return last is not None and header.last_offset == last.offset


def _first_offset(base_offsets: Sequence[int], oldest: Mapping[int, Oldest]) -> int | None:
    for base_offset in base_offsets:
        found = oldest.get(base_offset)
        if found is None:
            return base_offset
        if found.first_offset is not None:
            return found.first_offset
    return None
