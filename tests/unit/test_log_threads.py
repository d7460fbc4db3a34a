"""Threads that walk over the logs while the loop changes them find each as it was or as it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.config import BrokerConfig, LogConfig
from penstock.fs import Fs
from penstock.log.cleaning.cleaner import clean
from penstock.log.cleaning.compaction import facts_of, plan_cleaning
from penstock.log.cleaning.swap import swapping
from penstock.log.manager import LogManager
from tests.unit.log_helpers import TOPIC_ID, append, batch
from tests.unit.test_log_files import filled


class _Meanwhile(Fs):
    """Calls `hook` once while a file is made: the other thread's turn."""

    hook: Callable[[], object] | None = None

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        if self.hook is not None and flags & os.O_CREAT and path.endswith(".log"):
            hook, self.hook = self.hook, None
            hook()
        return super().open(path, flags, mode)


@pytest.mark.promise("log", "A log that is restarted at another offset has a segment at every moment")
@pytest.mark.parametrize("work", ["checkpoint", "flush"])
def test_a_log_that_starts_again_has_a_segment_at_every_moment(tmp_path: Path, work: str) -> None:
    fs = _Meanwhile()
    logs = LogManager(BrokerConfig.parse({"log.dirs": str(tmp_path)}), ManualClock(), fs)
    log = logs.create("t", 0, TOPIC_ID, LogConfig())
    append(log, batch([b"a"]))
    # The log's thread, and that of a flush, while the loop makes the new segment.
    fs.hook = logs.checkpoint_log_starts if work == "checkpoint" else log.flush
    log.truncate_fully_and_start_at(50)
    log.check()


@pytest.mark.promise(
    "log", "A log that is truncated while rewritten segments are swapped in does not count as cleaned"
)
def test_a_log_that_is_cut_during_the_last_sync_of_a_swap_is_not_noted_as_cleaned(tmp_path: Path) -> None:
    """Else the cleaner's checkpoint lies above the cut, and what is written there is taken for cleaned."""
    log = filled(tmp_path)
    job = plan_cleaning([facts_of(log)], log.clock.now_ms())
    assert job is not None
    result = clean(job)
    steps = swapping(log, result)
    for _ in range(2 * len(result.groups)):
        next(steps)
    log.truncate_to(5)
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert result.end_offset > log.log_end_offset
    assert done.value.value is False
