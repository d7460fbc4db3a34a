"""Plans compaction: which log to clean next, and up to which offset. Pure, from plain facts.

`plan_cleaning` chooses the dirtiest log that is due and creates a `CleanJob`, which `cleaner.clean` runs in a
child process; `group_segments` decides which segments are merged. The rules are Kafka's: never clean the
active segment, never past the last stable offset, nor records younger than min.compaction.lag.ms; a log is
due when max.compaction.lag.ms or min.cleanable.dirty.ratio is exceeded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.config import LogConfig

if TYPE_CHECKING:
    from penstock.log.partition_log import PartitionLog
    from penstock.log.segment import Segment

DEFAULT_DEDUPE_BUFFER_BYTES = 128 << 20
DEFAULT_LOAD_FACTOR = 0.9
_MAX_OFFSET_SPAN = 0x7FFFFFFF
_MOST_SEGMENTS = 8
"""The limit of segments that are merged: the files of all are renamed in one iteration of the event loop."""


@dataclass(frozen=True, slots=True)
class CompactedSegment:
    """What planning needs to know of a segment. `first_timestamp` is its first batch's max timestamp, or
    -1."""

    base_offset: int
    size: int
    largest_timestamp: int
    first_timestamp: int = -1
    index_bytes: int = 0
    time_index_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The batch that has the last sequence of an active producer. `offset` is -1 if it has only markers."""

    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class LogFacts:
    """A log at the time of planning. `segments` are in order; the last one is active.

    `first_dirty_offset` is from the cleaner checkpoint (None: never cleaned). `last_batches` is called only
    for the chosen log: it returns the last data batch of every active producer id.
    """

    topic: str
    partition: int
    directory: str
    segments: Sequence[CompactedSegment]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    high_watermark: int
    first_dirty_offset: int | None
    config: LogConfig
    truncations: int = 0
    last_batches: Callable[[], Mapping[int, LastBatch]] = dict


