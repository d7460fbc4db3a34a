"""What a whole broker promises over time: waits, flushes, background work, restarts, foreign directories."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import struct
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.broker import METADATA_FILE, Broker
from penstock.broker.dispatch import CloseConnection, Pending
from penstock.clock import ManualClock
from penstock.config import BrokerConfig
from penstock.controller import TopicRef, TopicSpec
from penstock.errors import ConfigError, KafkaStorageError, RequestTimedOut, UnknownTopicId
from penstock.fs import REAL_FS, FaultyFs, Fs
from penstock.wire.api_keys import ApiKey
from penstock.wire.records import Record, build_batch, iter_records

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
    answer = broker._dispatcher.dispatch("test", frame, 0, len(frame))
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
