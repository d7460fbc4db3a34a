"""The store of a cluster on a real ZooKeeper: `penstock zookeeper start` as one server and as an ensemble."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, SessionExpiredError

from penstock.ensemble.server import is_serving
from penstock.errors import ConfigError
from penstock.metadata import layout
from penstock.metadata.store import BadVersion, Create, Delete, NodeExists, Op
from penstock.metadata.zookeeper import ZooKeeperStore
from penstock.metadata.zookeeper_mirror import Mirror
from penstock.testing.ports import free_port
from tests.cluster.harness import PATIENCE, wait_until

pytestmark = pytest.mark.timeout(300)


class Server:
    """`penstock zookeeper start`, as a process."""

    def __init__(self, directory: Path, *options: str, port: int = 0) -> None:
        directory.mkdir()
        self.ready_file, self.log = directory / "ready.json", directory / "out.log"
        command = [sys.executable, "-m", "penstock", "zookeeper", "start", "--data", str(directory / "data")]
        command += ["--port", str(port), "--ready-file", str(self.ready_file), *options]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def address(self) -> str:
        def ready() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return self.ready_file.exists() and bool(self.ready_file.read_text())

        wait_until("ZooKeeper serves", ready)
        found: str = json.loads(self.ready_file.read_text())["zookeeper"]
        return found

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.stop()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = Server(tmp_path_factory.mktemp("one") / "server")
    try:
        yield server.address
        assert server.stop() == 0
    finally:
        server.close()


def with_stores(address: str, work: Callable[[ZooKeeperStore, ZooKeeperStore], Awaitable[None]]) -> None:
    """Two brokers' views of a tree of their own."""

    async def run() -> None:
        hosts = f"{address}/{work.__name__}"
        one, other = ZooKeeperStore(hosts), ZooKeeperStore(hosts)
        try:
            await one.open()
            await other.open()
            await work(one, other)
        finally:
            await one.close()
            await other.close()

    asyncio.run(run())


@pytest.mark.promise("cluster", "A metadata change is atomic, also for ACLs, quotas and credentials")
@pytest.mark.parametrize("kind", ["acls", "quotas", "credentials"])
def test_acls_quotas_and_credentials_have_their_place(address: str, kind: str) -> None:
    path = f"/{kind}/user-alice"

    async def records(one: ZooKeeperStore, other: ZooKeeperStore) -> None:
        heard: asyncio.Queue[frozenset[str]] = asyncio.Queue()
        await other.watch(f"/{kind}", heard.put_nowait)
        await one.create(path, b"1")
        assert await asyncio.wait_for(heard.get(), PATIENCE) == {path}
        assert other.nodes[path] == (b"1", 0)
        assert await other.compare_and_set(path, b"2", 0) == 1
        with pytest.raises(BadVersion):
            await one.compare_and_set(path, b"3", 0)
        await one.catch_up()
        assert await one.list(f"/{kind}") == {path: (b"2", 1)}
        await one.delete(path, 1)
        await other.catch_up()
        assert path not in other.nodes

    with_stores(address, records)


