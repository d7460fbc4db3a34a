"""Connections of a broker in this process, whose clock and handlers a test can reach."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.api import fetch as fetch_api
from penstock.broker.broker import Broker
from penstock.broker.net.context import RequestContext
from penstock.broker.net.dispatch import Route
from penstock.broker.net.interceptor import Action
from penstock.clock import ManualClock
from penstock.config import BrokerConfig
from penstock.controller import TopicSpec
from penstock.errors import NotController
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message, decode_response, encode_request, response_header_version

API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class Stub:
    """An interceptor that does one thing to one API."""

    def __init__(self, key: ApiKey, action: Action) -> None:
        self.key, self.action = key, action

    def intercept(self, context: RequestContext) -> Action | None:
        return self.action if context.api_key == self.key else None


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, api: ApiKey, version: int, message: Message, correlation_id: int = 1) -> None:
        header = struct.pack(">hhih", api, version, correlation_id, -1)
        flexible = b"\0" if response_header_version(api, version) else b""
        body = header + flexible + encode_request(api, version, message)
        self.writer.write(struct.pack(">i", len(body)) + body)

    async def receive(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def request(self, api: ApiKey, version: int, message: Message) -> Message:
        self.send(api, version, message)
        start = 5 if response_header_version(api, version) else 4
        return decode_response(api, version, await self.receive(), start)

    async def closed(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True


@asynccontextmanager
async def running(
    directory: Path, clock: ManualClock | None = None, interceptor: Stub | None = None, **settings: str
) -> AsyncIterator[tuple[Broker, Callable[[], Awaitable[Client]]]]:
    values = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory)}
    values |= {name.replace("_", "."): value for name, value in settings.items()}
    broker = Broker(BrokerConfig.parse(values), clock or ManualClock(), interceptor=interceptor)
    await broker.start()
    clients: list[Client] = []

    async def connect() -> Client:
        clients.append(Client(*await asyncio.open_connection("127.0.0.1", broker.port)))
        return clients[-1]

    try:
        yield broker, connect
    finally:
        for client in clients:
            client.writer.close()
        await broker.stop()


def metadata(*names: str) -> Message:
    return Message(topics=[Message(name=name) for name in names], allow_auto_topic_creation=False)


async def until_open(broker: Broker, count: int) -> None:
    while len(broker.server.connections) != count:
        await asyncio.sleep(0)


def test_a_connection_without_requests_is_closed_after_connections_max_idle_ms(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with running(tmp_path, clock, connections_max_idle_ms="60000") as (broker, connect):
            idle, busy = await connect(), await connect()
            await until_open(broker, 2)
            clock.advance(50_000)
            await busy.request(ApiKey.METADATA, 8, metadata())
            clock.advance(20_000)
            assert broker.server.reap() == 1
            assert await idle.closed()
            await busy.request(ApiKey.METADATA, 8, metadata())

    asyncio.run(main())


def test_a_frame_that_is_begun_and_not_continued_is_given_up(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with running(tmp_path, clock) as (broker, connect):
            stalled, quiet = await connect(), await connect()
            await quiet.request(ApiKey.METADATA, 8, metadata())
            stalled.writer.write(API_VERSIONS + API_VERSIONS[:7])
            await stalled.receive()
            clock.advance(29_000)
            assert broker.server.reap() == 0
            clock.advance(2_000)
            assert broker.server.reap() == 1
            assert await stalled.closed()
            await quiet.request(ApiKey.METADATA, 8, metadata())

    asyncio.run(main())


def test_a_frame_that_trickles_is_given_up(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with running(tmp_path, clock) as (broker, connect):
            client = await connect()
            client.writer.write(struct.pack(">i", 1000))
            await until_open(broker, 1)
            (connection,) = broker.server.connections
            for filled in range(4, 9):
                while connection._filled < filled:
                    await asyncio.sleep(0)
                if broker.server.reap():
                    break
                clock.advance(20_000)
                client.writer.write(b"x")
            assert await client.closed()

    asyncio.run(main())


def test_connections_past_max_connections_are_closed(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, max_connections="2") as (broker, connect):
            clients = [await connect() for _ in range(2)]
            for client in clients:
                await client.request(ApiKey.METADATA, 8, metadata())
            assert await (await connect()).closed()
            await clients[0].request(ApiKey.METADATA, 8, metadata())

    asyncio.run(main())


def test_a_handler_that_fails_is_answered_and_the_connection_lives(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> Message:
        raise ZeroDivisionError

    async def main() -> None:
        async with running(tmp_path) as (broker, connect):
            routes = broker._dispatcher._routes
            known = routes[ApiKey.LIST_OFFSETS][5]
            routes[ApiKey.LIST_OFFSETS][5] = Route(replace(known.api, handle=fails), False, known.times)
            client = await connect()
            partition = Message(partition_index=3, timestamp=-1, current_leader_epoch=-1)
            topics = [Message(name="t", partitions=[partition])]
            request = Message(replica_id=-1, isolation_level=0, topics=topics)
            answer = await client.request(ApiKey.LIST_OFFSETS, 5, request)
            assert [(p.partition_index, p.error_code) for p in answer.topics[0].partitions] == [(3, -1)]
            await client.request(ApiKey.METADATA, 8, metadata())

    asyncio.run(main())
    assert "LIST_OFFSETS failed: api 2 v5 correlation 1" in caplog.text


@pytest.mark.promise(
    "hostile input",
    "A delayed request or a response that fails closes only the connection of its own client and delays "
    "no other request",
)
def test_an_answer_that_cannot_be_encoded_ends_the_connection_and_not_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with running(tmp_path) as (broker, connect):
            route = broker._dispatcher._routes[ApiKey.METADATA][8]

            async def wrong(*_: Any) -> Message:
                await asyncio.sleep(0)
                return Message(throttle_time_ms="soon")

            monkeypatch.setattr(route, "handle", wrong)
            client = await connect()
            client.send(ApiKey.METADATA, 8, metadata())
            assert await asyncio.wait_for(client.closed(), 30)

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input",
    "A delayed request or a response that fails closes only the connection of its own client and delays "
    "no other request",
)
def test_a_fetch_that_fails_at_the_end_of_its_wait_is_not_left_without_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with running(tmp_path) as (broker, connect):
            await broker.controller.create_topics([TopicSpec("t", 1, 1)])
            await broker.caught_up()
            client = await connect()
            client.send(ApiKey.FETCH, 11, fetch_of("t"))
            while ("t", 0) not in broker.delayed.waiters:
                await asyncio.sleep(0.001)

            def failing(*_: Any) -> None:
                raise OSError(5, "the disk is gone")

            monkeypatch.setattr(fetch_api, "read", failing)
            broker.delayed.complete_all(("t", 0))
            assert await asyncio.wait_for(client.closed(), 30)

    asyncio.run(main())


def fetch_of(topic: str) -> Message:
    partition = Message(partition=0, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1 << 20)
    return Message(
        replica_id=-1,
        max_wait_ms=600_000,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[Message(topic=topic, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
    )


def test_a_request_that_changes_something_is_done_before_the_next_is_begun(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as (_, connect):
            client = await connect()
            topic = Message(name="new", num_partitions=1, replication_factor=1, assignments=[], configs=[])
            client.send(ApiKey.CREATE_TOPICS, 4, Message(topics=[topic], timeout_ms=1, validate_only=False))
            client.send(ApiKey.METADATA, 8, metadata("new"))
            created = decode_response(ApiKey.CREATE_TOPICS, 4, await client.receive(), 4)
            assert created.topics[0].error_code == 0
            found = decode_response(ApiKey.METADATA, 8, await client.receive(), 4)
            assert [(topic.error_code, len(topic.partitions)) for topic in found.topics] == [(0, 1)]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("action", "outcome"),
    [
        (Action(error_code=NotController.code), NotController.code),
        (Action(delay_ms=5), 3),
        (Action(drop=True), None),
        (Action(drop_after=True), None),
    ],
    ids=["error", "delay", "drop", "drop after"],
)
def test_an_interceptor_bends_the_answers_of_one_api(
    tmp_path: Path, action: Action, outcome: int | None
) -> None:
    async def main() -> None:
        async with running(tmp_path, interceptor=Stub(ApiKey.METADATA, action)) as (_, connect):
            client = await connect()
            client.writer.write(API_VERSIONS)
            await client.receive()
            if outcome is None:
                client.send(ApiKey.METADATA, 8, metadata("t"))
                assert await client.closed()
            else:
                answer = await client.request(ApiKey.METADATA, 8, metadata("t"))
                assert [topic.error_code for topic in answer.topics] == [outcome]

    asyncio.run(main())


def test_a_second_broker_on_the_directory_fails_with_a_clear_error(tmp_path: Path) -> None:
    async def main() -> None:
        from penstock.broker.data_directory import DataDirectoryError

        async with running(tmp_path):
            with pytest.raises(DataDirectoryError, match="in use by another broker"):
                async with running(tmp_path):
                    pass

    asyncio.run(main())


def test_a_request_knows_its_principal_and_its_listener(tmp_path: Path) -> None:
    seen: list[RequestContext] = []

    class Watcher(Stub):
        def intercept(self, context: RequestContext) -> Action | None:
            seen.append(context)
            return None

    async def scenario() -> None:
        async with running(tmp_path, interceptor=Watcher(ApiKey.METADATA, Action())) as (_, connect):
            await (await connect()).request(ApiKey.METADATA, 9, metadata())

    asyncio.run(scenario())
    (context,) = seen
    assert str(context.principal) == "User:ANONYMOUS"
    assert context.listener == "PLAINTEXT"
