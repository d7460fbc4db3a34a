"""What a produce with acks=all or flush.messages waits for, and the errors when that does not come."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.api import produce as api
from penstock.broker.broker import Broker
from penstock.broker.net.context import RequestContext
from penstock.controller import TopicRef, TopicSpec
from penstock.errors import (
    KafkaStorageError,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from penstock.log.partition_log import PartitionLog
from penstock.replication.partition import Partition
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import decode_response
from penstock.wire.primitives import INT32, encode_compact_string, encode_uvarint
from tests.unit.test_transactions_broker import running

VERSION = 10
FOR_EVER_MS = 600_000


async def topic(broker: Broker, partitions: int = 1, **configs: str) -> list[Partition]:
    """Its partitions, each with a follower that has not fetched yet."""
    names = {name.replace("_", "."): value for name, value in configs.items()}
    await broker.controller.create_topics([TopicSpec("f", partitions, 1, configs=names)])
    await broker.caught_up()
    found = [broker.partitions["f", index] for index in range(partitions)]
    for one in found:
        one.update(replace(one.image, replicas=(1, 2), isr=(1, 2)))
    return found


def produce(broker: Broker, partitions: int = 1, timeout_ms: int = FOR_EVER_MS) -> asyncio.Future[bytes]:
    """acks=all, one record for each of the partitions."""
    batch = build_batch([Record(0, broker.clock.now_ms(), None, b"v")])
    body = b"\0" + struct.pack(">hi", -1, timeout_ms) + encode_uvarint(2) + encode_compact_string("f")
    body += encode_uvarint(partitions + 1)
    for index in range(partitions):
        body += INT32.pack(index) + encode_uvarint(len(batch) + 1) + batch + b"\0"
    body += b"\0\0"
    answer = api.handle(broker, RequestContext(0, VERSION, 1, "c", "p:1"), bytearray(body), 0, len(body))
    assert isinstance(answer, asyncio.Future)
    return answer


async def results(answer: asyncio.Future[bytes]) -> list[Any]:
    body = await asyncio.wait_for(answer, 30)
    found: list[Any] = decode_response(ApiKey.PRODUCE, VERSION, body, 0).responses[0].partition_responses
    return found


async def codes(answer: asyncio.Future[bytes]) -> list[int]:
    return [one.error_code for one in await results(answer)]


def replicate(partition: Partition) -> None:
    partition.follower_fetched(2, partition.log.log_end_offset)


def lose(broker: Broker, partition: Partition, leader: int = 2) -> None:
    image = partition.image
    partition.update(replace(image, leader=leader, leader_epoch=image.leader_epoch + 1))
    broker.delayed.complete_all(partition.key)


@pytest.mark.promise(
    "topics",
    "acks=all is acknowledged when both replication and fsync (`flush.messages`) are done, in either "
    "order, and never for a leader epoch that has ended: then the response is NOT_LEADER_OR_FOLLOWER at "
    "once, with the new leader",
)
def test_replicas_that_are_quicker_than_fsync_are_not_missed(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            (partition,) = await topic(broker, flush_messages="1")
            answer = produce(broker, timeout_ms=1_000)
            replicate(partition)
            assert await codes(answer) == [0]

    asyncio.run(main())


@pytest.mark.promise(
    "topics",
    "acks=all is acknowledged when both replication and fsync (`flush.messages`) are done, in either "
    "order, and never for a leader epoch that has ended: then the response is NOT_LEADER_OR_FOLLOWER at "
    "once, with the new leader",
)
def test_fsync_is_waited_for_though_the_replicas_have_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            (partition,) = await topic(broker, flush_messages="1")
            flushed: asyncio.Future[None] = broker.loop.create_future()
            monkeypatch.setattr(broker, "flush", lambda _: flushed)
            answer = produce(broker)
            replicate(partition)
            for _ in range(5):
                await asyncio.sleep(0)
            assert not answer.done()
            flushed.set_result(None)
            assert await codes(answer) == [0]

    asyncio.run(main())


@pytest.mark.promise(
    "topics",
    "acks=all is acknowledged when both replication and fsync (`flush.messages`) are done, in either "
    "order, and never for a leader epoch that has ended: then the response is NOT_LEADER_OR_FOLLOWER at "
    "once, with the new leader",
)
@pytest.mark.parametrize("failure", [KafkaStorageError("no"), OSError(5, "no"), RuntimeError("no thread")])
def test_a_record_that_may_not_be_on_disk_is_not_acknowledged(
    failure: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(self: PartitionLog) -> None:
        raise failure

    async def main() -> None:
        async with running(tmp_path) as broker:
            (partition,) = await topic(broker, flush_messages="1")
            with monkeypatch.context() as patch:
                patch.setattr(PartitionLog, "flush", failing)
                answer = produce(broker)
                replicate(partition)
                assert await codes(answer) == [KafkaStorageError.code]

    asyncio.run(main())


@pytest.mark.promise(
    "topics",
    "acks=all is acknowledged when both replication and fsync (`flush.messages`) are done, in either "
    "order, and never for a leader epoch that has ended: then the response is NOT_LEADER_OR_FOLLOWER at "
    "once, with the new leader",
)
def test_what_is_replicated_when_the_time_is_over_is_acknowledged(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            (partition,) = await topic(broker)
            answer = produce(broker, timeout_ms=50)
            partition.log.update_high_watermark(1)  # and nobody is woken
            assert await codes(answer) == [0]
            assert await codes(produce(broker, timeout_ms=50)) == [RequestTimedOut.code]

    asyncio.run(main())


@pytest.mark.promise(
    "topics",
    "acks=all is acknowledged when both replication and fsync (`flush.messages`) are done, in either "
    "order, and never for a leader epoch that has ended: then the response is NOT_LEADER_OR_FOLLOWER at "
    "once, with the new leader",
)
@pytest.mark.parametrize("flush_messages", ["1", "1000"])
@pytest.mark.parametrize("leader", [1, 2])
def test_a_leader_epoch_that_ended_is_answered_at_once(
    leader: int, flush_messages: str, tmp_path: Path
) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            (partition,) = await topic(broker, flush_messages=flush_messages)
            answer = produce(broker)
            lose(broker, partition, leader)
            (result,) = await results(answer)
            assert result.error_code == NotLeaderOrFollower.code
            assert result.base_offset == -1
            assert result.current_leader.leader_id == leader
            assert result.current_leader.leader_epoch == partition.image.leader_epoch

    asyncio.run(main())


@pytest.mark.promise(
    "topics",
    "acks=all is acknowledged when both replication and fsync (`flush.messages`) are done, in either "
    "order, and never for a leader epoch that has ended: then the response is NOT_LEADER_OR_FOLLOWER at "
    "once, with the new leader",
)
def test_a_record_that_was_cut_is_not_acknowledged_for_another_at_its_offset(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            (partition,) = await topic(broker, flush_messages="1")
            answer = produce(broker)
            image = partition.image
            partition.update(replace(image, leader=2, leader_epoch=image.leader_epoch + 1))
            partition.log.truncate_to(0)
            partition.log.settle()
            other = bytearray(
                build_batch([Record(0, 1, None, b"other")], leader_epoch=image.leader_epoch + 1)
            )
            partition.log.append_as_follower(other, 0, len(other))
            partition.follow(1, 0)
            assert await codes(answer) == [NotLeaderOrFollower.code]

    asyncio.run(main())


@pytest.mark.promise(
    "topics",
    "acks=all is acknowledged when both replication and fsync (`flush.messages`) are done, in either "
    "order, and never for a leader epoch that has ended: then the response is NOT_LEADER_OR_FOLLOWER at "
    "once, with the new leader",
)
def test_a_partition_that_is_lost_does_not_end_the_wait_for_the_others(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            lost, kept = await topic(broker, 2)
            answer = produce(broker, 2)
            lose(broker, lost)
            await asyncio.sleep(0)
            assert not answer.done(), "the other partition still has time"
            replicate(kept)
            assert await codes(answer) == [NotLeaderOrFollower.code, 0]

    asyncio.run(main())


@pytest.mark.promise(
    "topics",
    "acks=all is acknowledged when both replication and fsync (`flush.messages`) are done, in either "
    "order, and never for a leader epoch that has ended: then the response is NOT_LEADER_OR_FOLLOWER at "
    "once, with the new leader",
)
def test_a_topic_that_is_deleted_ends_the_wait(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await topic(broker)
            answer = produce(broker)
            await broker.controller.delete_topics([TopicRef("f")])
            assert await codes(answer) == [UnknownTopicOrPartition.code]

    asyncio.run(main())


def test_nothing_is_kept_for_a_client_that_has_gone(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            (partition,) = await topic(broker)
            answer = produce(broker)
            assert partition.key in broker.delayed.waiters
            answer.cancel()
            await asyncio.sleep(0)
            assert partition.key not in broker.delayed.waiters

    asyncio.run(main())


@pytest.mark.promise(
    "topics",
    "acks=all is not acknowledged if the number of in-sync replicas falls below `min.insync.replicas` "
    "while the request waits: it returns NOT_ENOUGH_REPLICAS_AFTER_APPEND if the replicas already had "
    "the record, and REQUEST_TIMED_OUT if they are not back in time",
)
@pytest.mark.parametrize(
    ("replicated", "error"), [(True, NotEnoughReplicasAfterAppend), (False, RequestTimedOut)]
)
def test_a_record_is_not_acknowledged_by_fewer_replicas_than_it_needs(
    tmp_path: Path, replicated: bool, error: type[NotEnoughReplicasAfterAppend | RequestTimedOut]
) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            (partition,) = await topic(broker)
            partition.log.update_config(replace(partition.log.config, min_insync_replicas=2))
            answer = produce(broker, timeout_ms=FOR_EVER_MS if replicated else 20)
            if replicated:
                replicate(partition)
            partition.update(replace(partition.image, isr=(1,), partition_epoch=1))
            partition.announce()
            assert await codes(answer) == [error.code]

    asyncio.run(main())