@pytest.mark.promise(
    "cluster",
    "A broker that starts while ZooKeeper restarts waits for it, and does not have to be started again",
)
def test_a_connection_lost_while_the_tree_is_opened_is_waited_for(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exists, failures = KazooClient.exists, [ConnectionLoss(), SessionExpiredError()]

    def lost(self: KazooClient, *args: Any) -> Any:
        if failures:
            raise failures.pop()
        return exists(self, *args)

    walk, walks = Mirror.walk, [ConnectionLoss(), SessionExpiredError()]

    async def lost_in_a_walk(self: Mirror) -> None:
        if walks:
            raise walks.pop()
        await walk(self)

    monkeypatch.setattr(KazooClient, "exists", lost)
    monkeypatch.setattr(Mirror, "walk", lost_in_a_walk)

    async def lost_while_opened(one: ZooKeeperStore, other: ZooKeeperStore) -> None:
        await one.create("/cluster/a", b"1")
        assert not failures and not walks

    with_stores(address, lost_while_opened)


@pytest.fixture
def kazoo(address: str) -> Iterator[KazooClient]:
    client = KazooClient(address)
    client.start(timeout=PATIENCE)
    yield client
    client.stop()
    client.close()


@pytest.mark.promise(
    "cluster", "Brokers, topics and the controller have the same paths in ZooKeeper as with Kafka"
)
def test_brokers_topics_and_the_controller_have_kafkas_names(address: str, kazoo: KazooClient) -> None:
    async def names(one: ZooKeeperStore, other: ZooKeeperStore) -> None:
        heard: asyncio.Queue[frozenset[str]] = asyncio.Queue()
        await other.watch("/", heard.put_nowait)
        await one.create(layout.CONTROLLER_EPOCH, b"{}")
        assert await asyncio.wait_for(heard.get(), PATIENCE) == {"/controller_epoch"}
        await one.multi(
            [
                Create(layout.broker_path(7), b"{}", ephemeral=True),
                Create(layout.topic_path("flights"), b"{}"),
                Create(layout.CONTROLLER, b"{}", ephemeral=True),
            ]
        )
        assert kazoo.get_children("/names/brokers/ids") == ["7"]
        assert kazoo.get_children("/names/brokers/topics") == ["flights"]
        assert kazoo.exists("/names/controller").owner_session_id
        assert not kazoo.exists("/names/controller_epoch").owner_session_id
        await other.catch_up()
        assert other.nodes == one.nodes and len(one.nodes) == 4
        await one.delete(layout.CONTROLLER)
        await other.catch_up()
        assert layout.CONTROLLER not in other.nodes and layout.CONTROLLER_EPOCH in other.nodes

    with_stores(address, names)


@pytest.mark.promise(
    "cluster", "A ZooKeeper tree written by an older version is rejected with an error that names it"
)
def test_a_tree_of_an_older_version_is_rejected_by_name(address: str, kazoo: KazooClient) -> None:
    kazoo.create("/older/cluster/controller-epoch", b"{}", makepath=True)

    async def start() -> None:
        with pytest.raises(ConfigError, match=r"older Penstock \(node /cluster/controller-epoch\)"):
            await ZooKeeperStore(f"{address}/older").open()

    asyncio.run(start())
    assert kazoo.get_children("/older") == ["cluster"]


@pytest.mark.promise("cluster", "A metadata change is atomic, also for ACLs, quotas and credentials")
def test_a_change_is_made_as_a_whole_or_not_at_all_and_may_be_large(address: str) -> None:
    async def changes(one: ZooKeeperStore, other: ZooKeeperStore) -> None:
        # More than the megabyte that ZooKeeper takes by default: thousands of partitions with a long name.
        name = "n" * 249
        state = b'{"leader":1001,"leader_epoch":0,"isr":[1001,1002,1003]}'
        ops: list[Op] = [Create(layout.state_path(name, index), state) for index in range(4_000)]
        await one.multi(ops)
        assert await other.get(ops[0].path) == await other.get(ops[-1].path) == (state, 0)
        taken: list[Op] = [Delete(op.path) for op in ops]
        with pytest.raises(NodeExists):
            await other.multi([*taken[:-1], Create(ops[-1].path, b"")])
        await other.multi(taken)
        await one.catch_up()
        assert not one.nodes

    with_stores(address, changes)


@pytest.mark.promise(
    "cluster",
    "Without a ZooKeeper quorum leaders still serve produce and fetch requests, and metadata changes "
    "wait; one of three ZooKeeper servers may fail",
)
def test_a_broker_works_on_when_one_server_of_an_ensemble_of_three_dies(tmp_path: Path) -> None:
    ports = [[free_port() for _ in range(3)] for _ in range(3)]
    members = [f"{at}=127.0.0.1:{':'.join(map(str, one))}" for at, one in enumerate(ports, 1)]
    options = [word for member in members for word in ("--server", member)]
    servers = [
        Server(tmp_path / f"zookeeper-{at}", "--id", str(at), *options, port=one[2])
        for at, one in enumerate(ports, 1)
    ]
    broker = None
    try:
        hosts = ",".join(server.address for server in servers)
        ready = tmp_path / "ready"
        settings = {
            "node.id": "1",
            "zookeeper.connect": f"{hosts}/somewhere",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(tmp_path / "broker"),
        }
        words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        command = [sys.executable, "-m", "penstock", "broker", "--ready-file", str(ready), *words]
        with (tmp_path / "broker.log").open("wb") as log:
            broker = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until("the broker is ready", lambda: ready.exists() and ready.read_text())
        bootstrap = json.loads(ready.read_text())["bootstrap"]
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("before", 1, 1)])["before"].result(PATIENCE)
        assert servers[0].stop() == 0
        # The broker may have been connected to that one, and it may have led the others.
        host, _, client_port = servers[2].address.rpartition(":")
        wait_until("the others serve", lambda: is_serving(host, int(client_port)))
        admin.create_topics([NewTopic("after", 1, 1)])["after"].result(PATIENCE)
        assert set(admin.list_topics(timeout=PATIENCE).topics) >= {"before", "after"}
    finally:
        if broker is not None:
            broker.terminate()
            broker.wait(PATIENCE)
        for server in servers:
            server.close()
