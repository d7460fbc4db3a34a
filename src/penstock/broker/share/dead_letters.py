"""The dead-letter topic of a share group: records that nobody could use, with the story of each in headers.

At least once: a letter is on its way into the topic before the record is archived, and is written again where
the broker died in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from penstock.broker.cluster.peers import PeerUnavailable
from penstock.broker.share.reading import records_between
from penstock.controller.requests import TopicSpec
from penstock.errors import (
    ApiError,
    NotLeaderOrFollower,
    RequestTimedOut,
    TopicAlreadyExists,
    error_for_code,
)
from penstock.groups.share.partition import DeadLetter
from penstock.replication.partition import Partition
from penstock.replication.producing import ProduceWait
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from penstock.wire.records import Record, build_batch

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

PREFIX = "penstock.share."
_BATCH_BYTES = 512 * 1024
_REPLICATION_MS = 30_000
_PRODUCE_VERSION = 9


async def send(broker: Broker, topic: str, group_id: str, source: Partition, letter: DeadLetter) -> None:
    """When this returns, the records are in the dead-letter topic."""
    await _ensure(broker, topic)
    index, leader = _target(broker, topic, source.key[1])
    now = broker.clock.now_ms()
    for batch in _batches(_letter(record, group_id, source, letter, now) for record in
                          records_between(source, letter.first, letter.last)):  # fmt: skip
        if leader == broker.id:
            target = broker.partitions.get((topic, index))
            if target is None:
                raise NotLeaderOrFollower(f"{topic}-{index} has gone")
            info = target.append(batch, 0, len(batch), -1, origin="coordinator")
            await _replicated(broker, target, info.last_offset)
        else:
            await _produce(broker, leader, topic, index, batch)
        await asyncio.sleep(0)  # other requests get their turn


def _letter(record: Record, group_id: str, source: Partition, letter: DeadLetter, now_ms: int) -> Record:
    story = {
        "group": group_id,
        "topic": source.key[0],
        "partition": source.key[1],
        "offset": record.offset,
        "timestamp": record.timestamp,
        "reason": letter.reason,
        "delivery.count": letter.delivery_count,
    }
    told = tuple((PREFIX + name, str(value).encode()) for name, value in story.items())
    # The time is that of its death: by its own, retention might take it at once.
    return Record(0, now_ms, record.key, record.value, record.headers + told)


def _batches(records: Iterator[Record]) -> Iterator[bytearray]:
    waiting: list[Record] = []
    size = 0
    for record in chain(records, (None,)):
        if waiting and (record is None or size >= _BATCH_BYTES):
            yield bytearray(build_batch(waiting))
            waiting, size = [], 0
        if record is not None:
            waiting.append(record)
            size += len(record.key or b"") + len(record.value or b"") + 200


async def _ensure(broker: Broker, topic: str) -> None:
    if topic in broker.image.topics:
        return
    for result in await broker.controller.create_topics([TopicSpec(topic)]):
        if result.error is not None and not isinstance(result.error, TopicAlreadyExists):
            raise result.error
    await broker.caught_up()


def _target(broker: Broker, topic: str, number: int) -> tuple[int, int]:
    """One of the topic's partitions that has a leader, for each partition that letters come from; with it."""
    image = broker.image.topics.get(topic)
    led = [
        (one.index, one.leader)
        for one in (image.partitions if image is not None else ())
        if one.leader >= 0 and (one.leader != broker.id or (topic, one.index) in broker.partitions)
    ]
    if not led:
        raise NotLeaderOrFollower(f"no partition of {topic} has a leader")
    return led[number % len(led)]


async def _produce(broker: Broker, leader: int, topic: str, index: int, batch: bytearray) -> None:
    """To the broker that leads the partition."""
    data = Message(index=index, records=bytes(batch))
    request = Message(
        transactional_id=None,
        acks=-1,
        timeout_ms=_REPLICATION_MS,
        topic_data=[Message(name=topic, partition_data=[data])],
    )
    try:
        answer = await broker.peers.call(
            leader, ApiKey.PRODUCE, _PRODUCE_VERSION, request, timeout_ms=2 * _REPLICATION_MS
        )
    except PeerUnavailable as error:
        raise NotLeaderOrFollower(str(error)) from error
    result = answer.responses[0].partition_responses[0]
    if result.error_code:
        raise error_for_code(result.error_code)(result.error_message)


async def _replicated(broker: Broker, target: Partition, last_offset: int) -> None:
    if target.is_replicated(last_offset):
        return
    done: asyncio.Future[set[tuple[str, int]]] = broker.loop.create_future()
    wait = ProduceWait(
        {target.key: (target, last_offset)},
        lambda missing: None if done.done() else done.set_result(missing),
    )
    broker.delayed.watch(wait, [target.key], _REPLICATION_MS)
    try:
        missing = await done
    finally:
        broker.delayed.remove(wait)
    if missing:
        error: ApiError = RequestTimedOut(f"{target.key[0]}-{target.key[1]} is not replicated in time")
        raise error
