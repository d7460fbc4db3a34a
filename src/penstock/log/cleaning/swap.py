"""Rewritten segments take the place of those they were made from, unless the log was cut meanwhile.

The names of files change on the loop, which owns the log; the syncs between them are the caller's, who may do
them in a thread: after each the log is looked at again.
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
    """Yields each directory that must be synced before it goes on. Closed early, it leaves the log as it is.

    Returns False when the log was truncated or lost segments in the meantime: that wins, what no longer fits
    is removed, and the cleaner checkpoint must not move.
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
    """The segments that the group was made from; None when they are no longer as they were."""
    bases = set(group.old_base_offsets)
    old = [segment for segment in log.segments[:-1] if segment.base_offset in bases]
    fits = len(old) == len(bases) and sum(segment.size for segment in old) == group.old_size
    return old if fits and log.truncations == result.truncations else None


def swap_in(log: PartitionLog, result: Rewritten) -> bool:
    """All of it at once; blocks."""
    steps = swapping(log, result)
    while True:
        try:
            log.fs.fsync_dir(next(steps))
        except StopIteration as done:
            return bool(done.value)
