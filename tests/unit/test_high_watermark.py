"""The end that consumers are shown does not go back: over restarts, and under a new leader (KIP-207)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.broker.api import list_offsets
from penstock.broker.broker import Broker
from penstock.broker.net.context import RequestContext
from penstock.clock import ManualClock
from penstock.config import LogConfig
from penstock.errors import LeaderNotAvailable, NotLeaderOrFollower, OffsetNotAvailable
from penstock.log.checkpoint import HIGH_WATERMARKS, read_offsets, write_offsets
from penstock.log.manager import LogManager
from penstock.log.partition_log import PartitionLog
from penstock.replication.partition import READ_COMMITTED, READ_UNCOMMITTED, Partition
from penstock.wire.codec import Message
from tests.unit.cluster_images import partition as image_of
from tests.unit.log_helpers import TOPIC_ID, batch, marker
from tests.unit.test_log_retention import manager
from tests.unit.test_replication_partition import partition
from tests.unit.test_transactions_broker import KEY, running

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


def loaded(path: Path) -> LogManager:
    logs = manager(path, ManualClock())
    logs.load(lambda topic: LogConfig())
    return logs


def append(to: Partition, count: int, timestamp: int = 1_700_000_000_000) -> None:
    data = batch([b"v"] * count, timestamp=timestamp)
    to.append(data, 0, len(data), 1)


# on disk


@pytest.mark.promise(
    "reassignment",
    "High watermarks are written every `replica.high.watermark.checkpoint.interval.ms` and read at "
    "startup, limited to the offsets of the log",
)
@pytest.mark.parametrize("clean", [True, False])
def test_the_high_watermark_survives_a_restart(tmp_path: Path, clean: bool) -> None:
    logs = loaded(tmp_path)
    log = logs.create("t", 0, TOPIC_ID, LogConfig())
    data = batch([b"a", b"b", b"c", b"d", b"e"])
    log.append_as_leader(data, 0, len(data), 0)
    log.update_high_watermark(3)
    if clean:
        logs.close()
    else:
        logs.checkpoint_high_watermarks()
    assert loaded(tmp_path).logs["t", 0].high_watermark == 3


@pytest.mark.promise(
    "reassignment",
    "High watermarks are written every `replica.high.watermark.checkpoint.interval.ms` and read at "
    "startup, limited to the offsets of the log",
)
@pytest.mark.parametrize(("written", "expected"), [(1, 2), (99, 5), (-1, 2)])
def test_the_high_watermark_of_the_file_counts_within_the_log_only(
    tmp_path: Path, written: int, expected: int
) -> None:
    logs = loaded(tmp_path)
    log = logs.create("t", 0, TOPIC_ID, LogConfig())
    data = batch([b"a", b"b", b"c", b"d", b"e"])
    log.append_as_leader(data, 0, len(data), 0)
    log.update_high_watermark(5)
    log.delete_records_before(2)
    logs.close()
    write_offsets(str(tmp_path / HIGH_WATERMARKS), {("t", 0): written}, log.fs)
    assert loaded(tmp_path).logs["t", 0].high_watermark == expected


@pytest.mark.promise(
    "reassignment",
    "High watermarks are written every `replica.high.watermark.checkpoint.interval.ms` and read at "
    "startup, limited to the offsets of the log",
)
def test_a_transaction_that_ended_below_the_high_watermark_is_stable_after_a_restart(tmp_path: Path) -> None:
    logs = loaded(tmp_path)
    log = logs.create("t", 0, TOPIC_ID, LogConfig())
    data = batch([b"a"], producer=(7, 0, 0), transactional=True)
    log.append_as_leader(data, 0, len(data), 0)
    marker(log, "commit", 7)
    assert log.last_stable_offset == 2
    logs.checkpoint()
    assert loaded(tmp_path).logs["t", 0].last_stable_offset == 2


@pytest.mark.promise(
    "reassignment",
    "After a crash, a topic that was deleted and created again does not take over the offsets of the "
    "deleted topic",
)
def test_a_topic_that_is_made_again_does_not_begin_with_the_offsets_of_the_one_before(tmp_path: Path) -> None:
    """Else records that were acknowledged would lie before the start of the log after a crash."""
    logs = loaded(tmp_path)
    log = logs.create("t", 0, TOPIC_ID, LogConfig())
    data = batch([b"v"] * 10)
    log.append_as_leader(data, 0, len(data), 0)
    log.update_high_watermark(10)
    log.delete_records_before(10)
    logs.checkpoint()
    logs.delete("t", 0)
    again = logs.create("t", 0, TOPIC_ID, LogConfig())
    data = batch([b"v"] * 4)
    again.append_as_leader(data, 0, len(data), 0)
    after = loaded(tmp_path).logs["t", 0]
    assert (after.log_start_offset, after.high_watermark, after.log_end_offset) == (0, 0, 4)


@pytest.mark.promise(
    "reassignment",
    "High watermarks are written every `replica.high.watermark.checkpoint.interval.ms` and read at "
    "startup, limited to the offsets of the log",
)
def test_high_watermarks_are_written_every_few_seconds(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, replica_high_watermark_checkpoint_interval_ms="5000") as broker:
            append(broker.partitions[KEY], 3)
            assert isinstance(broker.clock, ManualClock)
            broker.clock.advance(5001)
            assert "high watermarks" in await broker.jobs.run_due()
            written = read_offsets(str(tmp_path / HIGH_WATERMARKS), broker.partitions[KEY].log.fs)
            assert written[KEY] == 3

    asyncio.run(run())


# a new leader (KIP-207)


@pytest.mark.promise(
    "reassignment",
    "A new leader returns OFFSET_NOT_AVAILABLE (before version 5 LEADER_NOT_AVAILABLE) for the latest "
    "offset until its followers have all records from before its epoch, so that the latest offset never "
    "decreases (KIP-207)",
)
def test_a_new_leader_does_not_know_the_end_until_its_followers_have_what_it_began_with(
    tmp_path: Path,
) -> None:
    one, _ = partition(tmp_path, image_of((1, 2), (1, 2), leader=2))
    data = batch([b"v"] * 5)
    one.log.append_as_follower(data, 0, len(data))
    one.follow(3, 0)
    one.check_end_is_known()  # as a follower it says what it says
    one.update(image_of((1, 2), (1, 2), leader=1, epoch=6))
    with pytest.raises(OffsetNotAvailable):
        one.check_end_is_known()
    append(one, 2)
    one.follower_fetched(2, 4)
    with pytest.raises(OffsetNotAvailable):
        one.check_end_is_known()
    one.follower_fetched(2, 5)
    one.check_end_is_known()
    assert one.log.high_watermark == 5


@pytest.mark.promise(
    "reassignment",
    "A new leader returns OFFSET_NOT_AVAILABLE (before version 5 LEADER_NOT_AVAILABLE) for the latest "
    "offset until its followers have all records from before its epoch, so that the latest offset never "
    "decreases (KIP-207)",
)
def test_a_leader_without_followers_in_sync_knows_the_end_at_once(tmp_path: Path) -> None:
    one, _ = partition(tmp_path, image_of((1, 2), (2,), leader=2))
    data = batch([b"v"] * 5)
    one.log.append_as_follower(data, 0, len(data))
    one.update(image_of((1, 2), (1,), leader=1, epoch=6))
    one.check_end_is_known()
    assert one.log.high_watermark == 5


@pytest.mark.promise(
    "reassignment",
    "A new leader returns OFFSET_NOT_AVAILABLE (before version 5 LEADER_NOT_AVAILABLE) for the latest "
    "offset until its followers have all records from before its epoch, so that the latest offset never "
    "decreases (KIP-207)",
)
def test_a_leader_that_has_just_truncated_does_not_know_the_end_of_committed_records(tmp_path: Path) -> None:
    """Which transactions are open is read back in a thread. Until then the last stable offset is the one from
    before the truncation, and the former leader may have shown a later one."""
    one, _ = partition(tmp_path, image_of((1, 2), (1, 2), leader=2))
    for _ in range(3):
        data = batch([b"v"] * 2, base_offset=one.log.log_end_offset)
        one.log.append_as_follower(data, 0, len(data))
    one.follow(2, 0)
    one.log.truncate_to(4)
    one.update(image_of((1, 2), (1, 2), leader=1, epoch=6))
    one.follower_fetched(2, 4)
    assert (one.log.last_stable_offset, one.log.high_watermark) == (2, 4)
    one.check_end_is_known(READ_UNCOMMITTED)
    with pytest.raises(OffsetNotAvailable):
        one.check_end_is_known(READ_COMMITTED)
    one.log.settle()
    one.check_end_is_known(READ_COMMITTED)
    assert one.log.last_stable_offset == 4


async def offsets(
    broker: Broker, timestamp: int, version: int, *, isolation: int = 0, replica_id: int = -1
) -> tuple[int, int]:
    asked = Message(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    request = Message(
        replica_id=replica_id, isolation_level=isolation, topics=[Message(name="t", partitions=[asked])]
    )
    context = RequestContext(2, version, 1, "test", "test")
    answer = list_offsets.handle(broker, context, request)
    found = (await answer if asyncio.iscoroutine(answer) else answer).topics[0].partitions[0]
    return found.error_code, found.offset


@pytest.mark.promise(
    "reassignment",
    "A new leader returns OFFSET_NOT_AVAILABLE (before version 5 LEADER_NOT_AVAILABLE) for the latest "
    "offset until its followers have all records from before its epoch, so that the latest offset never "
    "decreases (KIP-207)",
)
def test_list_offsets_of_a_new_leader_says_so_until_it_knows_the_end(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as broker:
            one = broker.partitions[KEY]
            start = 1_700_000_000_000
            append(one, 3, timestamp=start)
            one.update(replace(one.image, replicas=(1, 2), isr=(1, 2), partition_epoch=1))
            append(one, 2, timestamp=start + 1000)
            one.update(replace(one.image, leader_epoch=one.image.leader_epoch + 1, partition_epoch=2))
            for isolation in (0, 1):
                for version in (5, 11):
                    assert await offsets(broker, LATEST, version, isolation=isolation) == (
                        OffsetNotAvailable.code,
                        -1,
                    )
                assert await offsets(broker, LATEST, 4, isolation=isolation) == (LeaderNotAvailable.code, -1)
            assert await offsets(broker, start + 1000, 7) == (OffsetNotAvailable.code, -1)
            assert await offsets(broker, start + 9000, 7) == (OffsetNotAvailable.code, -1)
            assert await offsets(broker, MAX_TIMESTAMP, 7) == (OffsetNotAvailable.code, -1)
            # What lies below the high watermark it knows; followers may know all.
            assert await offsets(broker, start, 7) == (0, 0)
            assert await offsets(broker, EARLIEST, 7) == (0, 0)
            assert await offsets(broker, LATEST, 7, replica_id=2) == (0, 5)
            with pytest.raises(OffsetNotAvailable):
                broker.share.first_offset(one, "latest")
            assert broker.share.first_offset(one, "earliest") == 0
            one.follower_fetched(2, 5)
            assert await offsets(broker, LATEST, 7) == await offsets(broker, LATEST, 4) == (0, 5)
            assert (await offsets(broker, start + 1000, 7))[0] == 0
            assert await offsets(broker, start + 9000, 7) == (0, -1)
            assert broker.share.first_offset(one, "latest") == 5

    asyncio.run(run())


@pytest.mark.promise(
    "log",
    "Offsets are looked up by timestamp in a thread; if the leader changes or the log is truncated "
    "meanwhile, the response is NOT_LEADER_OR_FOLLOWER",
)
def test_offsets_by_time_are_looked_up_off_the_loop_and_void_when_the_leader_changes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with running(tmp_path) as broker:
            one = broker.partitions[KEY]
            start = 1_700_000_000_000
            append(one, 3, timestamp=start)
            loop, threads = asyncio.get_running_loop(), []
            original = PartitionLog.offset_for_timestamp
            meanwhile: list[Callable[[], None]] = []

            async def change() -> None:
                meanwhile.pop()()

            def look(log: PartitionLog, timestamp: int) -> object:
                threads.append(threading.current_thread())
                found = original(log, timestamp)
                if meanwhile:
                    asyncio.run_coroutine_threadsafe(change(), loop).result()
                return found

            monkeypatch.setattr(PartitionLog, "offset_for_timestamp", look)
            assert await offsets(broker, start, 7) == (0, 0)
            assert await offsets(broker, MAX_TIMESTAMP, 7) == (0, 0)
            assert len(threads) == 2
            assert threading.current_thread() not in threads
            meanwhile.append(lambda: one.log.truncate_to(1))
            assert await offsets(broker, start, 7) == (NotLeaderOrFollower.code, -1)
            meanwhile.append(lambda: one.update(replace(one.image, leader_epoch=one.image.leader_epoch + 1)))
            assert await offsets(broker, start, 7) == (NotLeaderOrFollower.code, -1)
            meanwhile.append(lambda: one.update(replace(one.image, leader=2)))
            assert await offsets(broker, start, 7) == (NotLeaderOrFollower.code, -1)

    asyncio.run(run())
