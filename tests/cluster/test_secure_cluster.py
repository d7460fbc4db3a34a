"""Three brokers, all SASL_SSL, to clients and to each other, with a ZooKeeper that only they can use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from tests.certificates import Authority
from tests.cluster.harness import PATIENCE, Cluster, running, wait_until

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
BROKER_PASSWORD, USER_PASSWORD = "between-brokers", "wonderland"
ZOOKEEPER_AUTH = "penstock:zoo-secret"


def settings(directory: Path, authority: Authority) -> dict[str, str]:
    certificate, key = authority.issue("127.0.0.1")
    (directory / "broker.pem").write_text(key + certificate)
    (directory / "ca.pem").write_text(authority.pem)
    login = f'{MODULE} username="broker" password="{BROKER_PASSWORD}";'
    return {
        "listener.security.protocol.map": "CLIENTS:SASL_SSL,INTERNAL:SASL_SSL",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "ssl.truststore.location": str(directory / "ca.pem"),
        "listener.name.internal.ssl.client.auth": "required",
        "listener.name.internal.connections.max.reauth.ms": "3000",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.internal.scram-sha-256.sasl.jaas.config": login,
        "penstock.zookeeper.auth": ZOOKEEPER_AUTH,
    }


def config(directory: Path, user: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": str(directory / "ca.pem"),
    }


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("secure")
    given = settings(directory, Authority())
    admin = config(directory, "broker", BROKER_PASSWORD)
    with running(directory, settings=given, client_listener="CLIENTS", client_config=admin) as cluster:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion("alice", info, USER_PASSWORD.encode())
        cluster.admin.alter_user_scram_credentials([change])["alice"].result(30)
        yield cluster


@pytest.fixture
def cluster(secure: Cluster) -> Cluster:
    secure.mend()
    return secure


def as_alice(cluster: Cluster, **more: object) -> dict[str, object]:
    own = config(cluster.directory, "alice", USER_PASSWORD)
    return {"bootstrap.servers": cluster.bootstrap, "log_level": 0, **own, **more}


def test_what_is_acknowledged_survives_the_leader(cluster: Cluster) -> None:
    cluster.create_topic("kept", 1, 3)
    cluster.wait_in_sync("kept")
    producer = Producer(as_alice(cluster, acks="all", **{"enable.idempotence": True}))
    sent = [f"{number}".encode() for number in range(300)]
    acknowledged: list[object] = []
    for number, value in enumerate(sent):
        if number == 150:
            producer.flush(PATIENCE)
            cluster.leader("kept").kill()
        producer.produce("kept", value, on_delivery=lambda error, _: acknowledged.append(error))
    assert producer.flush(PATIENCE) == 0
    assert acknowledged == [None] * len(sent)
    consumer = Consumer(as_alice(cluster, **{"group.id": "g", "auto.offset.reset": "earliest"}))
    consumer.subscribe(["kept"])
    got: list[bytes] = []

    def read() -> bool:
        message = consumer.poll(1)
        if message is not None and not message.error():
            got.append(message.value())
        return len(got) >= len(sent)

    wait_until("all is read", read)
    consumer.close()
    assert got == sent
    cluster.mend()  # also the broker that was killed logs in again and catches up


def test_without_the_password_nobody_is_a_client_or_a_replica(cluster: Cluster) -> None:
    for wrong in (
        config(cluster.directory, "alice", "guess"),
        {"security.protocol": "SSL", "ssl.ca.location": str(cluster.directory / "ca.pem")},
        {"security.protocol": "PLAINTEXT"},
    ):
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **wrong})
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=3)
    # alice has a login, and no certificate of a broker
    node = cluster.nodes[1]
    inside = {**as_alice(cluster), "bootstrap.servers": f"127.0.0.1:{node.peers.port}"}
    with pytest.raises(KafkaException):
        AdminClient(inside).list_topics(timeout=3)


def test_who_reaches_zookeeper_without_the_password_can_do_nothing_there(cluster: Cluster) -> None:
    client = KazooClient(f"127.0.0.1:{cluster.zookeeper_port}")
    client.start(timeout=PATIENCE)
    try:
        for attempt in (
            lambda: client.create("/test/cluster/mine", b"{}"),
            lambda: client.get("/test/cluster/controller"),
            lambda: client.set("/test/cluster/controller", b"{}"),
            lambda: client.get_children("/test/credentials"),
            lambda: client.create("/test/other", b"{}"),
            lambda: client.delete("/test/cluster/controller"),
        ):
            with pytest.raises(NoAuthError):
                attempt()
        client.add_auth("digest", ZOOKEEPER_AUTH)
        assert client.get("/test/cluster/controller")[0]
    finally:
        client.stop()
        client.close()
