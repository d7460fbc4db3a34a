"""Partitions that go while transactional produces wait for the coordinator: each of them is answered."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.api import produce as produce_api
from penstock.broker.broker import Broker
from penstock.broker.net.context import RequestContext
from penstock.controller import TopicRef, TopicSpec
from penstock.coordinator import Producer
from penstock.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from penstock.metadata.image import PartitionImage
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import decode_response
from penstock.wire.primitives import INT32, encode_compact_string, encode_uvarint
from tests.unit.test_transactions_broker import init, running
from tests.unit.test_transactions_shells import batch, hold_replication, produce

_VERSION = 12
_GONE = "u"


def produce_to(
    broker: Broker, producer: Producer, sequences: Mapping[str, int]
) -> Coroutine[Any, Any, bytes]:
    """One record to partition 0 of each topic, with the topic's sequence."""
    body = encode_compact_string("x") + struct.pack(">hi", -1, 5000) + encode_uvarint(len(sequences) + 1)
    for topic, sequence in sequences.items():
        data = bytes(batch(producer, sequence))
        body += encode_compact_string(topic) + encode_uvarint(2) + INT32.pack(0)
        body += encode_uvarint(len(data) + 1) + data + b"\0\0"
    body += b"\0"
    context = RequestContext(ApiKey.PRODUCE, _VERSION, 1, "c", "p:1")
    answer = produce_api.handle(broker, context, bytearray(body), 0, len(body))
    assert isinstance(answer, Coroutine)
    return answer


async def delete(broker: Broker) -> None:
    await broker.controller.delete_topics([TopicRef(_GONE)])
    await broker.caught_up()


async def move(broker: Broker) -> None:
    """A reassignment that is complete: broker 2 has the only replica."""
    image = broker.image
    partitions = (PartitionImage(0, 2, 1, (2,), (2,), 1),)
    await broker.topics.apply(image.with_topics([replace(image.topics[_GONE], partitions=partitions)]))


@pytest.mark.promise(
    "transactions",
    "A transactional produce request gets a response even if its topic is deleted meanwhile or the "
    "coordinator sends an invalid response",
)
def test_produces_that_wait_in_line_are_answered_when_their_topic_is_deleted(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            producer = await init(broker)
            fetch = hold_replication(broker)
            waiting = [
                asyncio.ensure_future(produce(broker, producer, *part)) for part in ((0, 1), (1, 1), (2, 1))
            ]
            await asyncio.sleep(0)
            await broker.controller.delete_topics([TopicRef("t")])
            await broker.caught_up()
            fetch()
            for answer in await asyncio.wait_for(asyncio.gather(*waiting), 30):
                body = decode_response(ApiKey.PRODUCE, 12, answer, 0)
                code = body.responses[0].partition_responses[0].error_code
                assert code == UnknownTopicOrPartition.code

    asyncio.run(main())


@pytest.mark.promise(
    "transactions",
    "A transactional produce request gets a response even if its topic is deleted meanwhile or the "
    "coordinator sends an invalid response",
)
@pytest.mark.parametrize(
    ("go", "error"),
    [(delete, UnknownTopicOrPartition), (move, NotLeaderOrFollower)],
    ids=["deleted", "moved"],
)
def test_a_produce_that_waits_in_line_goes_to_the_partitions_that_are_left(
    tmp_path: Path, go: Any, error: type[UnknownTopicOrPartition | NotLeaderOrFollower]
) -> None:
    """Of the partitions that are left, `w` is not in the transaction yet: the coordinator is asked."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.controller.create_topics([TopicSpec(name, 1, 1) for name in (_GONE, "w")])
            await broker.caught_up()
            producer = await init(broker)
            fetch = hold_replication(broker)
            first = asyncio.ensure_future(produce_to(broker, producer, {"t": 0}))
            behind = asyncio.ensure_future(produce_to(broker, producer, {"t": 1}))
            every = asyncio.ensure_future(produce_to(broker, producer, {"t": 2, _GONE: 0, "w": 0}))
            await asyncio.sleep(0)
            await go(broker)
            fetch()
            await asyncio.wait_for(asyncio.gather(first, behind), 30)
            fetch()  # the partitions that the third one added
            answer = await asyncio.wait_for(every, 30)
            found = decode_response(ApiKey.PRODUCE, _VERSION, answer, 0)
            codes = {one.name: one.partition_responses[0].error_code for one in found.responses}
            assert codes == {"t": 0, _GONE: error.code, "w": 0}

    asyncio.run(main())
