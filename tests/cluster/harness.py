"""A cluster of real processes for one test: ZooKeeper, brokers, and a link for each way they talk.

Clients reach a broker by one link, the other brokers by a second, and it reaches ZooKeeper by a third, so
that each can be cut alone. Ports stay the same over restarts.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic

from penstock.ensemble import Member, ServerSpec, ZooKeeperProcess
from penstock.testing.ports import free_port
from tests.cluster import strained_broker
from tests.cluster.proxy import Links

PATIENCE = float(os.environ.get("PENSTOCK_PATIENCE", "60"))
"""How long something that must happen may take on a busy machine."""

SESSION_MS = 3000

_SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "zookeeper.connection.timeout.ms": "30000",
    "replica.lag.time.max.ms": "4000",
    "replica.fetch.backoff.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "log.flush.scheduler.interval.ms": "1000",
}


def wait_until(what: str, condition: Callable[[], object], patience: float = PATIENCE) -> None:
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"after {patience:.0f} s still not so: {what}")
        time.sleep(0.05)


class Node:
    """One broker: its process, its directory, its links."""

    def __init__(
        self, cluster: Cluster, broker_id: int, settings: Mapping[str, str], name: str | None = None
    ) -> None:
        self.id = broker_id
        self.directory = cluster.directory / (name or f"broker-{broker_id}")
        self.log_file = self.directory.with_suffix(".log")
        self._ready = self.directory.with_suffix(".ready")
        self._strain = self.directory.with_suffix(".strain")
        self._module = cluster.module
        self._settings = dict(settings)
        self._process: subprocess.Popen[bytes] | None = None
        port, peer_port = free_port(), free_port()
        listener = cluster.client_listener
        self.clients = cluster.links.to(port)
        self.peers = cluster.links.to(peer_port)
        self.zookeeper = cluster.links.to(cluster.zookeeper_port)
        self._values = {
            "node.id": str(broker_id),
            "broker.rack": f"rack-{broker_id}",
            "log.dirs": str(self.directory),
            "listeners": f"{listener}://127.0.0.1:{port},INTERNAL://127.0.0.1:{peer_port}",
            "advertised.listeners": f"{listener}://127.0.0.1:{self.clients.port},"
            f"INTERNAL://127.0.0.1:{self.peers.port}",
            "zookeeper.connect": f"127.0.0.1:{self.zookeeper.port}/test",
        }

    def change(self, values: Mapping[str, str]) -> None:
        """Settings from the next start on, listeners included."""
        self._values |= values

    def value(self, name: str) -> str:
        return self._values[name]

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *, wait: bool = True, **environment: str) -> None:
        assert not self.is_running
        self._ready.unlink(missing_ok=True)
        values = {**_SETTINGS, **self._settings, **self._values}
        command = [sys.executable, "-m", self._module, "--ready-file", str(self._ready)]
        for name, value in values.items():
            command += ["--set", f"{name}={value}"]
        environment = {strained_broker.VARIABLE: str(self._strain), **environment}
        with self.log_file.open("ab") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, **environment}
            )
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        def ready() -> bool:
            assert self.is_running, f"broker {self.id} ended:\n{self.tail()}"
            return self._ready.exists()

        wait_until(f"broker {self.id} is ready", ready)

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9, also of a stopped process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def strain(self, **what: float) -> None:
        """Its clock jumps, its disk is slow or full (`strained_broker.Strain`), until the next call."""
        if not what and not self._strain.exists():
            return
        temporary = self._strain.with_suffix(".new")
        temporary.write_text(json.dumps(what))
        temporary.replace(self._strain)

    def stop(self) -> int:
        """SIGTERM, and wait: an orderly shutdown."""
        self.signal(signal.SIGTERM)
        assert self._process is not None
        return self._process.wait(PATIENCE)

    def restart(self) -> None:
        self.stop()
        self.start()

    def tail(self, lines: int = 30) -> str:
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])


class Cluster:
    def __init__(
        self,
        directory: Path,
        *,
        brokers: int,
        ensemble: int,
        settings: Mapping[str, str],
        strained: bool,
        client_listener: str = "PLAINTEXT",
        client_config: Mapping[str, str] | None = None,
    ) -> None:
        """`client_listener` is the name of the clients' listener, `client_config` what they need for it."""
        self.client_listener = client_listener
        self.client_config = dict(client_config or {})
        self.directory = directory
        self.module = strained_broker.__name__ if strained else "penstock.broker"
        self.links = Links()
        self._settings = settings
        self._admin: AdminClient | None = None
        self.zookeepers = _servers(directory, ensemble)
        self.nodes: dict[int, Node] = {}
        try:
            self._start(brokers)
        except BaseException:
            self.close()
            raise

    def _start(self, brokers: int) -> None:
        for server in self.zookeepers:
            server.start(wait=False)
        for server in self.zookeepers:
            server.wait_until_serving()
        for number in range(1, brokers + 1):
            self.nodes[number] = self.add(number, start=False)
        for node in self.nodes.values():
            node.start(wait=False)
        for node in self.nodes.values():
            node.wait_until_ready()
        wait_until("all brokers are known", lambda: len(self.metadata().brokers) == brokers)

    @property
    def zookeeper_port(self) -> int:
        # Each broker's link leads to one member; which one does not matter while a quorum is there.
        return self.zookeepers[0].spec.port

    def add(self, broker_id: int, *, start: bool = True, **settings: str) -> Node:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        node = Node(self, broker_id, {**self._settings, **named})
        self.nodes[broker_id] = node
        if start:
            node.start()
        return node

    def use(self, client_config: Mapping[str, str]) -> None:
        """What this harness itself is a client with from now on, `bootstrap.servers` included."""
        self.client_config = dict(client_config)
        self._admin = None

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{node.clients.port}" for node in self.nodes.values())

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(
                {
                    "bootstrap.servers": self.bootstrap,
                    "log_level": 0,
                    "socket.timeout.ms": 10000,
                    **self.client_config,
                }
            )
        return self._admin

    def metadata(self, topic: str | None = None) -> ClusterMetadata:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return self.admin.list_topics(topic, timeout=5)
            except KafkaException:
                if time.monotonic() > end:
                    raise

    def create_topic(self, name: str, partitions: int = 3, replicas: int = 3, **config: str) -> None:
        named = {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, partitions, replicas, config=named)
        for future in self.admin.create_topics([topic], request_timeout=30).values():
            future.result()
        wait_until(f"{name} is led", lambda: all(leader > 0 for leader in self.leaders(name).values()))

    def leaders(self, topic: str) -> dict[int, int]:
        found = self.metadata(topic).topics[topic]
        return {number: partition.leader for number, partition in found.partitions.items()}

    def leader(self, topic: str, partition: int = 0) -> Node:
        """The broker that leads it; waits until there is one."""
        found: list[int] = []

        def led() -> bool:
            found[:] = [self.leaders(topic).get(partition, -1)]
            return found[0] > 0

        wait_until(f"{topic}-{partition} has a leader", led)
        return self.nodes[found[0]]

    def in_sync(self, topic: str) -> dict[int, set[int]]:
        found = self.metadata(topic).topics[topic]
        return {number: set(partition.isrs) for number, partition in found.partitions.items()}

    def wait_in_sync(self, topic: str, count: int = 3) -> None:
        def enough() -> bool:
            return all(len(isr) == count for isr in self.in_sync(topic).values())

        try:
            wait_until(f"{topic} has {count} replicas in sync", enough)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._told(topic)}") from None

    def _told(self, topic: str) -> str:
        """What each broker says of a topic, and what it has logged."""
        lines = []
        for node in self.nodes.values():
            address = f"127.0.0.1:{node.clients.port}"
            admin = AdminClient({"bootstrap.servers": address, "log_level": 0, **self.client_config})
            try:
                parts = admin.list_topics(topic, timeout=5).topics[topic].partitions.values()
                told = [f"{one.id}: leader {one.leader}, in sync {one.isrs}" for one in parts]
            except KafkaException as error:
                told = [str(error)]
            lines += [f"broker {node.id}: {told}", node.tail()]
        return "\n".join(lines)

    def controller(self) -> Node:
        found: list[int] = []

        def there() -> bool:
            found[:] = [self.metadata().controller_id]
            return found[0] in self.nodes

        wait_until("there is a controller", there)
        return self.nodes[found[0]]

    def mend(self) -> None:
        """Every link heals, every broker runs, every partition has all its replicas in sync."""
        for node in self.nodes.values():
            for link in (node.clients, node.peers, node.zookeeper):
                link.heal()
            node.strain()
            if node.is_running:
                node.resume()
            else:
                node.start(wait=False)
        for node in self.nodes.values():
            node.wait_until_ready()
        wait_until("all brokers are known", lambda: len(self.metadata().brokers) == len(self.nodes))
        for name in self.metadata().topics:
            found = self.metadata(name).topics[name]
            self.wait_in_sync(name, min(len(one.replicas) for one in found.partitions.values()))

    def close(self) -> None:
        for node in self.nodes.values():
            node.kill()
        for server in self.zookeepers:
            server.kill()
        self.links.close()


def _servers(directory: Path, count: int) -> list[ZooKeeperProcess]:
    if count == 1:
        return [ZooKeeperProcess(ServerSpec(directory / "zookeeper-1", free_port()))]
    members = [
        Member(number, "127.0.0.1", free_port(), free_port(), free_port()) for number in range(1, count + 1)
    ]
    return [
        ZooKeeperProcess(
            ServerSpec(directory / f"zookeeper-{one.id}", one.client_port, one.host, one.id, members)
        )
        for one in members
    ]


@contextmanager
def running(
    directory: Path,
    *,
    brokers: int = 3,
    ensemble: int = 1,
    settings: Mapping[str, str] | None = None,
    strained: bool = False,
    client_listener: str = "PLAINTEXT",
    client_config: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """With `strained`, the brokers' clocks and disks can be spoiled (`Node.strain`)."""
    cluster = Cluster(
        directory,
        brokers=brokers,
        ensemble=ensemble,
        settings=settings or {},
        strained=strained,
        client_listener=client_listener,
        client_config=client_config,
    )
    try:
        yield cluster
    finally:
        cluster.close()
