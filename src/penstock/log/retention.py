"""Which segments retention may delete: by age, size, number of records, or because they are below the log
start.

Pure: takes facts about the segments and the current time, returns how many of the oldest segments to delete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.config import LogConfig


class RetainedSegment(NamedTuple):
    base_offset: int
    end_offset: int  # base offset of the next segment; for the active one the log end offset
    size: int
    largest_timestamp: int


def segments_to_delete(
    segments: Sequence[RetainedSegment],
    config: LogConfig,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
) -> int:
    """How many segments to delete, oldest first. This may include the active segment, the last one; the
    caller must roll it first."""
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    log_end_offset = segments[-1].end_offset

    def may_go(segment: RetainedSegment, is_active: bool) -> bool:
        if segment.end_offset > high_watermark or (is_active and segment.size == 0):
            return False
        if segment.end_offset <= log_start_offset and not is_active:
            return True
        if "delete" not in config.cleanup_policy:
            return False
        if 0 <= config.retention_ms < now_ms - segment.largest_timestamp:
            return True
        if 0 <= config.retention_records <= log_end_offset - segment.end_offset:
            return True
        return config.retention_bytes >= 0 and excess >= segment.size

    for i, segment in enumerate(segments):
        if not may_go(segment, is_active=i == len(segments) - 1):
            return i
        excess -= segment.size
    return len(segments)
