"""Quotas where a broker has them in force: throttle times in answers, and muted connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.broker import Broker
from penstock.broker.net.connection import Connection
from penstock.clock import ManualClock
from penstock.controller import TopicSpec
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message
from tests.unit.test_broker_connections import Client, metadata, running, until_open

TIME = 1_700_000_000_000
THROTTLED = 89


def produce(size: int, acks: int = 1) -> Message:
    records = build_batch([Record(0, TIME, None, b"v" * size)])
    data = Message(name="t", partition_data=[Message(index=0, records=records)])
    return Message(transactional_id=None, acks=acks, timeout_ms=1000, topic_data=[data])


def fetch() -> Message:
    partition = Message(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return Message(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=0, session_epoch=-1,
        topics=[Message(topic="t", partitions=[partition])], forgotten_topics_data=[],
    )  # fmt: skip


async def alter(client: Client, quota: str, value: float, **entity: str | None) -> None:
    parts = [Message(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()]
    ops = [Message(key=quota, value=value, remove=False)]
    request = Message(entries=[Message(entity=parts, ops=ops)], validate_only=False)
    answer = await client.request(ApiKey.ALTER_CLIENT_QUOTAS, 1, request)
    assert [entry.error_code for entry in answer.entries] == [0]


def scenario(
    directory: Path, work: Callable[[Broker, Callable[[], Awaitable[Client]]], Awaitable[None]], **more: str
) -> None:
    async def main() -> None:
        async with running(directory, ManualClock(TIME), **more) as (broker, connect):
            await broker.controller.create_topics([TopicSpec("t")])
            await broker.caught_up()
            await work(broker, connect)

    asyncio.run(main())


def muted(broker: Broker) -> list[Connection]:
    return [connection for connection in broker.server.connections if connection._muted is not None]


@pytest.mark.promise(
    "access",
    "Past a quota the response has its throttle time and the connection is muted; other clients are not "
    "affected, and followers have no quota",
)
@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_past_its_byte_rate_a_producer_is_told_how_long_it_is_left_unread_and_others_are_not(
    tmp_path: Path, version: int
) -> None:
    async def work(broker: Broker, connect: Callable[[], Awaitable[Client]]) -> None:
        client, other = await connect(), await connect()
        first = await client.request(ApiKey.PRODUCE, version, produce(50_000))
        assert first.throttle_time_ms == 0
        await alter(other, "producer_byte_rate", 1000, client_id=None)
        assert (await client.request(ApiKey.PRODUCE, version, produce(100))).throttle_time_ms == 0
        answer = await client.request(ApiKey.PRODUCE, version, produce(50_000))
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert 39_000 < answer.throttle_time_ms < 45_000
        (connection,) = muted(broker)
        assert connection._paused
        client.send(ApiKey.METADATA, 8, metadata("t"))
        unread = asyncio.ensure_future(client.receive())
        for _ in range(3):  # another connection goes on
            await other.request(ApiKey.METADATA, 8, metadata("t"))
        assert not unread.done()
        assert connection._muted is not None
        connection._muted.cancel()
        connection._unmute()  # as its timer does
        await unread
        assert not muted(broker)

    scenario(tmp_path, work)


def test_a_produce_without_an_answer_is_counted_too(tmp_path: Path) -> None:
    async def work(broker: Broker, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await alter(client, "producer_byte_rate", 1000, user="ANONYMOUS")
        client.send(ApiKey.PRODUCE, 9, produce(50_000, acks=0))
        while not muted(broker):
            await asyncio.sleep(0)

    scenario(tmp_path, work)


@pytest.mark.parametrize("version", [4, 11, 12])
def test_past_its_byte_rate_a_consumer_waits_and_gets_no_more_at_once_than_the_windows_allow(
    tmp_path: Path, version: int
) -> None:
    async def work(broker: Broker, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        for _ in range(10):
            await client.request(ApiKey.PRODUCE, 9, produce(3_000))
        await alter(client, "consumer_byte_rate", 1000, client_id=None)
        answer = await client.request(ApiKey.FETCH, version, fetch())
        records = answer.responses[0].partitions[0].records
        assert 9_000 < len(records) <= 10_000
        assert answer.throttle_time_ms == 0
        answer = await (await connect()).request(ApiKey.FETCH, version, fetch())
        assert 5_000 < answer.throttle_time_ms < 12_000
        assert len(muted(broker)) == 1

    scenario(tmp_path, work)


@pytest.mark.promise(
    "access",
    "A consumer that has exceeded its byte rate gets no records on a new connection either; records of "
    "share groups count, too",
)
@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_new_connection_does_not_end_the_wait_of_a_consumer(tmp_path: Path, version: int) -> None:
    async def work(broker: Broker, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        for _ in range(10):
            await client.request(ApiKey.PRODUCE, 9, produce(3_000))
        await alter(client, "consumer_byte_rate", 1000, user="ANONYMOUS")

        async def fetched(wait_ms: int = 0) -> tuple[int, int]:
            """Bytes and throttle time, on a connection of its own."""
            request = fetch()
            request.__dict__["max_wait_ms"] = wait_ms
            answer = await (await connect()).request(ApiKey.FETCH, version, request)
            partition = answer.responses[0].partitions[0]
            assert (partition.error_code, partition.high_watermark) == (0, 10)
            return len(partition.records), answer.throttle_time_ms

        assert (await fetched())[1] == 0
        got, wait = await fetched()
        assert got > 0 and wait > 0
        for wait_ms in (0, 60_000):  # it is answered at once, and its connection waits
            assert await fetched(wait_ms) == (0, wait)
        broker.clock.advance(wait - 1)
        assert await fetched() == (0, 1)
        broker.clock.advance(1)
        assert (await fetched())[0] > 0, "after the wait"
        assert (await fetched())[0] == 0
        await alter(client, "consumer_byte_rate", 1e9, user="ANONYMOUS")
        await broker.caught_up()
        assert (await fetched())[0] > 0, "a quota that is raised counts at once"

    scenario(tmp_path, work)


@pytest.mark.promise(
    "access",
    "A consumer that has exceeded its byte rate gets no records on a new connection either; records of "
    "share groups count, too",
)
def test_what_a_share_group_reads_counts_as_what_consumers_read(tmp_path: Path) -> None:
    async def work(broker: Broker, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        for _ in range(10):
            await client.request(ApiKey.PRODUCE, 9, produce(3_000))
        await alter(client, "consumer_byte_rate", 1000, user="ANONYMOUS")
        await client.request(ApiKey.FIND_COORDINATOR, 4, Message(key_type=0, coordinator_keys=["g"]))
        begin = [Message(topic_name="t", partitions=[Message(partition_index=0, start_offset=0)])]
        altered = Message(group_id="g", topics=begin)
        answer = await client.request(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, altered)
        assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0), answer

        async def fetched(member: str) -> tuple[int, int]:
            partition = Message(partition_index=0, acknowledgement_batches=[])
            topics = [Message(topic_id=broker.image.topics["t"].id, partitions=[partition])]
            request = Message(
                group_id="g", member_id=member, share_session_epoch=0, max_wait_ms=0, min_bytes=0,
                max_bytes=1 << 20, max_records=5, batch_size=5, topics=topics, forgotten_topics_data=[],
            )  # fmt: skip
            answer = await (await connect()).request(ApiKey.SHARE_FETCH, 1, request)
            (found,) = answer.responses[0].partitions
            assert (answer.error_code, found.error_code) == (0, 0)
            return len(found.records or b""), answer.throttle_time_ms

        got, wait = await fetched("AAAAAAAAAAAAAAAAAAAAAA")
        assert got > 12_000 and wait > 0
        assert await fetched("BBBBBBBBBBBBBBBBBBBBBA") == (0, wait)
        answer = await (await connect()).request(ApiKey.FETCH, 12, fetch())
        assert (answer.responses[0].partitions[0].records, answer.throttle_time_ms) == (b"", wait)

    scenario(tmp_path, work)


@pytest.mark.promise(
    "access",
    "Past a quota the response has its throttle time and the connection is muted; other clients are not "
    "affected, and followers have no quota",
)
def test_followers_have_no_quota(tmp_path: Path) -> None:
    async def work(broker: Broker, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        for _ in range(10):
            await client.request(ApiKey.PRODUCE, 9, produce(30_000))
        await alter(client, "consumer_byte_rate", 1000, client_id=None)
        request = fetch()
        request.__dict__["replica_id"] = 2
        answer: Any = await client.request(ApiKey.FETCH, 11, request)
        assert answer.throttle_time_ms == 0
        assert not muted(broker)

    scenario(tmp_path, work)


@pytest.mark.promise(
    "access",
    "Topic changes above their rate get THROTTLING_QUOTA_EXCEEDED; connections are limited by address",
)
def test_changes_of_topics_past_their_rate_are_refused_and_older_clients_are_slowed(tmp_path: Path) -> None:
    async def work(broker: Broker, connect: Callable[[], Awaitable[Client]]) -> None:
        def create(name: str, partitions: int) -> Message:
            new = Message(
                name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
            )
            return Message(topics=[new], timeout_ms=1000, validate_only=False)

        client = await connect()
        await alter(client, "controller_mutation_rate", 1, user=None)
        answer = await client.request(ApiKey.CREATE_TOPICS, 6, create("a", 14))
        assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, 0)
        answer = await client.request(ApiKey.CREATE_TOPICS, 6, create("b", 1))
        assert (answer.topics[0].error_code, answer.throttle_time_ms) == (THROTTLED, 3000)
        assert "b" not in broker.image.topics
        delete = Message(topics=[Message(name="a")], timeout_ms=1000)
        answer = await (await connect()).request(ApiKey.DELETE_TOPICS, 6, delete)
        assert answer.responses[0].error_code == THROTTLED
        grow = Message(topics=[Message(name="t", count=2, assignments=None)], timeout_ms=1000)
        answer = await (await connect()).request(ApiKey.CREATE_PARTITIONS, 3, grow)
        assert answer.results[0].error_code == THROTTLED
        answer = await (await connect()).request(ApiKey.CREATE_TOPICS, 5, create("c", 1))
        assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, 4000)

    scenario(tmp_path, work)


@pytest.mark.promise(
    "access",
    "Topic changes above their rate get THROTTLING_QUOTA_EXCEEDED; connections are limited by address",
)
def test_an_address_that_has_all_its_connections_gets_no_other(tmp_path: Path) -> None:
    async def work(broker: Broker, connect: Callable[[], Awaitable[Client]]) -> None:
        first, second = await connect(), await connect()
        for client in (first, second):
            await client.request(ApiKey.METADATA, 8, metadata("t"))
        third = await connect()
        assert await third.closed()
        second.writer.close()
        await until_open(broker, 1)
        await (await connect()).request(ApiKey.METADATA, 8, metadata("t"))

    scenario(tmp_path, work, max_connections_per_ip="2")


def test_a_connection_that_is_turned_away_does_not_free_a_place_of_its_address(tmp_path: Path) -> None:
    async def work(broker: Broker, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await client.request(ApiKey.METADATA, 8, metadata("t"))
        assert await (await connect()).closed()
        await until_open(broker, 1)
        assert broker.server.connection_quotas.count("127.0.0.1") == 1

    scenario(tmp_path, work, max_connections="1")


def test_what_was_set_is_described_by_exact_default_and_any_filters(tmp_path: Path) -> None:
    async def work(broker: Broker, connect: Callable[[], Awaitable[Client]]) -> None:
        client = await connect()
        await alter(client, "producer_byte_rate", 1e6, user="u")
        await alter(client, "producer_byte_rate", 2e6, user=None)
        await alter(client, "consumer_byte_rate", 3e6, user="u", client_id="c")
        await alter(client, "connection_creation_rate", 4, ip="10.0.0.1")

        async def described(strict: bool, *components: tuple[str, int, str | None]) -> set[float]:
            asked = [Message(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
            request = Message(components=asked, strict=strict)
            answer = await client.request(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, request)
            assert answer.error_code == 0
            return {one.value for entry in answer.entries for one in entry.values}

        assert await described(False) == {1e6, 2e6, 3e6, 4}
        assert await described(False, ("user", 0, "u")) == {1e6, 3e6}
        assert await described(True, ("user", 0, "u")) == {1e6}
        assert await described(False, ("user", 1, None)) == {2e6}
        assert await described(False, ("user", 2, None)) == {1e6, 2e6, 3e6}
        assert await described(True, ("client-id", 0, "c"), ("user", 0, "u")) == {3e6}
        assert await described(False, ("ip", 2, None)) == {4}
        both = [Message(entity_type="user", match_type=2, match=None)] * 2
        refused = Message(components=both, strict=False)
        answer = await client.request(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, refused)
        assert answer.error_code == 42

    scenario(tmp_path, work)