def facts_of(log: PartitionLog, first_dirty_offset: int | None = None) -> LogFacts:
    """The facts of an open log. `first_dirty_offset` is its entry in cleaner-offset-checkpoint."""
    return LogFacts(
        topic=log.topic,
        partition=log.partition,
        directory=log.directory,
        segments=[_segment_facts(segment) for segment in log.segments],
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        last_stable_offset=log.last_stable_offset,
        high_watermark=log.high_watermark,
        first_dirty_offset=first_dirty_offset,
        config=log.config,
        truncations=log.truncations,
        last_batches=lambda: {
            producer_id: LastBatch(entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
            for producer_id, entry in log.producers.producers.items()
        },
    )


def read_first_timestamps(segments: Iterable[Segment]) -> None:
    """Reads the timestamps in a thread, so that `facts_of` need not read the disk; errors are left to
    `facts_of`."""
    for segment in segments:
        with suppress(OSError):
            _read_first_timestamp(segment)


def _read_first_timestamp(segment: Segment) -> None:
    if segment.first_timestamp is None:
        segment.first_timestamp = next((header.max_timestamp for _, header in segment.headers()), None)


def _segment_facts(segment: Segment) -> CompactedSegment:
    _read_first_timestamp(segment)
    return CompactedSegment(
        base_offset=segment.base_offset,
        size=segment.size,
        largest_timestamp=segment.largest_timestamp,
        first_timestamp=-1 if segment.first_timestamp is None else segment.first_timestamp,
        index_bytes=segment.offsets.count * segment.offsets.ENTRY.size,
        time_index_bytes=segment.times.count * segment.times.ENTRY.size,
    )


@dataclass(frozen=True, slots=True)
class CleanJob:
    """Everything that the cleaning process needs; plain values and paths, so that it can be pickled.

    `segments` are all closed segments below `first_uncleanable_offset`; the keys of those from
    `first_dirty_offset` on decide which records are retained. `txn_index_base_offsets` has all segments of
    the log.
    """

    topic: str
    partition: int
    directory: str
    segments: tuple[CompactedSegment, ...]
    txn_index_base_offsets: tuple[int, ...]
    first_dirty_offset: int
    first_uncleanable_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    truncations: int = 0  # of the log when this was planned
    last_batches: Mapping[int, LastBatch] = field(default_factory=dict)
    dedupe_buffer_bytes: int = DEFAULT_DEDUPE_BUFFER_BYTES
    dedupe_load_factor: float = DEFAULT_LOAD_FACTOR


@dataclass(frozen=True, slots=True)
class Cleanable:
    """How dirty a log is, and up to which offset it may be cleaned."""

    facts: LogFacts
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        return self.dirty_bytes > 0 and (
            self.overdue or self.dirty_ratio > self.facts.config.min_cleanable_dirty_ratio
        )


def assess(facts: LogFacts, now_ms: int) -> Cleanable:
    """The part of a log that may be cleaned now. It starts and ends at segment boundaries, as in Kafka."""
    config = facts.config
    first_dirty = facts.first_dirty_offset
    if first_dirty is None or not facts.log_start_offset <= first_dirty <= facts.log_end_offset:
        # The checkpoint is outdated, because the log was truncated at either end: all of the log is dirty.
        first_dirty = facts.log_start_offset
    closed, active = facts.segments[:-1], facts.segments[-1]
    ends = [segment.base_offset for segment in facts.segments[1:]]
    first = bisect_right(ends, first_dirty)
    clean, dirty = closed[:first], closed[first:]

    limit = min(active.base_offset, facts.last_stable_offset, facts.high_watermark)
    if config.min_compaction_lag_ms > 0:
        newest_allowed = now_ms - config.min_compaction_lag_ms
        limit = min([limit, *(s.base_offset for s in dirty if s.largest_timestamp > newest_allowed)])
    uncleanable = max(
        (segment.base_offset for segment in facts.segments if segment.base_offset <= limit),
        default=first_dirty,
    )

    oldest = min((s.first_timestamp for s in dirty if s.first_timestamp > 0), default=None)
    return Cleanable(
        facts=facts,
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=max(first_dirty, uncleanable),
        clean_bytes=sum(segment.size for segment in clean if segment.base_offset < uncleanable),
        dirty_bytes=sum(segment.size for segment in dirty if segment.base_offset < uncleanable),
        overdue=oldest is not None and oldest < now_ms - config.max_compaction_lag_ms,
    )


def plan_cleaning(
    logs: Iterable[LogFacts],
    now_ms: int,
    *,
    dedupe_buffer_bytes: int = DEFAULT_DEDUPE_BUFFER_BYTES,
    dedupe_load_factor: float = DEFAULT_LOAD_FACTOR,
) -> CleanJob | None:
    """The job for the dirtiest log that is due; None if there is nothing to do.

    The caller leaves out logs that are being cleaned or that are uncleanable because of a corrupt segment.
    """
    due = [
        found
        for facts in logs
        if facts.config.compact and facts.segments and (found := assess(facts, now_ms)).is_due
    ]
    if not due:
        return None
    chosen = max(due, key=lambda found: found.dirty_ratio)
    facts, config = chosen.facts, chosen.facts.config
    return CleanJob(
        topic=facts.topic,
        partition=facts.partition,
        directory=facts.directory,
        segments=tuple(s for s in facts.segments[:-1] if s.base_offset < chosen.first_uncleanable_offset),
        txn_index_base_offsets=tuple(s.base_offset for s in facts.segments),
        first_dirty_offset=chosen.first_dirty_offset,
        first_uncleanable_offset=chosen.first_uncleanable_offset,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        truncations=facts.truncations,
        last_batches=dict(facts.last_batches()),
        dedupe_buffer_bytes=dedupe_buffer_bytes,
        dedupe_load_factor=dedupe_load_factor,
    )


def group_segments(
    segments: Sequence[CompactedSegment], *, segment_bytes: int, segment_index_bytes: int, end_offset: int
) -> list[list[CompactedSegment]]:
    """Groups neighbouring segments that fit into one: by size, both indexes, and the range of offsets that an
    index entry can express. Only a few are merged at a time; the next pass merges the results. `end_offset`
    is the end of the last one."""
    groups: list[list[CompactedSegment]] = []
    size = index = times = 0
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    for segment, end in zip(segments, ends):
        fits = (
            bool(groups)
            and len(groups[-1]) < _MOST_SEGMENTS
            and size + segment.size <= segment_bytes
            and index + segment.index_bytes <= segment_index_bytes
            and times + segment.time_index_bytes <= segment_index_bytes
            # An empty segment needs no index entries; otherwise one would remain for every 2^31 offsets.
            and (segment.size == 0 or end - 1 - groups[-1][0].base_offset <= _MAX_OFFSET_SPAN)
        )
        if fits:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = index = times = 0
        size += segment.size
        index += segment.index_bytes
        times += segment.time_index_bytes
    return groups
