"""What a whole broker promises over time: waits, flushes, background work, restarts, foreign directories."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import shutil
import socket
import struct
import threading
import uuid
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.broker import METADATA_FILE, Broker
from penstock.broker.net import dispatch as dispatching
from penstock.broker.net.dispatch import CloseConnection, Pending
from penstock.broker.net.session import Session
from penstock.clock import ManualClock
from penstock.config import BrokerConfig
from penstock.controller import TopicRef, TopicSpec
from penstock.errors import ConfigError, KafkaStorageError, RequestTimedOut, UnknownTopicId
from penstock.fs import REAL_FS, FaultyFs, Fs
from penstock.log.recovery.scan import CorruptSegment
from penstock.wire import codec
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch, iter_records

DAY_MS = 86_400_000


@asynccontextmanager
async def running(
    directory: Path, clock: ManualClock | None = None, fs: Fs = REAL_FS, **settings: str
) -> AsyncIterator[Broker]:
    values = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory)}
    values |= {name.replace("_", "."): value for name, value in settings.items()}
    broker = Broker(BrokerConfig.parse(values), clock or ManualClock(), fs)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


async def create(broker: Broker, name: str = "t", **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    (result,) = await broker.controller.create_topics([TopicSpec(name, 1, 1, configs=settings)])
    assert result.error is None
    await broker.caught_up()


def dispatch(broker: Broker, key: int, version: int, body: bytes, flexible: bool = False) -> Pending | bytes:
    frame = bytearray(struct.pack(">hhih", key, version, 9, -1) + (b"\0" if flexible else b"") + body)
    answer = broker._dispatcher.dispatch(Session("test", 1), frame, 0, len(frame))
    if isinstance(answer, Pending):
        return answer
    return joined(answer)


def joined(answer: Any) -> bytes:
    if isinstance(answer, list):
        return b"".join(chunk if isinstance(chunk, bytes) else chunk.read() for chunk in answer)
    assert isinstance(answer, bytes)
    return answer


async def answered(response: Pending | bytes) -> bytes:
    if not isinstance(response, Pending):
        return response
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    response.when_done(future.set_result)
    answer = await future
    assert not isinstance(answer, CloseConnection)
    return joined(answer)


def produce(
    broker: Broker, key: bytes | None = None, acks: int = 1, timeout_ms: int = 30_000, topic: str = "t"
) -> Pending | bytes:
    record = Record(0, broker.clock.now_ms(), key, b"value", (), 0, 0)
    batch = build_batch([record])
    name = topic.encode()
    body = struct.pack(">hhii", -1, acks, timeout_ms, 1) + struct.pack(">h", len(name)) + name
    return dispatch(broker, ApiKey.PRODUCE, 7, body + struct.pack(">iii", 1, 0, len(batch)) + batch)


def produced(answer: bytes, topic: str = "t") -> tuple[int, int]:
    """Error code and offset."""
    code, offset = struct.unpack_from(">hq", answer, 4 + 4 + 4 + 2 + len(topic) + 4 + 4)
    return code, offset


def fetch_by_id(broker: Broker, topic_id: uuid.UUID, offset: int, max_wait_ms: int) -> Pending | bytes:
    body = struct.pack(">iiiibii", -1, max_wait_ms, 1, 1 << 20, 0, 0, -1)
    body += b"\x02" + topic_id.bytes + b"\x02" + struct.pack(">iiqiqi", 0, -1, offset, -1, -1, 1 << 20)
    return dispatch(broker, ApiKey.FETCH, 13, body + b"\0\0\x01\x01\0", flexible=True)


def fetched(answer: bytes) -> tuple[int, int]:
    """Error code and high watermark of the one partition."""
    code, high_watermark = struct.unpack_from(">hq", answer, 4 + 5 + 10 + 1 + 16 + 1 + 4)
    return code, high_watermark


def test_acks_all_is_answered_when_the_follower_has_it_and_else_times_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await create(broker)
            partition = broker.partitions["t", 0]
            partition.update(replace(partition.image, replicas=(1, 2), isr=(1, 2)))
            late = produce(broker, acks=-1, timeout_ms=20)
            assert isinstance(late, Pending)
            assert produced(await answered(late)) == (RequestTimedOut.code, -1)
            waiting = asyncio.ensure_future(answered(produce(broker, acks=-1)))
            await asyncio.sleep(0)
            body = struct.pack(">iiiibi", 2, 0, 1, 1 << 20, 0, 1) + struct.pack(">h", 1) + b"t"
            dispatch(broker, ApiKey.FETCH, 4, body + struct.pack(">iiqi", 1, 0, 2, 1 << 20))
            assert produced(await waiting) == (0, 1)
            assert broker.delayed.waiters == {}

    asyncio.run(main())


def test_with_flush_messages_an_answer_means_that_it_is_on_disk(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await create(broker, flush_messages="1")
            response = produce(broker)
            assert isinstance(response, Pending)
            assert produced(await answered(response)) == (0, 0)
            assert broker.partitions["t", 0].log.recovery_point == 1

    asyncio.run(main())


def test_a_waiting_fetch_hears_of_records_and_of_the_end_of_its_topic(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await create(broker)
            topic_id = broker.image.topics["t"].id
            waiting = fetch_by_id(broker, topic_id, 0, 60_000)
            assert isinstance(waiting, Pending)
            answer = asyncio.ensure_future(answered(waiting))
            await asyncio.sleep(0)
            produce(broker)
            assert fetched(await answer) == (0, 1)
            waiting = fetch_by_id(broker, topic_id, 1, 60_000)
            answer = asyncio.ensure_future(answered(waiting))
            await asyncio.sleep(0)
            await broker.controller.delete_topics([TopicRef("t")])
            assert fetched(await answer)[0] == UnknownTopicId.code
            assert broker.delayed.waiters == {}

    asyncio.run(main())


def test_an_abandoned_fetch_waits_no_more(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await create(broker)
            waiting = fetch_by_id(broker, broker.image.topics["t"].id, 0, 60_000)
            assert isinstance(waiting, Pending)
            assert broker.delayed.waiters
            waiting.abandon()
            await asyncio.sleep(0)
            assert broker.delayed.waiters == {}

    asyncio.run(main())


def test_retention_compaction_and_removal_of_files_follow_the_clock(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with running(tmp_path, clock) as broker:
            await create(broker, "old", segment_bytes="1048576", retention_ms="3600000")
            await create(
                broker, "keys", cleanup_policy="compact", segment_ms="1000", min_cleanable_dirty_ratio="0.01"
            )
            for i in range(6):
                produce(broker, topic="old")
                produce(broker, key=b"k%d" % (i % 2), topic="keys")
                clock.advance(1001)
            produce(broker, key=b"last", topic="keys")
            clock.advance(DAY_MS // 2)
            await broker.jobs.run_due()
            old, keys = broker.partitions["old", 0].log, broker.partitions["keys", 0].log
            assert old.log_start_offset == old.log_end_offset == 6
            kept = [
                (record.offset, record.key)
                for segment, position, header in keys.headers(0)
                for record in iter_records(segment.batch(position, header))
            ]
            assert kept == [(4, b"k0"), (5, b"k1"), (6, b"last")]
            assert any(name.endswith(".deleted") for name in os.listdir(old.directory))
            clock.advance(120_000)
            await broker.jobs.run_due()
            for log in (old, keys):
                assert not any(name.endswith(".deleted") for name in os.listdir(log.directory))

    asyncio.run(main())


def test_strict_retention_leaves_no_old_record_on_disk(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with running(tmp_path, clock) as broker:
            await create(broker, retention_ms="3600000", **{"penstock.retention.strict": "true"})
            produce(broker, key=b"old")
            clock.advance(3_000_000)
            produce(broker, key=b"new")
            clock.advance(1_000_000)
            await broker.jobs.run_due()
            log = broker.partitions["t", 0].log
            assert log.log_start_offset == 1
            found = b"".join(Path(s.file.path).read_bytes() for s in log.segments)
            assert b"new" in found
            assert b"old" not in found

    asyncio.run(main())


def test_after_a_clean_stop_nothing_changes_and_after_a_crash_the_leader_epoch_does(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await create(broker)
            produce(broker)
            first = broker.image.topics["t"]
            # What a crash leaves: the files as they are now, without the marker of a clean stop.
            shutil.copytree(tmp_path, tmp_path.parent / "crashed")
        async with running(tmp_path) as broker:
            again = broker.image.topics["t"]
            assert again.id == first.id
            assert again.partitions[0].leader_epoch == first.partitions[0].leader_epoch
            assert broker.partitions["t", 0].log.high_watermark == 1
        async with running(tmp_path.parent / "crashed") as broker:
            crashed = broker.image.topics["t"].partitions[0]
            assert crashed.leader_epoch == first.partitions[0].leader_epoch + 1
            assert produced(await answered(produce(broker))) == (0, 1)

    asyncio.run(main())


def test_a_start_that_finds_its_port_taken_leaves_the_directory_as_after_a_clean_stop(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            await create(broker)
            epoch = broker.image.topics["t"].partitions[0].leader_epoch
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            listener = f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"
            with pytest.raises(ConfigError, match="in use"):
                async with running(tmp_path, listeners=listener):
                    raise AssertionError("it started")
        async with running(tmp_path) as broker:
            assert broker.logs.clean
            assert broker.image.topics["t"].partitions[0].leader_epoch == epoch

    asyncio.run(scenario())


def test_logs_of_a_deleted_topic_go_at_the_start_and_unknown_ones_stay(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await create(broker, "gone")
            await create(broker, "kept")
            await broker.controller.delete_topics([TopicRef("gone")])
            await broker.caught_up()
            shutil.copytree(tmp_path / "kept-0", tmp_path.parent / "copy")
        shutil.copytree(tmp_path.parent / "copy", tmp_path / "gone-0")
        shutil.copytree(tmp_path.parent / "copy", tmp_path / "stranger-0")
        async with running(tmp_path) as broker:
            assert set(broker.partitions) == {("kept", 0)}
            assert not (tmp_path / "gone-0").exists()
            assert (tmp_path / "stranger-0").exists()

    asyncio.run(main())


def test_a_directory_without_our_metadata_is_taken_over_with_its_ids_and_records(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await create(broker)
            produce(broker)
            topic_id, cluster_id = broker.image.topics["t"].id, broker.image.cluster_id
        for name in os.listdir(tmp_path):
            if name.startswith(METADATA_FILE):
                (tmp_path / name).unlink()
        async with running(tmp_path) as broker:
            topic = broker.image.topics["t"]
            assert (topic.id, broker.image.cluster_id) == (topic_id, cluster_id)
            assert topic.partitions[0].leader_epoch == 1
            assert produced(await answered(produce(broker))) == (0, 1)

    asyncio.run(main())


def test_a_partition_whose_log_cannot_be_made_is_a_storage_error_until_it_can(tmp_path: Path) -> None:
    async def main() -> None:
        clock, fs = ManualClock(), FaultyFs()
        async with running(tmp_path, clock, fs) as broker:
            fs.fail("makedirs", "t-0", errno.ENOSPC)
            await create(broker)
            assert produced(await answered(produce(broker)))[0] == KafkaStorageError.code
            clock.advance(20_000)
            await broker.jobs.run_due()
            assert produced(await answered(produce(broker))) == (0, 0)

    asyncio.run(main())


@pytest.mark.promise(
    "reassignment", "The log of a deleted topic does not stay in memory, and its files do not stay open"
)
@pytest.mark.unchecked_logs
def test_nothing_keeps_the_log_of_a_topic_that_was_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its files would stay open, and their blocks in use."""
    # A captured line would have the error of the child, and with it the frames that saw it.
    caplog.set_level(logging.CRITICAL, "penstock.broker.maintenance.maintenance")

    async def run() -> None:
        async with running(tmp_path) as broker:
            await create(broker, "strict", penstock_retention_strict="true", retention_ms=str(DAY_MS))
            await create(broker, "compacted", cleanup_policy="compact")
            logs = []
            for name in ("strict", "compacted"):
                partition = broker.partitions[name, 0]
                data = bytearray(build_batch([Record(0, broker.clock.now_ms(), b"k", b"v")]))
                partition.append(data, 0, len(data), 1)
                await broker.flush(partition)
                logs.append(weakref.ref(partition.log))
                del partition
            await broker._maintenance.retention()
            corrupt = broker.partitions["compacted", 0].log
            await broker._maintenance._in_child(corrupt, _fail, "not a batch")
            del corrupt
            assert broker._maintenance._oldest and broker._maintenance._uncleanable
            await broker.controller.delete_topics([TopicRef("strict"), TopicRef("compacted")])
            await broker.caught_up()
            gc.collect()
            assert [log() for log in logs] == [None, None]

    asyncio.run(run())


