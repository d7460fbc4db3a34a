"""Background work on a log that changes while it is under way: what happened to the log meanwhile wins."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.broker import Broker
from penstock.broker.maintenance import maintenance as maintenance_module
from penstock.clock import ManualClock
from penstock.config import BrokerConfig
from penstock.controller import TopicSpec
from penstock.fs import REAL_FS, FaultyFs, Fs
from penstock.log.cleaning.compaction import facts_of, plan_cleaning
from penstock.log.partition_log import PartitionLog
from penstock.log.recovery.loading import open_log
from penstock.log.recovery.scan import CorruptSegment
from penstock.wire.batches.records import Record, build_batch, iter_records

HOUR_MS = 3_600_000


@asynccontextmanager
async def running(
    directory: Path, clock: ManualClock, fs: Fs = REAL_FS, **configs: str
) -> AsyncIterator[Broker]:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory)}
    broker = Broker(BrokerConfig.parse(settings), clock, fs)
    await broker.start()
    try:
        spec = TopicSpec(
            "t", 1, 1, configs={name.replace("_", "."): value for name, value in configs.items()}
        )
        (result,) = await broker.controller.create_topics([spec])
        assert result.error is None
        await broker.caught_up()
        yield broker
    finally:
        await broker.stop()


def write(log: PartitionLog, key: bytes, value: bytes) -> None:
    data = bytearray(build_batch([Record(0, log.clock.now_ms(), key, value)]))
    log.append_as_leader(data, 0, len(data), log.latest_epoch if log.latest_epoch >= 0 else 0)
    log.update_high_watermark(log.log_end_offset)


def records(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.key, record.value)
        for segment, position, header in log.headers(log.log_start_offset)
        for record in iter_records(segment.batch(position, header))
    ]


def interrupted(broker: Broker, change: Callable[[], None]) -> None:
    """The child process does its job once, and before its result is back the log changes."""
    maintenance: Any = broker._maintenance
    original = maintenance._in_child
    left = [1]

    async def in_child(one: PartitionLog, work: Callable[[Any], Any], job: Any) -> Any:
        if not left:
            return await original(one, work, job)
        left.pop()
        result = work(job)
        change()
        return result

    maintenance._in_child = in_child


async def filled(broker: Broker, clock: ManualClock) -> PartitionLog:
    """Eight records in four closed segments, and an active one. Old and new values have one length."""
    log = broker.partitions["t", 0].log
    for i in range(8):
        if i and i % 2 == 0:
            log.roll()
        write(log, b"k%d" % (i % 3), b"old%d" % i)
        clock.advance(10)
    log.roll()
    write(log, b"end", b"end")
    return log


@pytest.mark.promise(
    "log",
    "A truncation takes precedence over a compaction or strict retention that is running: truncated "
    "records do not come back",
)
@pytest.mark.parametrize("job", ["compaction", "retention"])
def test_what_was_truncated_during_a_rewrite_does_not_come_back(tmp_path: Path, job: str) -> None:
    """The new records lie in segments of the same offsets and sizes: only the log knows that it was cut."""

    async def main() -> None:
        clock = ManualClock()
        if job == "compaction":
            configs = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"}
        else:
            configs = {"retention_ms": str(HOUR_MS), "penstock.retention.strict": "true"}
        async with running(tmp_path, clock, **configs) as broker:
            log = await filled(broker, clock)
            if job == "retention":
                clock.advance(HOUR_MS - 75)  # the first record is too old, its neighbour is not

            def change() -> None:
                log.truncate_to(1)
                log.settle()
                for i in range(1, 8):
                    if i % 2 == 0:
                        log.roll()
                    write(log, b"n%d" % i, b"new%d" % i)
                log.roll()
                write(log, b"end", b"end")

            interrupted(broker, change)
            await getattr(broker._maintenance, job)()
            found = records(log)
            assert [value for _, key, value in found if key != b"end" and value[:3] == b"old"] in (
                [b"old0"],
                [],
            )
            assert [record for record in found if 1 <= record[0] < 8] == [
                (i, b"n%d" % i, b"new%d" % i) for i in range(1, 8)
            ]
            assert not [name for name in os.listdir(log.directory) if name.endswith((".cleaned", ".swap"))]

    asyncio.run(main())


def test_a_broker_that_stops_while_its_cleaning_process_starts_leaves_none_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starting, stopped = threading.Event(), threading.Event()
    children: list[Any] = []
    start_child = maintenance_module._start_child

    def slowly() -> Any:
        child = start_child()
        children.extend(child._processes.values())
        starting.set()
        assert stopped.wait(60)
        return child

    async def main() -> None:
        clock = ManualClock()
        monkeypatch.setattr(maintenance_module, "_start_child", slowly)
        async with running(
            tmp_path, clock, cleanup_policy="compact", min_cleanable_dirty_ratio="0"
        ) as broker:
            log = await filled(broker, clock)
            before = records(log)
            compaction = asyncio.create_task(broker._maintenance.compaction())
            await asyncio.to_thread(starting.wait, 60)
            broker._maintenance.stop()
            stopped.set()
            await asyncio.wait_for(compaction, 60)
            assert records(log) == before

    asyncio.run(main())
    (child,) = children
    child.join(60)
    assert child.exitcode is not None


@pytest.mark.promise(
    "log",
    "A truncation takes precedence over a compaction or strict retention that is running: truncated "
    "records do not come back",
)
def test_a_log_that_was_cut_under_the_cleaner_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with running(
            tmp_path, clock, cleanup_policy="compact", min_cleanable_dirty_ratio="0"
        ) as broker:
            log = await filled(broker, clock)
            maintenance: Any = broker._maintenance
            maintenance._child = ThreadPoolExecutor(1)
            job = plan_cleaning([facts_of(log)], clock.now_ms())

            def unreadable(_: Any) -> None:
                raise CorruptSegment(log.segments[0].file.path, 0, "torn", torn=True)

            def cut(job: Any) -> None:
                log.truncate_to(3)
                unreadable(job)

            assert await maintenance._in_child(log, cut, job) is None
            assert log not in maintenance._uncleanable
            job = plan_cleaning([facts_of(log)], clock.now_ms())
            assert await maintenance._in_child(log, unreadable, job) is None
            assert log in maintenance._uncleanable
            maintenance._close_child()

    asyncio.run(main())


class SyncedFs(Fs):
    """Notes in which threads it syncs; `on_sync` is called after a directory was."""

    def __init__(self) -> None:
        self.threads: set[threading.Thread] = set()
        self.on_sync: Callable[[str], None] = lambda path: None

    def fsync(self, fd: int) -> None:
        self.threads.add(threading.current_thread())
        super().fsync(fd)

    def fsync_dir(self, path: str) -> None:
        super().fsync_dir(path)
        self.on_sync(path)


COMPACTED = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"}


@pytest.mark.promise(
    "log",
    "Rewritten segments are swapped in without an fsync on the event loop; changes of the log between "
    "the steps take precedence, also after a crash",
)
@pytest.mark.parametrize("job", ["compaction", "retention"])
def test_segments_are_swapped_in_without_a_sync_on_the_loop(tmp_path: Path, job: str) -> None:
    async def main() -> None:
        clock, fs = ManualClock(), SyncedFs()
        strict = {"retention_ms": str(HOUR_MS), "penstock.retention.strict": "true"}
        async with running(tmp_path, clock, fs, **(COMPACTED if job == "compaction" else strict)) as broker:
            log = await filled(broker, clock)
            if job == "retention":
                clock.advance(HOUR_MS - 75)
            before = log.size
            fs.threads.clear()
            await getattr(broker._maintenance, job)()
            assert log.size < before
            assert fs.threads
            assert threading.current_thread() not in fs.threads

    asyncio.run(main())


@pytest.mark.promise(
    "log",
    "Rewritten segments are swapped in without an fsync on the event loop; changes of the log between "
    "the steps take precedence, also after a crash",
)
@pytest.mark.parametrize("change", ["truncate_to", "delete_records_before"])
@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_what_happens_to_the_log_between_the_steps_of_a_swap_wins_also_after_a_crash(
    tmp_path: Path, step: int, change: str
) -> None:
    """While a directory is synced in its thread, the loop cuts the log, writes to it and flushes."""

    async def main() -> None:
        clock, fs = ManualClock(), SyncedFs()
        async with running(tmp_path / "data", clock, fs, segment_bytes="200", **COMPACTED) as broker:
            log = await filled(broker, clock)
            loop, synced = asyncio.get_running_loop(), []

            async def cut() -> None:
                getattr(log, change)(5)
                log.settle()
                for i in range(5):
                    write(log, b"n%d" % i, b"new%d" % i)

            def on_sync(path: str) -> None:
                if path == log.directory:
                    synced.append(path)
                    if len(synced) == step + 1:
                        asyncio.run_coroutine_threadsafe(cut(), loop).result()
                        log.flush()
                        shutil.copytree(log.directory, tmp_path / "crashed")

            fs.on_sync = on_sync
            interrupted(broker, lambda: None)
            await broker._maintenance.compaction()
            assert len(synced) > step, "the swap has fewer steps"
            log.check()
            new = [(key, value) for _, key, value in records(log) if value[:3] == b"new"]
            assert new == [(b"n%d" % i, b"new%d" % i) for i in range(5)]
            crashed = open_log(
                str(tmp_path / "crashed"), "t", 0, log.topic_id, log.config, clock, clean=False,
                recovery_point=log.recovery_point, log_start_offset=log.log_start_offset,
            )  # fmt: skip
            found = [(key, value) for _, key, value in records(crashed)]
            assert found[-5:] == new
            if change == "truncate_to":
                assert all(offset < 5 for offset, _, value in records(crashed) if value[:3] == b"old")

    asyncio.run(main())


class _Renames(Fs):
    """Counts renames of segments in each turn of the loop."""

    def __init__(self) -> None:
        self.turn = 0
        self.turns: dict[int, int] = {}

    def rename(self, source: str, target: str) -> None:
        if target.endswith(".deleted"):
            self.turns[self.turn] = self.turns.get(self.turn, 0) + 1
        super().rename(source, target)


@pytest.mark.promise(
    "log",
    "The codec of an API is built in a thread when a client first calls that API, and only that client "
    "waits; retention removes at most eight segments in one turn of the event loop",
)
def test_retention_takes_a_few_segments_out_of_use_in_each_turn_of_the_loop(tmp_path: Path) -> None:
    """Each is several files to rename, which nobody's request should wait for."""

    async def main() -> None:
        clock, fs = ManualClock(), _Renames()
        async with running(tmp_path, clock, fs, retention_ms="1000") as broker:
            await broker.jobs.stop()  # or on a slow machine it begins a pass beside the one of the test
            log = broker.partitions["t", 0].log
            for number in range(50):
                write(log, b"key", b"%d" % number)
                log.roll()
            clock.advance(HOUR_MS)
            loop = asyncio.get_running_loop()

            def tick() -> None:
                fs.turn += 1
                ticking[0] = loop.call_soon(tick)

            ticking = [loop.call_soon(tick)]
            await broker._maintenance.retention()
            ticking[0].cancel()
            assert (log.log_start_offset, len(log.segments)) == (50, 1)
            assert sum(fs.turns.values()) >= 50
            assert max(fs.turns.values()) <= 8 * 5

    asyncio.run(main())


