"""`PartitionLog.check` finds each state that a log must never be in."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.log.check import InvariantViolated
from penstock.log.epochs import EpochEntry
from penstock.log.index import AbortedTxn
from penstock.log.partition_log import PartitionLog
from tests.unit.log_helpers import append, batch, make_log, marker

pytestmark = pytest.mark.unchecked_logs


def filled(path: Path) -> PartitionLog:
    """Three segments; an aborted transaction, an open one, and two leader epochs."""
    log = make_log(path, segment_bytes=500, index_interval_bytes=1)
    for i in range(12):
        append(log, batch([b"%d" % i * 20], producer=(1, 0, i)), epoch=i // 6)
    append(log, batch([b"gone"], producer=(2, 0, 0), transactional=True), epoch=1)
    marker(log, "abort", 2)
    append(log, batch([b"open"], producer=(3, 0, 0), transactional=True), epoch=1)
    return log


@pytest.mark.promise(
    "crashes",
    "Every open log is checked for consistency after every unit test: segments, offsets, indexes, "
    "producers, leader epochs",
)
def test_a_log_that_was_written_cut_and_opened_again_is_sound(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.check()
    log.truncate_to(9)
    log.check()
    log.delete_records_before(7)
    log.check()
    log.flush()
    log.truncate_fully_and_start_at(100)
    log.check()
    log.settle()
    assert log.high_watermark == 100
    append(log, batch([b"next"], producer=(1, 1, 0)), epoch=2)
    log.close()
    make_log(tmp_path, clean=True).check()


def _set(name: str, value: int) -> Callable[[PartitionLog], None]:
    return lambda log: setattr(log, name, value)


def _drop_middle(log: PartitionLog) -> None:
    log.segments.reverse()


def _cut_file(log: PartitionLog) -> None:
    os.truncate(log.active.file.path, log.active.size - 1)


def _shift_index(log: PartitionLog) -> None:
    log.active.offsets.append(log.log_end_offset, log.active.size + 1)


def _late_time(log: PartitionLog) -> None:
    log.active.times.maybe_append(log.active.max_timestamp + 1, log.active.base_offset)


def _forget_open(log: PartitionLog) -> None:
    log.producers.ongoing.clear()


def _cut_producer(log: PartitionLog) -> None:
    mark = log.producers.producers[1].batches[-1]
    log.producers.producers[1].batches.append(mark._replace(last_offset=log.log_end_offset))


def _strange_abort(log: PartitionLog) -> None:
    log.active.txns.append(AbortedTxn(9, log.active.base_offset, log.active.base_offset, 0))


def _old_epoch(log: PartitionLog) -> None:
    log.epochs.entries.append(EpochEntry(0, 5))


def _far_epoch(log: PartitionLog) -> None:
    log.epochs.entries.append(EpochEntry(9, log.log_end_offset + 1))


def _retired(log: PartitionLog) -> None:
    log.segments[0].retired = True


@pytest.mark.promise(
    "crashes",
    "Every open log is checked for consistency after every unit test: segments, offsets, indexes, "
    "producers, leader epochs",
)
@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (_set("recovery_point", 99), "recovery point is above"),
        (_set("log_start_offset", 99), "starts above"),
        (_set("high_watermark", 99), "high watermark is above"),
        (_set("log_end_offset", 99), "last batch ends"),
        (_drop_middle, "not in order"),
        (_cut_file, "its file"),
        (_shift_index, "where no batch starts"),
        (_late_time, "time index"),
        (_forget_open, "open transactions"),
        (_cut_producer, "has batches at"),
        (_strange_abort, "no abort marker"),
        (_old_epoch, "leader epochs"),
        (_far_epoch, "past the end"),
        (_retired, "out of use"),
    ],
)
def test_what_must_not_be_is_found(tmp_path: Path, damage: Callable[[Any], None], text: str) -> None:
    log = filled(tmp_path)
    damage(log)
    with pytest.raises(InvariantViolated, match=text):
        log.check()
