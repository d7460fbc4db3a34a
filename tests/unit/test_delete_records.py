"""DeleteRecords is answered when every live replica has deleted the records, or says why it is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.broker.api import delete_records, describe_producers, list_offsets, offset_for_leader_epoch
from penstock.broker.broker import Broker
from penstock.broker.fetch.lookup import find
from penstock.broker.net.context import RequestContext
from penstock.controller import TopicRef
from penstock.errors import (
    ApiError,
    InvalidTopicException,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from penstock.metadata.image import BrokerInfo, PartitionImage
from penstock.replication.partition import Partition
from penstock.wire.codec import Message
from tests.unit.test_high_watermark import append
from tests.unit.test_transactions_broker import KEY, running

CONTEXT = RequestContext(21, 2, 1, "test", "test")


@asynccontextmanager
async def two_replicas(path: Path, records: int = 10) -> AsyncIterator[tuple[Broker, Partition]]:
    """Broker 1 leads `t`, and broker 2 has fetched all of it."""
    async with running(path) as broker:
        image = broker.topics.image
        other = BrokerInfo(2, "other", 9092, None, 20)
        broker.topics.image = replace(image, brokers={**image.brokers, 2: other})
        one = broker.partitions[KEY]
        append(one, records)
        one.update(replace(one.image, replicas=(1, 2), isr=(1, 2), partition_epoch=1))
        one.follower_fetched(2, records, 0)
        yield broker, one


def delete(broker: Broker, offset: int, timeout_ms: int = 60_000, topic: str = "t") -> asyncio.Task[Message]:
    item = Message(partition_index=0, offset=offset)
    request = Message(topics=[Message(name=topic, partitions=[item])], timeout_ms=timeout_ms)
    return broker.loop.create_task(delete_records.handle(broker, CONTEXT, request))


def outcome(answer: Message) -> tuple[int, int]:
    found = answer.topics[0].partitions[0]
    return found.error_code, found.low_watermark


async def waits(broker: Broker) -> None:
    async with asyncio.timeout(30):
        while KEY not in broker.delayed.waiters:
            await asyncio.sleep(0)


@pytest.mark.promise(
    "topics",
    "DeleteRecords returns when every replica on a live broker has deleted the records and has that on "
    "disk, so that they do not come back; if that takes longer than the request's timeout, it returns "
    "REQUEST_TIMED_OUT",
)
def test_records_are_deleted_when_the_follower_has_deleted_them_too(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_replicas(tmp_path) as (broker, one):
            answer = delete(broker, 4)
            await waits(broker)
            assert one.log.log_start_offset == 4
            one.follower_fetched(2, 10, 3)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not answer.done()
            one.follower_fetched(2, 10, 4)
            assert outcome(await answer) == (0, 4)
            one.follower_fetched(2, 10, 7)  # nobody waits any more
            assert not broker.delayed.waiters

    asyncio.run(run())


@pytest.mark.promise(
    "topics",
    "DeleteRecords returns when every replica on a live broker has deleted the records and has that on "
    "disk, so that they do not come back; if that takes longer than the request's timeout, it returns "
    "REQUEST_TIMED_OUT",
)
def test_a_follower_that_does_not_delete_them_in_time_is_a_timeout(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_replicas(tmp_path) as (broker, one):
            assert outcome(await delete(broker, 4, timeout_ms=0)) == (RequestTimedOut.code, 0)
            assert outcome(await delete(broker, 4, timeout_ms=20)) == (RequestTimedOut.code, 0)
            one.follower_fetched(2, 10, 4)
            assert outcome(await delete(broker, 4, timeout_ms=0)) == (0, 4)
            assert outcome(await delete(broker, 2, timeout_ms=0)) == (0, 4)
            assert not broker.delayed.waiters

    asyncio.run(run())


@pytest.mark.promise(
    "topics",
    "DeleteRecords returns when every replica on a live broker has deleted the records and has that on "
    "disk, so that they do not come back; if that takes longer than the request's timeout, it returns "
    "REQUEST_TIMED_OUT",
)
def test_a_replica_on_a_broker_that_is_away_is_not_waited_for(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_replicas(tmp_path) as (broker, _):
            answer = delete(broker, -1)
            await waits(broker)
            image = broker.topics.image
            broker.topics.image = replace(image, brokers={1: image.brokers[1]})
            broker.delayed.wake(KEY)
            assert outcome(await answer) == (0, 10)

    asyncio.run(run())


@pytest.mark.promise(
    "topics",
    "DeleteRecords returns when every replica on a live broker has deleted the records and has that on "
    "disk, so that they do not come back; if that takes longer than the request's timeout, it returns "
    "REQUEST_TIMED_OUT",
)
@pytest.mark.parametrize("back", [False, True])
def test_a_leader_that_is_replaced_meanwhile_does_not_say_that_they_are_deleted(
    tmp_path: Path, back: bool
) -> None:
    async def run() -> None:
        async with two_replicas(tmp_path) as (broker, one):
            answer = delete(broker, 4)
            await waits(broker)
            one.update(replace(one.image, leader=2, leader_epoch=one.image.leader_epoch + 1))
            if back:
                one.update(replace(one.image, leader=1, leader_epoch=one.image.leader_epoch + 1))
            broker.delayed.complete_all(KEY)
            assert outcome(await answer)[0] == NotLeaderOrFollower.code

    asyncio.run(run())


async def remove(broker: Broker) -> None:
    await broker.controller.delete_topics([TopicRef("t")])
    await broker.caught_up()


async def move(broker: Broker) -> None:
    """A reassignment that is complete: broker 2 has the only replica."""
    image = broker.image
    elsewhere = replace(image.topics["t"], partitions=(PartitionImage(0, 2, 1, (2,), (2,), 1),))
    await broker.topics.apply(image.with_topics([elsewhere]))


@pytest.mark.promise(
    "topics",
    "A DeleteRecords request that waits for replicas returns UNKNOWN_TOPIC_OR_PARTITION at once if the "
    "partition is deleted, and NOT_LEADER_OR_FOLLOWER if it moves to other brokers",
)
@pytest.mark.parametrize(
    ("go", "error"),
    [(remove, UnknownTopicOrPartition), (move, NotLeaderOrFollower)],
    ids=["deleted", "moved"],
)
def test_a_partition_that_goes_while_the_replicas_are_waited_for_is_reported(
    tmp_path: Path, go: Callable[[Broker], Awaitable[None]], error: type[ApiError]
) -> None:
    async def run() -> None:
        async with two_replicas(tmp_path) as (broker, _):
            answer = delete(broker, 4)
            await waits(broker)
            await go(broker)
            assert outcome(await asyncio.wait_for(answer, 30))[0] == error.code
            assert not broker.delayed.waiters

    asyncio.run(run())


@pytest.mark.promise(
    "topics",
    "DeleteRecords returns when every replica on a live broker has deleted the records and has that on "
    "disk, so that they do not come back; if that takes longer than the request's timeout, it returns "
    "REQUEST_TIMED_OUT",
)
def test_what_cannot_be_deleted_is_refused_as_kafka_does(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_replicas(tmp_path) as (broker, _):
            assert outcome(await delete(broker, 11)) == (OffsetOutOfRange.code, -1)
            assert outcome(await delete(broker, -2)) == (OffsetOutOfRange.code, -1)
            refused = await delete(broker, 0, topic="__transaction_state")
            assert outcome(refused) == (InvalidTopicException.code, -1)
            assert outcome(await delete(broker, 0, topic="absent")) == (UnknownTopicOrPartition.code, -1)

    asyncio.run(run())


@pytest.mark.promise(
    "topics",
    "In every API, a broker returns NOT_LEADER_OR_FOLLOWER for a partition whose replicas are on other "
    "brokers",
)
def test_a_partition_that_only_others_have_makes_a_client_look_for_them(tmp_path: Path) -> None:
    """NOT_LEADER_OR_FOLLOWER, as Kafka answers; an unknown partition is what the cluster does not have."""

    async def run() -> None:
        async with two_replicas(tmp_path) as (broker, _):
            image = broker.topics.image
            elsewhere = replace(image.topics["t"], partitions=(PartitionImage(0, 2, 1, (2,), (2,)),))
            broker.topics.image = image.with_topics([elsewhere])
            del broker.topics.partitions[KEY]
            expected = NotLeaderOrFollower.code
            assert outcome(await delete(broker, 4))[0] == expected
            asked = Message(partition_index=0, current_leader_epoch=-1, timestamp=-1)
            request = Message(
                replica_id=-1, isolation_level=0, topics=[Message(name="t", partitions=[asked])]
            )
            listed = list_offsets.handle(broker, CONTEXT, request)
            assert listed.topics[0].partitions[0].error_code == expected
            asked = Message(partition=0, current_leader_epoch=-1, leader_epoch=0)
            request = Message(replica_id=-1, topics=[Message(topic="t", partitions=[asked])])
            epochs = offset_for_leader_epoch.handle(broker, CONTEXT, request)
            assert epochs.topics[0].partitions[0].error_code == expected
            request = Message(topics=[Message(name="t", partition_indexes=[0])])
            producers = describe_producers.handle(broker, CONTEXT, request)
            assert producers.topics[0].partitions[0].error_code == expected
            for key in (KEY, (elsewhere.id, 0)):
                found = find(broker, key)
                assert isinstance(found, ApiError) and found.code == expected
            assert isinstance(find(broker, ("t", 1)), UnknownTopicOrPartition)
            assert isinstance(broker.topics.missing(KEY), NotLeaderOrFollower)  # Produce
            with pytest.raises(NotLeaderOrFollower):
                broker.share.partition(elsewhere.id, 0)

    asyncio.run(run())
