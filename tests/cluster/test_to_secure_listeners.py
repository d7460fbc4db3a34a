"""A cluster in plain text becomes one of SASL_SSL alone by rolling restarts, while clients write and read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from penstock.testing.ports import free_port
from tests.certificates import Authority
from tests.cluster.harness import PATIENCE, Cluster, running, wait_until

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
TOPIC = "moving"


class Clients:
    """A producer that writes numbers one after the other, a consumer that reads them, and their errors."""

    def __init__(self, first: int, **config: Any) -> None:
        self.next = self._first = first
        self.failed: list[str] = []
        self.read: list[int] = []
        self._ended = threading.Event()
        fatal = {"error_cb": self._error, "log_level": 0}
        self._producer = Producer(
            {**config, **fatal, "acks": "all", "enable.idempotence": True, "linger.ms": 5}
        )
        self._consumer = Consumer(
            {**config, **fatal, "group.id": f"from-{first}", "auto.offset.reset": "earliest"}
        )
        self._consumer.subscribe([TOPIC])
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._write, self._take)]
        for thread in self._threads:
            thread.start()

    def _error(self, error: Any) -> None:
        # A broker that restarts closes connections, which librdkafka reports and mends by itself. One that
        # was closed between a handshake and its answer it calls a failed login, with this reason.
        closed = "Broker transport failure" in error.str()
        if error.fatal() or (error.name() in ("_AUTHENTICATION", "_SSL") and not closed):
            self.failed.append(str(error))

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self.failed.append(str(error))

    def _write(self) -> None:
        while not self._ended.is_set():
            self._producer.produce(TOPIC, str(self.next).encode(), partition=0, on_delivery=self._delivered)
            self.next += 1
            self._producer.poll(0.005)

    def _take(self) -> None:
        while not self._ended.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.read.append(int(message.value()))
            elif message is not None and not message.error().retriable():
                self.failed.append(str(message.error()))

    def passed(self) -> Callable[[], bool]:
        """Whether what is written from now on has been read, too."""
        wanted = self.next + 50
        return lambda: bool(self.read) and self.read[-1] >= wanted

    def stop(self) -> int:
        """All is acknowledged; the number after the last."""
        self._ended.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        assert self._producer.flush(PATIENCE) == 0
        self._consumer.close()
        assert self.failed == []
        return self.next


def roll(cluster: Cluster, clients: Clients, change: Callable[[int], dict[str, str]]) -> None:
    """Each broker in turn is restarted with other settings, when all replicas are in sync."""
    for number, node in cluster.nodes.items():
        node.change(change(number))
        assert node.stop() == 0
        node.start()
        cluster.wait_in_sync(TOPIC)
        wait_until("records pass through", clients.passed())
        assert clients.failed == []


@pytest.mark.promise(
    "protocol",
    "Rolling restarts switch a cluster from PLAINTEXT to SASL_SSL without an error for its clients",
)
@pytest.mark.timeout(420)
def test_a_cluster_becomes_secure_without_an_error_for_its_clients(tmp_path: Path) -> None:
    authority = Authority()
    certificate, key = authority.issue("127.0.0.1")
    (tmp_path / "broker.pem").write_text(key + certificate)
    ca = tmp_path / "ca.pem"
    ca.write_text(authority.pem)
    ports = {number: free_port() for number in (1, 2, 3)}
    safe = {number: f"SAFE://127.0.0.1:{port}" for number, port in ports.items()}
    protocols = "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,SAFE:SASL_SSL"
    given = {"listener.security.protocol.map": protocols, "inter.broker.listener.name": "INTERNAL"}
    with running(tmp_path, settings=given) as cluster:
        cluster.create_topic(TOPIC, 1, 3, **{"min.insync.replicas": "2"})
        cluster.wait_in_sync(TOPIC)
        old = {
            number: (node.value("listeners"), node.value("advertised.listeners"))
            for number, node in cluster.nodes.items()
        }
        clients = Clients(0, **{"bootstrap.servers": cluster.bootstrap})
        login = {
            "ssl.keystore.location": str(tmp_path / "broker.pem"),
            "ssl.truststore.location": str(ca),
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.safe.scram-sha-512.sasl.jaas.config": (
                f'{MODULE} username="broker" password="between-brokers";'
            ),
        }
        # The new listener beside the old ones, then for the brokers themselves.
        roll(
            cluster,
            clients,
            lambda number: {
                "listeners": f"{old[number][0]},{safe[number]}",
                "advertised.listeners": f"{old[number][1]},{safe[number]}",
                **login,
            },
        )
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion("alice", info, b"wonderland")
        cluster.admin.alter_user_scram_credentials([change])["alice"].result(30)
        roll(cluster, clients, lambda _: {"inter.broker.listener.name": "SAFE"})
        # The clients move.
        secure = {
            "bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in ports.values()),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": "wonderland",
            "ssl.ca.location": str(ca),
        }
        first = clients.stop()
        clients = Clients(first, **secure)
        cluster.use(secure)
        roll(
            cluster, clients, lambda number: {"listeners": safe[number], "advertised.listeners": safe[number]}
        )
        wait_until("the reader has all", lambda: len(clients.read) > first or clients.failed)
        last = clients.stop()
        # Once each and in order, over both.
        assert clients.read == list(range(len(clients.read))) and len(clients.read) > first
        assert last > first
        for node in cluster.nodes.values():
            plain = AdminClient({"bootstrap.servers": f"127.0.0.1:{node.clients.port}", "log_level": 0})
            with pytest.raises(KafkaException):
                plain.list_topics(timeout=1)
