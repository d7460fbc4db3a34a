"""Replaces segments by their rewritten versions, unless the log was truncated meanwhile.

Files are renamed on the event loop, which owns the log. The caller does the syncs in between, possibly in a
thread: after each of them the log is checked again.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.log.cleaning.cleaned_segment import discard_cleaned
from penstock.log.cleaning.cleaner import CleanedGroup

if TYPE_CHECKING:
    from penstock.log.partition_log import PartitionLog
    from penstock.log.segment import Segment


class Rewritten(Protocol):
    """The result of a job, from compaction or from strict retention."""

    @property
    def groups(self) -> Sequence[CleanedGroup]: ...

    @property
    def truncations(self) -> int: ...


def swapping(log: PartitionLog, result: Rewritten) -> Generator[str, None, bool]:
    """Yields each directory that must be synced before the next step. If it is closed early, no further
    segment is replaced.

    Returns False if the log was truncated or has lost segments in the meantime: then the remaining rewritten
    segments are deleted, and the cleaner checkpoint must not advance.
    """
    done = 0
    try:
        for group in result.groups:
            old = _fitting(log, result, group)
            if old is None:
                return False
            log.begin_swap([group.new_base_offset])
            yield log.directory
            if _fitting(log, result, group) != old:
                return False
            log.finish_swap(old)
            done += 1
            yield log.directory
    finally:
        log.cancel_swap()
        for rest in result.groups[done:]:
            discard_cleaned(log.directory, rest.new_base_offset, log.fs)
    return log.truncations == result.truncations


def _fitting(log: PartitionLog, result: Rewritten, group: CleanedGroup) -> list[Segment] | None:
    """The segments from which the group was made; None if they have changed."""
    bases = set(group.old_base_offsets)
    old = [segment for segment in log.segments[:-1] if segment.base_offset in bases]
    fits = len(old) == len(bases) and sum(segment.size for segment in old) == group.old_size
    return old if fits and log.truncations == result.truncations else None


def swap_in(log: PartitionLog, result: Rewritten) -> bool:
    """Runs all steps at once. Blocking."""
    steps = swapping(log, result)
    while True:
        try:
            log.fs.fsync_dir(next(steps))
        except StopIteration as done:
            return bool(done.value)
