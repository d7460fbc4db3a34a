"""Coordinators that find what nobody of them wrote in their partitions: the rest is served all the same."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.broker import Broker
from penstock.broker.coordinators import shard_host
from penstock.broker.coordinators.shard_host import ShardHost
from penstock.coordinator import Producer
from penstock.groups import Caller, GroupShard
from penstock.groups.classic import records as records_classic
from penstock.groups.consumer import records as records_consumer
from penstock.groups.offsets import records as records_offsets
from penstock.log.partition_log import PartitionLog
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message
from tests.sim.group_host import commit_request
from tests.unit.test_transactions_broker import init, running

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
GROUP = records_classic.encode_key("broken")
OFFSET = records_offsets.key_prefix("broken")

BAD = {
    "no version": (b"\x00", b"x"),
    "an offset's key cut short": (OFFSET + b"\x00\x01t", b"x"),
    "an offset's value cut short": (OFFSET + records_offsets.key_tail("t", 0), b"\x00\x03"),
    "a group of a future version": (GROUP, b"\x00\x63"),
    "a group cut short": (GROUP, b"\x00\x03\x00\x08consumer"),
    "a group id that is no text": (b"\x00\x02\x00\x01\xff", b"\x00\x03"),
    "a consumer group's member cut short": (
        records_consumer.member_key(records_consumer.MEMBER, "broken", "m"),
        b"\x00\x00\x05",
    ),
}


def append(broker: Broker, topic: str, index: int, key: bytes | None, value: bytes | None) -> None:
    batch = bytearray(build_batch([Record(0, 1, key, value)]))
    broker.partitions[(topic, index)].append(batch, 0, len(batch), -1, origin="coordinator")


def call(broker: Broker, api: str, request: Any, group_id: str, version: int = 9) -> Message:
    who = Caller("c", "/127.0.0.1", version)
    answer = broker.groups.call(
        group_id, lambda shard, token, now: getattr(shard, api)(request, who, token, now)
    )
    assert isinstance(answer, Message)
    return answer


async def commit(broker: Broker, group_id: str, offset: int) -> int:
    code: int = (
        call(broker, "offset_commit", commit_request(group_id, {("t", 0): offset}), group_id)
        .topics[0]
        .partitions[0]
        .error_code
    )
    return code


def committed(broker: Broker, group_id: str) -> int | None:
    return broker.groups.shard_for(group_id).committed_offset(group_id, "t", 0)


@pytest.mark.promise(
    "hostile input",
    "Only coordinators write to their topics, and one record that cannot be read keeps nobody's state out "
    "of reach",
)
@pytest.mark.parametrize("what", BAD)
def test_a_record_that_cannot_be_read_is_passed_over_and_the_groups_around_it_are_served(
    what: str, tmp_path: Path
) -> None:
    async def main() -> None:
        settings = {"offsets_topic_num_partitions": "1"}
        async with running(tmp_path, **settings) as broker:
            await broker.groups.ensure_topic()
            assert await commit(broker, "before", 3) == 0
            append(broker, OFFSETS, 0, *BAD[what])
            append(broker, OFFSETS, 0, b"\x00", None)
            assert await commit(broker, "after", 4) == 0
        async with running(tmp_path, **settings) as broker:
            assert (committed(broker, "before"), committed(broker, "after")) == (3, 4)
            assert await commit(broker, "broken", 5) == 0
            assert committed(broker, "broken") == 5
            request = Message(group_id="broken", member_id=None, member_epoch=-1, topics=None)
            assert call(broker, "offset_fetch", request, "broken").error_code == 0

    asyncio.run(main())


def test_a_transaction_that_cannot_be_read_is_passed_over_and_the_others_are_served(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            known = await init(broker)
            for index in range(2):
                append(broker, TRANSACTIONS, index, b"\x00\x00\x00", b"x")
                append(broker, TRANSACTIONS, index, b"\x00\x00\x00\x01y", b"\x00\x00")
        async with running(tmp_path) as broker:
            again = await init(broker)
            assert again == Producer(known.producer_id, known.epoch + 1)

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input",
    "Only coordinators write to their topics, and one record that cannot be read keeps nobody's state out "
    "of reach",
)
def test_a_partition_that_cannot_be_loaded_does_not_keep_others_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = ShardHost._load

    def broken(self: ShardHost[GroupShard], index: int, partition: Any, epoch: int) -> None:
        if self.topic.name == OFFSETS and index == 0:
            raise ZeroDivisionError
        load(self, index, partition, epoch)

    monkeypatch.setattr(ShardHost, "_load", broken)

    async def main() -> None:
        async with running(tmp_path, offsets_topic_num_partitions="3") as broker:
            await broker.groups.ensure_topic()
            assert len(list(broker.groups.shards())) == 2

    asyncio.run(main())


@pytest.mark.promise(
    "log", "Of many coordinator shards that come at once, only a little is replayed on the loop"
)
def test_of_many_shards_that_come_at_once_only_a_little_is_replayed_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_loop, in_threads = [], []
    original = shard_host.replay

    def replay(shard: Any, log: PartitionLog, start: int) -> int:
        if start == log.log_start_offset and log.size:
            is_loop = threading.current_thread() is threading.main_thread()
            (on_loop if is_loop else in_threads).append(log.size)
        return original(shard, log, start)

    async def main() -> None:
        settings = {"offsets_topic_num_partitions": "8"}
        async with running(tmp_path, **settings) as broker:
            await broker.groups.ensure_topic()
            for index in range(8):
                key = records_offsets.key_prefix(f"g{index}") + records_offsets.key_tail("t", 0)
                for _ in range(4):
                    append(broker, OFFSETS, index, key + b"x" * 600, None)
        monkeypatch.setattr(shard_host, "replay", replay)
        async with running(tmp_path, **settings) as broker:
            while len(on_loop) + len(in_threads) < 8:
                await asyncio.sleep(0.001)
            while any(hosted.shard is None for hosted in broker.groups._hosted.values()):
                await asyncio.sleep(0.001)

    asyncio.run(main())
    assert on_loop and in_threads
    assert sum(on_loop) <= shard_host._LOAD_ON_LOOP_BYTES < sum(on_loop) + sum(in_threads)
