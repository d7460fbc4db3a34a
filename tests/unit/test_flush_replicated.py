"""flush.messages on every replica: what is not on its disk, a follower does not report and a leader does not
count.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.fs import FaultyFs
from penstock.replication.follower.leader_fetcher import Followed
from penstock.replication.partition import Partition
from tests.unit.cluster_images import partition as image_of
from tests.unit.test_failed_syncs import _Held
from tests.unit.test_followers import TOPIC, Leader, fetcher, replica, until
from tests.unit.test_produce_wait import replicate, topic
from tests.unit.test_replication_partition import batch, partition
from tests.unit.test_transactions_broker import running


def following(path: Path) -> Partition:
    found, _ = partition(path / "2", image_of((1, 2), (1,), index=0, epoch=5), broker=2, flush_messages="1")
    return found


@pytest.mark.promise(
    "crashes",
    "With `flush.messages=1`, a record that acks=all acknowledged is on the disks of all in-sync "
    "replicas: it survives a power loss of all of them at once",
)
def test_a_follower_reports_records_when_they_are_on_disk(tmp_path: Path) -> None:
    async def run() -> None:
        leader = Leader({0: replica(tmp_path, 1, 0, 5)})
        leader.partitions[0].append(batch(3), 0, len(batch(3)), 1)
        mine, go_on = following(tmp_path), asyncio.Event()
        one: Any = fetcher(leader, ManualClock())

        async def flush() -> None:
            await go_on.wait()
            mine.log.flush()

        one._broker.flush = lambda found: asyncio.ensure_future(flush())
        one.add(Followed(mine, TOPIC))
        await until(lambda: mine.log.log_end_offset == 3)
        for _ in range(50):
            await asyncio.sleep(0)
        assert {offset for _, offset in leader.asked} == {0}
        go_on.set()
        await until(lambda: (5, 3) in leader.asked)
        await one.stop()

    asyncio.run(run())


@pytest.mark.promise(
    "crashes",
    "With `flush.messages=1`, a record that acks=all acknowledged is on the disks of all in-sync "
    "replicas: it survives a power loss of all of them at once",
)
def test_after_a_failed_sync_a_follower_never_reports_the_records(tmp_path: Path) -> None:
    async def run() -> None:
        leader = Leader({0: replica(tmp_path, 1, 0, 5), 1: replica(tmp_path, 1, 1, 5)})
        leader.partitions[0].append(batch(3), 0, len(batch(3)), 1)
        mine = following(tmp_path)
        one: Any = fetcher(leader, ManualClock())

        async def flush() -> None:
            mine.log.failed = OSError(5, "no")
            raise mine.log.failed

        one._broker.flush = lambda found: asyncio.ensure_future(flush())
        one.add(Followed(mine, TOPIC))
        await until(lambda: mine.log.failed is not None)
        one.add(Followed(replica(tmp_path, 2, 1, 5), TOPIC))
        leader.partitions[1].append(batch(), 0, len(batch()), 1)
        await until(lambda: one.followed[TOPIC, 1].partition.log.log_end_offset == 1)
        assert {offset for _, offset in leader.asked} == {0}
        await one.stop()

    asyncio.run(run())


@pytest.mark.promise(
    "crashes",
    "With `flush.messages=1`, a record that acks=all acknowledged is on the disks of all in-sync "
    "replicas: it survives a power loss of all of them at once",
)
def test_the_high_watermark_waits_for_the_disk_of_the_leader(tmp_path: Path) -> None:
    """Whoever has appended: a marker is flushed as a produced batch is."""

    async def main() -> None:
        fs = _Held()
        fs.fsync = lambda fd: held(fs, fd)  # type: ignore[method-assign]
        async with running(tmp_path, fs) as broker:
            (found,) = await topic(broker, flush_messages="1")
            data = batch()
            info = found.append(data, 0, len(data), -1, origin="coordinator")
            assert await asyncio.get_running_loop().run_in_executor(None, fs.reached.wait, 30)
            replicate(found)
            assert not found.is_replicated(info.last_offset)
            fs.go_on.set()
            await until(lambda: found.is_replicated(info.last_offset))

    asyncio.run(main())


def held(fs: _Held, fd: int) -> None:
    """The first sync of the topic waits, and succeeds."""
    if "/f-0/" in fs._paths.get(fd, "") and fs._paths[fd].endswith(".log"):
        fs.reached.set()
        assert fs.go_on.wait(30)
    FaultyFs.fsync(fs, fd)
