"""Who gets a place at a broker where max.connections are taken: brokers and known clients, not strangers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.broker.broker import Broker
from penstock.broker.net.context import RequestContext
from penstock.broker.net.places import Places
from penstock.broker.net.server import Server
from penstock.broker.security.quotas.quotas import ConnectionQuotas
from penstock.clock import ManualClock
from penstock.config import BrokerConfig
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from tests.unit.test_acl_table import As
from tests.unit.test_broker_connections import Client, metadata, until_open
from tests.unit.test_quotas_flood import steps_of
from tests.unit.test_sasl_server import PLAIN, plain


class Connection:
    def __init__(self, address: str = "10.0.0.1", listener: str = "CLIENTS", *, known: bool = False) -> None:
        self.address, self.listener_name, self.is_authenticated = address, listener, known
        self.idle, self.last_active = True, 0.0
        self.reason: str | None = None

    def close(self, reason: str | None) -> None:
        self.reason = reason or ""


class Gate:
    """Counts the places as the server does: a connection that is closed is gone."""

    def __init__(self, most: int, protected: str | None = "BROKERS") -> None:
        self.places = Places(most, protected)
        self.open: list[Connection] = []

    def enter(self, connection: Connection) -> bool:
        self.open.append(connection)
        stays = self.places.admits(connection, len(self.open))
        if not stays:
            connection.close("full")
        for one in [one for one in self.open if one.reason is not None]:
            self.open.remove(one)
            self.places.lost(one)
        assert len(self.open) <= self.places.most
        return stays


@pytest.mark.promise(
    "access",
    "Clients without a login cannot use up all connections: a flood of logins from one address ends no "
    "login from another, and a new broker connection replaces that of a client that is idle or not "
    "logged in",
)
def test_strangers_hold_at_most_half_of_the_places_and_the_oldest_gives_way() -> None:
    gate = Gate(10)
    strangers = [Connection() for _ in range(20)]
    assert all(gate.enter(one) for one in strangers)
    assert gate.open == strangers[-5:]


def test_a_flood_from_one_address_does_not_end_the_login_of_another() -> None:
    gate = Gate(10)
    known = [Connection("10.0.0.2"), Connection("10.0.0.3")]
    for one in known:
        gate.enter(one)
    for _ in range(100):
        assert gate.enter(Connection("10.0.0.1"))
    late = Connection("10.0.0.4")
    assert gate.enter(late)
    for _ in range(100):
        assert gate.enter(Connection("10.0.0.1"))
    assert [one.reason for one in (*known, late)] == [None] * 3


def test_who_has_logged_in_does_not_give_way_to_strangers() -> None:
    gate = Gate(10)
    known = [Connection() for _ in range(9)]
    for one in known:
        assert gate.enter(one)
        one.is_authenticated = True
        gate.places.authenticated(one)
    first, second = Connection(), Connection()
    assert gate.enter(first) and gate.enter(second)
    assert first.reason is not None and second.reason is None
    second.is_authenticated = True
    gate.places.authenticated(second)
    assert not gate.enter(Connection()), "all places are taken by those who have logged in"
    assert all(one.reason is None for one in known)


def test_a_broker_gets_the_place_of_the_oldest_stranger_else_of_the_idlest_client() -> None:
    gate = Gate(4)
    stranger = Connection()
    clients = [Connection(known=True) for _ in range(3)]
    for one in (stranger, *clients):
        assert gate.enter(one)
    for one, last_active in zip(clients, (3.0, 1.0, 2.0), strict=True):
        one.last_active = last_active
    clients[1].idle = False
    assert not gate.enter(Connection(known=True)), "a client on an open listener"
    assert gate.enter(Connection(listener="BROKERS", known=True))
    assert stranger.reason is not None
    assert gate.enter(Connection(listener="BROKERS", known=True))
    assert [one.reason is None for one in clients] == [True, True, False]
    assert gate.enter(Connection(listener="BROKERS", known=True))
    assert gate.enter(Connection(listener="BROKERS", known=True))
    assert not gate.enter(Connection(listener="BROKERS", known=True)), "all are brokers"


def test_strangers_on_the_brokers_listener_take_few_places_from_clients() -> None:
    gate = Gate(8)
    clients = [Connection(known=True) for _ in range(8)]
    for one in clients:
        gate.enter(one)
    for _ in range(100):
        gate.enter(Connection(listener="BROKERS"))
    assert sum(one.reason is None for one in clients) == 6


def test_each_connection_of_a_flood_costs_the_same_few_steps() -> None:
    gate = Places(20_000, "BROKERS")
    for number in range(10_000):
        gate.admits(Connection(known=True), number)
    for number in range(30_000):
        one = Connection(f"10.0.{number // 250}.{number % 250}")
        if number % 1000 == 0:
            assert steps_of(lambda one=one: gate.admits(one, 20_001)) < 400  # type: ignore[misc]
            broker = Connection(listener="BROKERS", known=True)
            assert steps_of(lambda one=broker: gate.admits(one, 20_001)) < 400  # type: ignore[misc]
        else:
            gate.admits(one, 20_001)


def test_the_connections_of_brokers_that_are_remembered_are_bounded() -> None:
    server = Server.__new__(Server)
    server._newest = {}

    def late(client: str, connection: int) -> bool:
        return server.is_replaced(RequestContext(27, 2, 0, client, "p:1", connection))

    assert not late("broker-1-markers", 5)
    for number in range(10_000):
        late(f"broker-{number}-x", number)
        if number % 100 == 0:
            assert late("broker-1-markers", 4), "it is seen again and again"
    assert len(server._newest) <= 1000


def test_brokers_do_not_wait_where_connections_come_too_fast() -> None:
    quotas = ConnectionQuotas(lambda: 0.0)
    quotas.most_new = 1
    assert quotas.opened("10.0.0.1")[1] == 0
    assert [quotas.opened("10.0.0.1")[1] > 0 for _ in range(20)][-1]
    assert quotas.opened("10.0.0.2", is_protected=True) == (True, 0)


# -- at a broker


async def started(directory: Path, given: dict[str, str], **settings: str) -> Broker:
    values = {"log.dirs": str(directory / "data"), "connection.failed.authentication.delay.ms": "1", **given}
    values |= {name.replace("_", "."): value for name, value in settings.items()}
    broker = Broker(BrokerConfig.parse(values), ManualClock())
    await broker.start()
    return broker


async def connected(broker: Broker, listener: str, local: str = "127.0.0.1") -> Client:
    (port,) = (port for name, _, port in broker.controller.listeners if name == listener)
    return Client(*await asyncio.open_connection("127.0.0.1", port, local_addr=(local, 0)))


async def served(client: Client) -> bool:
    try:
        await client.request(ApiKey.METADATA, 8, metadata())
    except (asyncio.IncompleteReadError, OSError):
        return False
    return True


def test_a_known_client_logs_in_while_silent_strangers_flood_the_broker(tmp_path: Path) -> None:
    async def main() -> None:
        broker = await started(
            tmp_path, PLAIN, listeners="SASL_PLAINTEXT://127.0.0.1:0", max_connections="10"
        )
        clients: list[Client] = []

        async def strangers(count: int) -> None:
            for _ in range(count):
                before = broker.server._accepted
                clients.append(await connected(broker, "SASL_PLAINTEXT"))
                while broker.server._accepted == before:
                    await asyncio.sleep(0)

        try:
            await strangers(30)
            known = await connected(broker, "SASL_PLAINTEXT", "127.0.0.2")
            await strangers(30)
            assert (await plain(known, "alice", "wonder")).error_code == 0
            await strangers(30)
            assert await served(known)
            await until_open(broker, 6)  # the known one, and half of all places
            clients.append(known)
        finally:
            for client in clients:
                client.writer.close()
            await broker.stop()

    asyncio.run(main())


@pytest.mark.parametrize("clients_protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_a_broker_connects_where_clients_hold_all_places(tmp_path: Path, clients_protocol: str) -> None:
    async def main() -> None:
        settings = {name.replace("sasl_plaintext", "clients"): value for name, value in PLAIN.items()}
        broker = await started(
            tmp_path, settings, listeners="CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0", max_connections="4",
            listener_security_protocol_map=f"CLIENTS:{clients_protocol},BROKERS:PLAINTEXT",
            inter_broker_listener_name="BROKERS",
        )  # fmt: skip
        clients: list[Client] = []
        try:
            for _ in range(4):
                clients.append(client := await connected(broker, "CLIENTS"))
                if clients_protocol == "PLAINTEXT":
                    assert await served(client)
                else:
                    assert (await plain(client, "alice", "wonder")).error_code == 0
                broker.clock.advance(1000)  # type: ignore[attr-defined]
            await until_open(broker, 4)
            assert await served(clients[0])
            clients.append(peer := await connected(broker, "BROKERS"))
            assert await served(peer)
            assert await clients[1].closed(), "the one that was silent for longest"
            await until_open(broker, 4)
            for client in (clients[0], clients[2], clients[3]):
                assert await served(client)
        finally:
            for client in clients:
                client.writer.close()
            await broker.stop()

    asyncio.run(main())


def test_a_client_that_calls_itself_a_broker_ends_no_connection(tmp_path: Path) -> None:
    async def main() -> None:
        broker = await started(tmp_path, {}, listeners="PLAINTEXT://127.0.0.1:0")
        made = [await connected(broker, "PLAINTEXT") for _ in range(2)]
        clients = [As(client.reader, client.writer) for client in made]
        try:
            for client in (*clients, *clients):
                none = Message(markers=[])
                assert not (
                    await client.request("broker-1-markers", ApiKey.WRITE_TXN_MARKERS, 1, none)
                ).markers
        finally:
            for one in made:
                one.writer.close()
            await broker.stop()

    asyncio.run(main())