def _fail(reason: str) -> None:
    raise CorruptSegment("segment", 0, reason)


@pytest.mark.promise(
    "hostile input",
    "If a broker fails to apply new metadata, it tries again without waiting for the next change",
)
def test_metadata_that_could_not_be_applied_is_applied_without_another_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            monkeypatch.setattr("penstock.broker.topics._AGAIN_S", 0.01)
            applied = asyncio.Event()
            update, attempts = broker.topics._update, 0

            async def failing_once(*args: Any) -> None:
                nonlocal attempts
                attempts += 1
                if attempts == 1:
                    raise OSError(errno.EIO, "a directory cannot be read")
                await update(*args)
                applied.set()

            monkeypatch.setattr(broker.topics, "_update", failing_once)
            await broker.controller.create_topics([TopicSpec("t", 1, 1)])
            await asyncio.wait_for(applied.wait(), 30)
            await broker.caught_up()
            assert ("t", 0) in broker.partitions
            assert "t" in broker.image.topics

    asyncio.run(main())


@pytest.mark.promise(
    "log",
    "The codec of an API is built in a thread when a client first calls that API, and only that client "
    "waits; retention removes at most eight segments in one turn of the event loop",
)
def test_the_codec_of_an_api_is_made_off_the_loop_and_its_first_request_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its schemas are files, and it is compiled: others wait for neither."""
    threads: list[threading.Thread] = []

    def prepare(api_key: int, version: int) -> None:
        threads.append(threading.current_thread())
        codec.prepare(api_key, version)

    monkeypatch.setattr(dispatching, "prepare", prepare)

    async def main() -> None:
        async with running(tmp_path) as broker:
            await create(broker)
            body = (
                struct.pack(">ibi", -1, 0, 1)
                + struct.pack(">h", 1)
                + b"t"
                + struct.pack(">iiiq", 1, 0, -1, -1)
            )
            first = dispatch(broker, ApiKey.LIST_OFFSETS, 4, body)
            assert isinstance(first, Pending)
            assert isinstance(produce(broker), bytes)  # meanwhile
            await answered(first)
            assert isinstance(dispatch(broker, ApiKey.LIST_OFFSETS, 4, body), bytes)
            assert len(threads) == 1
            assert threads[0] is not threading.current_thread()

    asyncio.run(main())


def test_a_request_that_is_no_request_costs_its_connection_also_when_it_is_the_first(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            first = dispatch(broker, ApiKey.LIST_OFFSETS, 5, b"\0")
            assert isinstance(first, Pending)
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            first.when_done(future.set_result)
            assert isinstance(await future, CloseConnection)

    asyncio.run(main())


def test_a_first_request_that_waits_holds_up_none_behind_it_once_its_codec_is_made(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, group_initial_rebalance_delay_ms="60000") as broker:
            await broker.groups.ensure_topic()
            text = lambda value: struct.pack(">h", len(value)) + value  # noqa: E731
            body = text(b"g") + struct.pack(">ii", 60_000, 60_000) + text(b"") + text(b"consumer")
            body += struct.pack(">i", 1) + text(b"range") + struct.pack(">i", 0)
            first = dispatch(broker, ApiKey.JOIN_GROUP, 3, body)
            assert isinstance(first, Pending)
            assert first.exclusive
            begun = asyncio.Event()
            first.on_begun = begun.set
            await begun.wait()
            assert not first.exclusive

    asyncio.run(main())
