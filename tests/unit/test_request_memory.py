"""What requests hold while they wait for their answers counts, and is bounded (queued.max.request.bytes)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.broker.broker import Broker
from penstock.broker.net.budget import Budget
from penstock.wire.api_keys import ApiKey
from tests.sim.group_host import join_request
from tests.unit.test_broker_connections import Client, metadata, running

LIMIT = 200_000
LARGE = 50_000
SETTINGS = {
    "socket_request_max_bytes": str(LIMIT),
    "queued_max_request_bytes": str(LIMIT),
    "offsets_topic_num_partitions": "1",
    "group_initial_rebalance_delay_ms": "60000",
}


def join(client: Client, number: int, size: int = LARGE) -> None:
    """A request that waits for the other members of its group, and is kept as long."""
    client.send(ApiKey.JOIN_GROUP, 3, join_request(f"g{number}", protocols={"range": b"x" * size}), number)


async def until(condition: Callable[[], bool]) -> None:
    async def poll() -> None:
        while not condition():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(poll(), 60)


def waiting(broker: Broker) -> int:
    """The requests that were begun and are not answered."""
    return sum(len(connection._slots) for connection in broker.server.connections)


@pytest.mark.promise(
    "hostile input",
    "Memory held by requests that wait for their response (a JoinGroup for other members) counts towards "
    "`queued.max.request.bytes`: on one connection and in total it is at most the limit, the frame that "
    "exceeded it and one more; small requests continue",
)
@pytest.mark.parametrize("size", [LARGE, 3 * LARGE])
def test_requests_that_wait_on_one_connection_hold_no_more_than_the_budget_and_a_frame(
    size: int, tmp_path: Path
) -> None:
    async def main() -> None:
        async with running(tmp_path, **SETTINGS) as (broker, connect):
            await broker.groups.ensure_topic()
            client = await connect()
            count = 30
            for number in range(count):
                join(client, number, size)
            budget = broker.server.budget
            await until(lambda: budget.spent or waiting(broker) == count)
            (connection,) = broker.server.connections
            await until(lambda: connection._paused or waiting(broker) == count)
            held = sum(slot.pending.held for slot in connection._slots if slot.pending is not None)
            assert waiting(broker) * size <= held < LIMIT + size + 1000
            assert budget.used >= held
            other = await connect()
            await other.request(ApiKey.METADATA, 8, metadata())  # others are served

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input",
    "Memory held by requests that wait for their response (a JoinGroup for other members) counts towards "
    "`queued.max.request.bytes`: on one connection and in total it is at most the limit, the frame that "
    "exceeded it and one more; small requests continue",
)
def test_requests_that_wait_on_many_connections_hold_no_more_than_the_budget_and_two_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with running(tmp_path, **SETTINGS) as (broker, connect):
            await broker.groups.ensure_topic()
            monkeypatch.setattr(broker.server, "lend", lambda: None)  # each frame in a buffer of its own
            size = 3 * LARGE
            clients = [await connect() for _ in range(8)]
            for number, client in enumerate(clients):
                client.send(ApiKey.METADATA, 8, metadata(), 0)
                join(client, number, size)
                await client.writer.drain()
            budget = broker.server.budget
            await until(lambda: waiting(broker) == len(clients) or _stuck(broker) + waiting(broker) >= 8)
            assert waiting(broker) * size < LIMIT + 2 * size
            assert budget.spent

            # Those that go release what they held, and others get their turn.
            gone = {one for one in broker.server.connections if one._slots}
            for one in gone:
                one.close(None)
            await until(lambda: not gone & broker.server.connections and waiting(broker) > 0)

    asyncio.run(main())


def _stuck(broker: Broker) -> int:
    return sum(connection._hungry for connection in broker.server.connections)


@pytest.mark.promise(
    "hostile input",
    "Memory held by requests that wait for their response (a JoinGroup for other members) counts towards "
    "`queued.max.request.bytes`: on one connection and in total it is at most the limit, the frame that "
    "exceeded it and one more; small requests continue",
)
def test_an_answer_releases_what_its_request_held_and_the_next_is_handled(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, **SETTINGS) as (broker, connect):
            await broker.groups.ensure_topic()
            client = await connect()
            count = 12
            for number in range(count):
                join(client, number)
            for _ in range(count):
                receiving = asyncio.ensure_future(client.receive())
                while not receiving.done():
                    broker.clock.advance(60_000)  # type: ignore[attr-defined]
                    for hosted in broker.groups._hosted.values():
                        broker.groups._tick(hosted)
                    await asyncio.sleep(0.001)
                receiving.result()
            await until(lambda: broker.server.budget.used == 0)

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input",
    "Memory held by requests that wait for their response (a JoinGroup for other members) counts towards "
    "`queued.max.request.bytes`: on one connection and in total it is at most the limit, the frame that "
    "exceeded it and one more; small requests continue",
)
def test_a_client_that_goes_away_leaves_nothing_charged(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, **SETTINGS) as (broker, connect):
            await broker.groups.ensure_topic()
            client = await connect()
            for number in range(2):
                join(client, number)
            await until(lambda: waiting(broker) == 2)
            client.writer.transport.abort()
            await until(lambda: not broker.server.connections)
            await until(lambda: broker.server.budget.used == 0)

    asyncio.run(main())


@pytest.mark.promise(
    "hostile input",
    "Memory held by requests that wait for their response (a JoinGroup for other members) counts towards "
    "`queued.max.request.bytes`: on one connection and in total it is at most the limit, the frame that "
    "exceeded it and one more; small requests continue",
)
def test_small_requests_go_on_while_the_budget_is_spent(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, **SETTINGS) as (broker, connect):
            await broker.groups.ensure_topic()
            client = await connect()
            for number in range(4):
                join(client, number)
            await until(lambda: broker.server.budget.spent)
            before = waiting(broker)
            client.send(ApiKey.METADATA, 8, metadata(), 99)
            await until(lambda: waiting(broker) == before + 1)  # answered, behind the others

    asyncio.run(main())


class Taker:
    def __init__(self) -> None:
        self.grants = 0

    def granted(self) -> None:
        self.grants += 1


@pytest.mark.promise(
    "hostile input",
    "Memory held by requests that wait for their response (a JoinGroup for other members) counts towards "
    "`queued.max.request.bytes`: on one connection and in total it is at most the limit, the frame that "
    "exceeded it and one more; small requests continue",
)
def test_the_overdraft_lasts_until_the_request_that_holds_the_frame_is_answered() -> None:
    budget, first, second, request = Budget(10), Taker(), Taker(), object()
    budget.charge(10)
    assert budget.request(first)
    assert not budget.request(second)
    budget.hand_on(first, request)
    budget.finished(first)
    assert second.grants == 0
    budget.finished(request)
    assert second.grants == 1


@pytest.mark.promise(
    "hostile input",
    "Memory held by requests that wait for their response (a JoinGroup for other members) counts towards "
    "`queued.max.request.bytes`: on one connection and in total it is at most the limit, the frame that "
    "exceeded it and one more; small requests continue",
)
def test_who_waits_for_room_gets_no_overdraft() -> None:
    budget, taker = Budget(10), Taker()
    budget.charge(12)
    budget.await_room(taker)
    budget.release(1)
    assert taker.grants == 0
    budget.release(2)
    assert taker.grants == 1
    budget.await_room(taker)
    budget.forget(taker)
    budget.release(9)
    assert taker.grants == 1
