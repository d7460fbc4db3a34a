"""Between a truncation and the next record: checkpoints, and what is known of producers."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.config import BrokerConfig, LogConfig
from penstock.errors import FencedLeaderEpoch, NotLeaderOrFollower
from penstock.fs import REAL_FS, FaultyFs, Fs
from penstock.log.checkpoint import RECOVERY_POINTS, read_offsets
from penstock.log.epochs import LeaderEpochCache
from penstock.log.index import TransactionIndex
from penstock.log.manager import LogManager
from penstock.log.partition_log import SEGMENTS_AT_ONCE, PartitionLog
from penstock.log.segment import FILE_KINDS
from penstock.replication.follower.following import Following
from penstock.replication.follower.truncations import Truncations
from penstock.replication.partition import Partition
from tests.unit.cluster_images import partition as image_of
from tests.unit.log_helpers import TOPIC_ID, append, batch, contents, make_log, marker


@pytest.mark.promise(
    "crashes",
    "Truncation lowers the recovery point: in memory also while a flush is running, and on disk before "
    "the next append",
)
def test_who_leads_right_after_a_truncation_appends_when_the_recovery_point_on_disk_is_lower(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        written, lowered = asyncio.Event(), []

        async def with_logs(work: Callable[..., None], *args: object) -> None:
            await written.wait()
            work(*args)

        broker: Any = SimpleNamespace(
            logs=SimpleNamespace(truncated=lambda log, offset: lowered.append(offset)),
            with_logs=with_logs,
            in_thread=lambda work, *args: loop.run_in_executor(None, work, *args),
            loop=loop,
        )
        log = make_log(tmp_path)
        for _ in range(30):
            append(log, batch([b"v"]))
        partition = Partition(image_of((1, 2), (1, 2), epoch=10), log, 2, lambda key: None)
        following = Following(partition)
        truncations = Truncations(broker)
        await following.truncate_to(10)
        settled = truncations.settle(log)
        partition.update(image_of((2, 1), (2, 1), epoch=11))
        data = batch([b"v"])
        with pytest.raises(NotLeaderOrFollower):
            partition.append(data, 0, len(data), 1)
        written.set()
        await settled
        assert lowered == [10]
        assert partition.append(data, 0, len(data), 1).base_offset == 10

    asyncio.run(main())


@pytest.mark.promise(
    "crashes",
    "Truncation lowers the recovery point: in memory also while a flush is running, and on disk before "
    "the next append",
)
def test_a_recovery_point_that_could_not_be_lowered_is_lowered_later(tmp_path: Path) -> None:
    """The disk is full at the first try: the second must not take the recovery point for written."""
    fs = FaultyFs()
    logs = LogManager(BrokerConfig.parse({"log.dirs": str(tmp_path)}), ManualClock(), fs)
    log = logs.create("t", 0, TOPIC_ID, LogConfig())
    for _ in range(10):
        append(log, batch([b"v"]))
    log.flush()
    logs.checkpoint()
    log.truncate_to(4)
    fs.fail("write", RECOVERY_POINTS, errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        logs.truncated(log, 4)
    assert read_offsets(str(tmp_path / RECOVERY_POINTS), fs) == {("t", 0): 10}
    logs.truncated(log, 4)
    assert read_offsets(str(tmp_path / RECOVERY_POINTS), fs) == {("t", 0): 4}


@pytest.mark.promise(
    "crashes",
    "Truncation lowers the recovery point: in memory also while a flush is running, and on disk before "
    "the next append",
)
def test_a_log_that_is_truncated_again_just_as_it_is_settled_is_settled_again(tmp_path: Path) -> None:
    """Else nothing is ever appended to it again."""

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def with_logs(work: Callable[..., None], *args: object) -> None:
            work(*args)

        broker: Any = SimpleNamespace(
            logs=SimpleNamespace(truncated=lambda log, offset: None),
            with_logs=with_logs,
            in_thread=lambda work, *args: loop.run_in_executor(None, work, *args),
            loop=loop,
        )
        log = make_log(tmp_path)
        for _ in range(30):
            append(log, batch([b"v"]))
        truncations = Truncations(broker)
        log.truncate_to(20)
        first = truncations.settle(log)
        while not log.is_settled:
            await asyncio.sleep(0)
        log.truncate_to(10)
        await truncations.settle(log)
        await first
        assert log.is_settled

    asyncio.run(main())


@pytest.mark.promise(
    "crashes", "A truncation completes on a full disk and keeps the index of aborted transactions"
)
def test_a_truncation_on_a_full_disk_leaves_no_producer_and_no_epoch_of_what_was_cut(tmp_path: Path) -> None:
    """Else the retry of a batch that was cut is answered as a duplicate, and the batch is lost."""

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def with_logs(work: Callable[..., None], *args: object) -> None:
            work(*args)

        broker: Any = SimpleNamespace(
            logs=SimpleNamespace(truncated=lambda log, offset: None),
            with_logs=with_logs,
            in_thread=lambda work, *args: loop.run_in_executor(None, work, *args),
            loop=loop,
        )
        fs = FaultyFs()
        log = make_log(tmp_path, fs=fs)
        append(log, batch([b"v"], producer=(1, 0, 0)), epoch=0)
        append(log, batch([b"w"], producer=(1, 0, 1)), epoch=1)
        fs.fail("open", "leader-epoch-checkpoint", errno.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            log.truncate_to(1)
        await Truncations(broker).settle(log)
        assert log.producers.producers[1].last_sequence == 0
        assert LeaderEpochCache(log.epochs.path, REAL_FS).entries == log.epochs.entries == [(0, 0)]

    asyncio.run(main())


@pytest.mark.promise(
    "crashes", "If there is no disk space to restart a log at another offset, the log stays unchanged"
)
def test_a_log_that_cannot_start_elsewhere_on_a_full_disk_keeps_its_records(tmp_path: Path) -> None:
    fs = FaultyFs()
    log = make_log(tmp_path, fs=fs)
    append(log, batch([b"v"]))
    fs.fail("open", f"{500:020d}.log", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        log.truncate_fully_and_start_at(500)
    append(log, batch([b"w"]))
    log.close()
    assert contents(make_log(tmp_path, clean=True)) == [(0, b"v"), (1, b"w")]


@pytest.mark.promise(
    "crashes", "A truncation completes on a full disk and keeps the index of aborted transactions"
)
def test_a_truncation_on_a_full_disk_keeps_the_index_of_aborted_transactions(tmp_path: Path) -> None:
    fs = FaultyFs()
    log = make_log(tmp_path, fs=fs)
    for epoch in range(3):
        append(log, batch([b"v"], producer=(1, epoch, 0), transactional=True))
        marker(log, "abort", 1, epoch)
    before = log.aborted_transactions(0, 4)
    assert len(before) == 2
    fs.disk_limit(0)
    log.truncate_to(4)
    log.settle()
    assert log.aborted_transactions(0, 4) == before
    fs.heal()
    append(log, batch([b"v"], producer=(1, 3, 0), transactional=True))
    marker(log, "abort", 1, 3)
    assert [txn.first_offset for txn in TransactionIndex(log.active.txns.path, REAL_FS)] == [0, 2, 4]


# a log of many segments


SEGMENTS = 100


class _Renames(Fs):
    """Counts the renames in each turn of the loop, and dies at one of them."""

    def __init__(self, most: int | None = None) -> None:
        self.turn = 0
        self.in_turn: Counter[int] = Counter()
        self.left = most

    def rename(self, source: str, target: str) -> None:
        if self.left is not None:
            if not self.left:
                raise _DiedError
            self.left -= 1
        super().rename(source, target)
        self.in_turn[self.turn] += 1

    async def count_turns(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)


class _DiedError(BaseException):
    pass


def long_log(path: Path, fs: Fs) -> PartitionLog:
    """One record in each segment."""
    log = make_log(path, fs=fs, segment_bytes=80, index_interval_bytes=1)
    for number in range(SEGMENTS):
        append(log, batch([b"%04d" % number]))
    assert len(log.segments) == SEGMENTS
    return log


def follower(log: PartitionLog) -> Following:
    return Following(Partition(image_of((1, 2), (1, 2), epoch=10), log, 2, lambda key: None))


@pytest.mark.promise(
    "crashes",
    "Truncations and deletions process at most eight segments in one turn of the event loop; a crash in "
    "between leaves a log without gaps",
)
@pytest.mark.parametrize("fully", [False, True])
def test_a_truncation_renames_few_files_in_a_turn_of_the_loop(tmp_path: Path, fully: bool) -> None:
    async def main() -> None:
        fs = _Renames()
        log = long_log(tmp_path, fs)
        fs.in_turn.clear()
        turns = asyncio.ensure_future(fs.count_turns())
        following = follower(log)
        await (following.start_at(500) if fully else following.truncate_to(3))
        turns.cancel()
        log.settle()
        assert len(fs.in_turn) > SEGMENTS // SEGMENTS_AT_ONCE
        assert max(fs.in_turn.values()) <= SEGMENTS_AT_ONCE * len(FILE_KINDS)
        if fully:
            assert (log.log_start_offset, log.log_end_offset) == (500, 500)
        else:
            assert [offset for offset, _ in contents(log)] == [0, 1, 2]
        log.close()

    asyncio.run(main())


@pytest.mark.promise(
    "crashes",
    "Truncations and deletions process at most eight segments in one turn of the event loop; a crash in "
    "between leaves a log without gaps",
)
@pytest.mark.parametrize("renames", [0, 1, 2, 3, 10, 29, 30, 31, 100, 200])
def test_a_truncation_that_a_crash_ends_leaves_a_log_without_a_hole(tmp_path: Path, renames: int) -> None:
    async def main() -> None:
        fs = _Renames()
        log = long_log(tmp_path, fs)
        fs.left = renames
        with pytest.raises(_DiedError):
            await follower(log).truncate_to(3)
        log.failed = OSError("its process died")
        again = make_log(tmp_path, segment_bytes=80, index_interval_bytes=1)
        offsets = [offset for offset, _ in contents(again)]
        assert len(offsets) >= 3
        assert offsets == list(range(len(offsets)))
        again.close()

    asyncio.run(main())


@pytest.mark.promise(
    "crashes",
    "Truncations and deletions process at most eight segments in one turn of the event loop; a crash in "
    "between leaves a log without gaps",
)
def test_a_follower_that_is_made_leader_while_it_truncates_keeps_the_rest(tmp_path: Path) -> None:
    async def main() -> None:
        log = long_log(tmp_path, _Renames())
        following = follower(log)
        cut = asyncio.ensure_future(following.truncate_to(3))
        await asyncio.sleep(0)
        following.partition.update(image_of((2, 1), (2, 1), epoch=11))
        end = log.log_end_offset
        with pytest.raises(FencedLeaderEpoch):
            await cut
        assert 3 < log.log_end_offset == end < SEGMENTS
        log.settle()
        data = batch([b"v"])
        assert following.partition.append(data, 0, len(data), 1).base_offset == end
        log.close()

    asyncio.run(main())


@pytest.mark.promise(
    "crashes",
    "Truncations and deletions process at most eight segments in one turn of the event loop; a crash in "
    "between leaves a log without gaps",
)
@pytest.mark.parametrize("by", ["DeleteRecords", "consumed", "leader"])
def test_a_deletion_moves_the_start_at_once_and_drops_a_few_segments_at_a_time(
    tmp_path: Path, by: str
) -> None:
    fs = _Renames()
    log = long_log(tmp_path, fs)
    if by == "consumed":
        log.apply_retention(97, SEGMENTS_AT_ONCE)
    elif by == "leader":
        follower(log).advance(SEGMENTS, 97)
    else:
        log.delete_records_before(97)
    assert log.log_start_offset == 97
    assert log.segments_below_start == 97 - SEGMENTS_AT_ONCE
    newest = log.max_timestamp_offset()
    assert newest is not None and newest.offset == 97
    log.check()
    again = make_log(tmp_path, segment_bytes=80, index_interval_bytes=1, log_start_offset=97)
    assert [offset for offset, _ in contents(again)] == [97, 98, 99]
    again.failed = OSError("its process died")
    while log.segments_below_start:
        fs.in_turn.clear()
        assert 0 < log.drop_below_start() <= SEGMENTS_AT_ONCE
        assert fs.in_turn.total() <= SEGMENTS_AT_ONCE * len(FILE_KINDS)
        log.check()
    assert [segment.base_offset for segment in log.segments] == [97, 98, 99]
    log.close()
