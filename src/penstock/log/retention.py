"""Which segments may go: by age, by size, or because nothing reads them any more.

Pure: facts about the segments and a clock reading in, a number of leading segments out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.config import LogConfig


class SegmentFacts(NamedTuple):
    base_offset: int
    end_offset: int  # base offset of the next segment; for the active one the log end offset
    size: int
    largest_timestamp: int


def segments_to_delete(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
) -> int:
    """How many segments, oldest first, retention lets go. The active one counts as the last of them;
    the caller starts a new segment first where that one has to go as well."""
    excess = -1
    if config.retention_bytes >= 0 and "delete" in config.cleanup_policy:
        excess = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for segment in segments:
        if segment.end_offset > high_watermark or (segment.size == 0 and segment is segments[-1]):
            break
        if segment.end_offset <= log_start_offset and segment is not segments[-1]:
            pass
        elif "delete" not in config.cleanup_policy:
            break
        elif (config.retention_ms >= 0 and now_ms - segment.largest_timestamp > config.retention_ms) or (
            excess >= segment.size and config.retention_bytes >= 0
        ):
            pass
        else:
            break
        excess -= segment.size
        count += 1
    return count
