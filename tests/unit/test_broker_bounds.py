"""What one client can make the broker remember, unpack and do in a row is bounded."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from penstock.broker.net.session import Session
from penstock.clock import ManualClock
from penstock.config import BrokerConfig, resolve_topic
from penstock.controller import TopicRef, TopicSpec
from penstock.errors import (
    FetchSessionIdNotFound,
    InvalidRecord,
    InvalidRequest,
    UnknownTopicOrPartition,
    WireError,
)
from penstock.log.validate import Allowance, admit
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message, decode_request, decode_response, encode_request
from penstock.wire.primitives import MAX_ITEMS
from tests.unit.test_broker_connections import running

TIME = 1_700_000_000_000


def fetch(*partitions: int, session: tuple[int, int] = (0, 0), topic: str = "t") -> Message:
    wanted = [
        Message(partition=index, fetch_offset=0, partition_max_bytes=1000, current_leader_epoch=-1)
        for index in partitions
    ]
    return Message(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1000,
        session_id=session[0],
        session_epoch=session[1],
        topics=[Message(topic=topic, partitions=wanted)] if wanted else [],
        forgotten_topics_data=[],
    )


@pytest.mark.promise(
    "hostile input",
    "The memory that one client can make the broker use, for state and for decompression, is limited",
)
def test_partitions_that_are_not_there_are_answered_and_not_remembered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (broker, connect):
            await broker.controller.create_topics([TopicSpec("t", 2)])
            await broker.caught_up()
            client = await connect()
            answer = await client.request(ApiKey.FETCH, 7, fetch(0, *range(2, 1000)))
            assert answer.session_id == 0
            codes = {one.partition_index: one.error_code for one in answer.responses[0].partitions}
            assert codes.pop(0) == 0
            assert set(codes.values()) == {UnknownTopicOrPartition.code} and len(codes) == 998
            assert broker.sessions.partition_count == 0

            opened = await client.request(ApiKey.FETCH, 7, fetch(0))
            assert opened.session_id != 0 and broker.sessions.partition_count == 1
            grown = await client.request(ApiKey.FETCH, 7, fetch(1, session=(opened.session_id, 1)))
            assert grown.error_code == 0 and broker.sessions.partition_count == 2
            refused = await client.request(ApiKey.FETCH, 7, fetch(9, session=(opened.session_id, 2)))
            assert refused.error_code == FetchSessionIdNotFound.code
            assert broker.sessions.partition_count == 0

    asyncio.run(scenario())


def test_a_partition_of_a_session_that_is_deleted_is_told_and_stays(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (broker, connect):
            await broker.controller.create_topics([TopicSpec("t", 1)])
            await broker.caught_up()
            client = await connect()
            opened = await client.request(ApiKey.FETCH, 7, fetch(0))
            await broker.controller.delete_topics([TopicRef("t")])
            await broker.caught_up()
            answer = await client.request(ApiKey.FETCH, 7, fetch(0, session=(opened.session_id, 1)))
            assert answer.error_code == 0
            assert answer.responses[0].partitions[0].error_code == UnknownTopicOrPartition.code

    asyncio.run(scenario())


def test_a_partition_that_is_named_again_is_read_once_as_it_was_named_last(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (broker, connect):
            await broker.controller.create_topics([TopicSpec("t", 1)])
            await broker.caught_up()
            request = fetch(0, 0)
            request.topics[0].partitions[0].fetch_offset = 77
            answer = await (await connect()).request(ApiKey.FETCH, 7, request)
            assert [one.error_code for one in answer.responses[0].partitions] == [0]

    asyncio.run(scenario())


@pytest.mark.promise(
    "hostile input",
    "The memory that one client can make the broker use, for state and for decompression, is limited",
)
def test_a_message_with_too_many_items_is_no_request() -> None:
    def metadata(count: int) -> bytes:
        return struct.pack(">i", count) + b"\0\1a" * count

    assert len(decode_request(ApiKey.METADATA, 1, metadata(MAX_ITEMS)).topics) == MAX_ITEMS
    with pytest.raises(WireError, match="items"):
        decode_request(ApiKey.METADATA, 1, metadata(MAX_ITEMS + 1))


def test_an_answer_may_have_more_items_than_a_request() -> None:
    count = MAX_ITEMS + 1
    topics = [Message(name="t", partitions=[Message(partition_index=0)] * count)]
    request = encode_request(ApiKey.LIST_OFFSETS, 1, Message(replica_id=-1, topics=topics))
    with pytest.raises(WireError, match="items"):
        decode_request(ApiKey.LIST_OFFSETS, 1, request)
    body = (
        struct.pack(">ih", 1, 1) + b"t" + struct.pack(">i", count) + struct.pack(">ihqq", 0, 0, 0, 0) * count
    )
    assert len(decode_response(ApiKey.LIST_OFFSETS, 1, body).topics[0].partitions) == count


# -- what is unpacked


def packed(value: bytes, count: int = 1) -> bytearray:
    return bytearray(build_batch([Record(i, TIME, b"k", value) for i in range(count)], codec=4))


def lying(value: bytes) -> bytearray:
    """A sound header, CRC and all, over two records where it says three."""
    data = packed(value, 2)
    struct.pack_into(">i", data, 23, 2)
    struct.pack_into(">i", data, 57, 3)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return data


@pytest.mark.promise(
    "hostile input",
    "The memory that one client can make the broker use, for state and for decompression, is limited",
)
def test_after_the_allowance_of_a_request_its_batches_pass_on_their_headers() -> None:
    config = resolve_topic(BrokerConfig.parse({}), {})
    allowance = Allowance(1 << 20)
    large = packed(b"\0" * (1 << 20))
    admit(large, 0, len(large), config, TIME, allowance)
    assert allowance.left <= 0
    bad = lying(b"v")
    admit(bad, 0, len(bad), config, TIME, allowance)
    for fresh in (None, Allowance()):
        with pytest.raises(InvalidRecord):
            admit(bad, 0, len(bad), config, TIME, fresh)
    compacted = resolve_topic(BrokerConfig.parse({}), {"cleanup.policy": "compact"})
    with pytest.raises(InvalidRecord):
        admit(bad, 0, len(bad), compacted, TIME, allowance)


def test_many_small_records_spend_the_allowance_as_large_ones_do() -> None:
    allowance = Allowance(1000)
    allowance.spend(10, 100)
    assert allowance.left <= 0


@pytest.mark.promise(
    "hostile input",
    "The memory that one client can make the broker use, for state and for decompression, is limited",
)
def test_a_batch_that_unpacks_to_too_much_is_refused() -> None:
    bomb = packed(b"\0" * (64 << 20))
    with pytest.raises(InvalidRecord):
        admit(bomb, 0, len(bomb), resolve_topic(BrokerConfig.parse({}), {}), TIME)


@pytest.mark.promise(
    "hostile input",
    "The memory that one client can make the broker use, for state and for decompression, is limited",
)
def test_a_produce_that_names_a_partition_twice_is_refused_whole(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, ManualClock(TIME)) as (broker, connect):
            await broker.controller.create_topics([TopicSpec("t", 2)])
            await broker.caught_up()
            client = await connect()
            data = bytes(packed(b"v"))

            def topic(*indexes: int) -> Message:
                return Message(name="t", partition_data=[Message(index=i, records=data) for i in indexes])

            for topics, codes in (
                ([topic(0, 1)], {0}),
                ([topic(0, 1, 0)], {InvalidRequest.code}),
                ([topic(0), topic(0)], {InvalidRequest.code}),
            ):
                request = Message(transactional_id=None, acks=1, timeout_ms=1000, topic_data=topics)
                answer = await client.request(ApiKey.PRODUCE, 8, request)
                found = [one.error_code for part in answer.responses for one in part.partition_responses]
                assert set(found) == codes
            assert broker.partitions["t", 0].log.log_end_offset == 1

    asyncio.run(scenario())


# -- turns


@pytest.mark.promise(
    "hostile input", "Requests of other connections are served between expensive requests of one connection"
)
def test_between_costly_requests_of_one_connection_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    async def scenario() -> None:
        clock = ManualClock()
        async with running(tmp_path, clock) as (broker, connect):
            dispatch: Any = broker.server.dispatch

            def costly(session: Session, buf: bytearray, pos: int, end: int) -> Any:
                order.append(session.peer)
                clock.advance(1000)
                return dispatch(session, buf, pos, end)

            greedy, other = await connect(), await connect()
            monkeypatch.setattr(broker.server, "dispatch", costly)
            for number in range(20):
                greedy.send(ApiKey.API_VERSIONS, 0, Message(), number)
                if number == 0:
                    other.send(ApiKey.API_VERSIONS, 0, Message())
            answers = [struct.unpack_from(">i", await greedy.receive())[0] for _ in range(20)]
            assert answers == list(range(20))
            await other.receive()

    asyncio.run(scenario())
    last = order[-1]
    alone = next(peer for peer in order if order.count(peer) == 1)
    assert alone != last and order.index(alone) < 10