@pytest.mark.promise("crashes", "Retention makes room on a full disk")
def test_a_log_that_cannot_be_rolled_does_not_keep_retention_from_the_others(tmp_path: Path) -> None:
    async def main() -> None:
        clock, fs = ManualClock(), FaultyFs()
        strict = {"retention_ms": "1000", "penstock_retention_strict": "true"}
        async with running(tmp_path, clock, fs, **strict) as broker:
            await broker.jobs.stop()
            spec = TopicSpec("u", 1, 1, configs={"retention.ms": "1000"})
            assert (await broker.controller.create_topics([spec]))[0].error is None
            await broker.caught_up()
            logs = [broker.partitions[name, 0].log for name in ("t", "u")]
            for each in logs:
                write(each, b"key", b"0")
                each.roll()
                write(each, b"key", b"1")
            clock.advance(HOUR_MS)
            fs.fail("open", f"t-0/{2:020d}.log", errno.ENOSPC, times=-1)
            await broker._maintenance.retention()
            assert [each.log_start_offset for each in logs] == [1, 2]
            fs.heal()
            await broker._maintenance.retention()
            assert [each.log_start_offset for each in logs] == [2, 2]

    asyncio.run(main())


@pytest.mark.promise(
    "crashes",
    "Truncations and deletions process at most eight segments in one turn of the event loop; a crash in "
    "between leaves a log without gaps",
)
def test_segments_below_the_log_start_are_dropped_soon_after_whatever_the_cleanup_policy(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with running(tmp_path, ManualClock(), cleanup_policy="compact") as broker:
            log = broker.partitions["t", 0].log
            for i in range(30):
                write(log, b"k%d" % i, b"v")
                log.roll()
            log.delete_records_before(29)
            assert len(log.segments) > 2
            maintenance: Any = broker._maintenance
            await maintenance.purge()
            assert [segment.base_offset for segment in log.segments] == [29, 30]
            assert records(log) == [(29, b"k29", b"v")]

    asyncio.run(main())
