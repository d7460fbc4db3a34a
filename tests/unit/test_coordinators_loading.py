"""Coordinators that find what nobody of them wrote in their partitions: the rest is served all the same."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.broker import Broker
from penstock.broker.coordinators import shard_host, shard_replay
from penstock.broker.coordinators.shard_host import ShardHost
from penstock.coordinator import Producer, StateRecord
from penstock.groups import Caller, GroupShard
from penstock.groups.classic import records as records_classic
from penstock.groups.consumer import records as records_consumer
from penstock.groups.offsets import records as records_offsets
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
    "Only coordinators can write to their topics, and one unreadable record does not make other state "
    "unavailable",
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
    "Only coordinators can write to their topics, and one unreadable record does not make other state "
    "unavailable",
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


_VALUE = b"x" * 600


async def written(tmp_path: Path, records: list[int]) -> None:
    """So many records in each partition of the offsets topic."""
    async with running(tmp_path, offsets_topic_num_partitions=str(len(records))) as broker:
        await broker.groups.ensure_topic()
        for index, count in enumerate(records):
            key = records_offsets.key_prefix(f"g{index}") + records_offsets.key_tail("t", 0)
            for _ in range(count):
                append(broker, OFFSETS, index, key + _VALUE, None)


async def loaded(broker: Broker) -> None:
    while not broker.groups._hosted or any(one.shard is None for one in broker.groups._hosted.values()):
        await asyncio.sleep(0.001)


@pytest.mark.promise(
    "log",
    "When a broker takes over many coordinator partitions at once, it replays only a little of them in "
    "each turn of the event loop",
)
def test_of_many_shards_that_come_at_once_only_a_little_is_replayed_in_each_turn_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = 0
    in_turns: Counter[int] = Counter()
    threads = set()
    replay = GroupShard.replay

    def counted(self: GroupShard, record: StateRecord, **more: Any) -> None:
        in_turns[turn] += len(record.key)
        threads.add(threading.current_thread())
        replay(self, record, **more)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    async def main() -> None:
        records = [4] * 7 + [200]
        await written(tmp_path, records)
        monkeypatch.setattr(GroupShard, "replay", counted)
        counting = asyncio.create_task(count_turns())
        async with running(tmp_path, offsets_topic_num_partitions="8") as broker:
            await loaded(broker)
        counting.cancel()
        assert sum(in_turns.values()) >= sum(records) * len(_VALUE)

    asyncio.run(main())
    assert threads == {threading.main_thread()}  # else two threads fight for the interpreter
    # At the start the shards that fit, and later a slice of one of them.
    most = max(shard_host._LOAD_ON_LOOP_BYTES, shard_replay._SLICE_BYTES + 2 * len(_VALUE))
    assert max(in_turns.values()) <= most


def test_what_is_appended_while_a_shard_is_read_is_replayed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its place, after what was read before."""

    def append_more(broker: Broker) -> None:
        key = records_offsets.key_prefix("late") + records_offsets.key_tail("t", 0)
        append(broker, OFFSETS, 0, key, records_offsets.encode_value(7, -1, "", 1))

    async def main() -> None:
        await written(tmp_path, [100])
        added = False
        async with running(tmp_path, offsets_topic_num_partitions="1") as broker:
            await loaded(broker)
            replaying = shard_replay.replaying

            def interrupted(*args: Any) -> Iterator[None]:
                nonlocal added
                for step in replaying(*args):
                    if not added:
                        added = True
                        append_more(broker)
                    yield step

            monkeypatch.setattr(shard_host, "replaying", interrupted)
            broker.groups._give_up(0)
            broker.groups.on_image(broker.image)
            assert broker.groups._hosted[0].shard is None
            await loaded(broker)
            assert added and committed(broker, "late") == 7

    asyncio.run(main())


def test_a_shard_that_is_lost_while_it_is_read_is_read_again_when_it_comes_back(tmp_path: Path) -> None:
    async def main() -> None:
        await written(tmp_path, [100])
        async with running(tmp_path, offsets_topic_num_partitions="1") as broker:
            await loaded(broker)
            assert await commit(broker, "g", 5) == 0
            for turns in range(12):  # it is lost before, while and after it is read
                broker.groups._give_up(0)
                broker.groups.on_image(broker.image)
                hosted = broker.groups._hosted[0]
                for _ in range(turns):
                    await asyncio.sleep(0.0005)
                broker.groups._give_up(0)
                broker.groups.on_image(broker.image)
                await loaded(broker)
                assert broker.groups._hosted[0] is not hosted
                assert committed(broker, "g") == 5
                assert not broker.groups._loads

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input", "A coordinator partition that cannot be read is retried with increasing pauses"
)
def test_a_large_shard_that_could_not_be_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = 0

    def failing(*args: Any) -> Any:
        nonlocal attempts
        attempts += 1
        if attempts <= 2:
            raise OSError("the disk cannot be read")
        return shard_replay.read_batches(*args)

    async def main() -> None:
        await written(tmp_path, [100])
        async with running(tmp_path, offsets_topic_num_partitions="1") as broker:
            await loaded(broker)
            assert await commit(broker, "g", 5) == 0
            monkeypatch.setattr(shard_host, "read_batches", failing)
            broker.groups._give_up(0)
            broker.groups.on_image(broker.image)
            while attempts < 3:
                await asyncio.sleep(0.001)
            await loaded(broker)
            assert committed(broker, "g") == 5

    asyncio.run(main())
