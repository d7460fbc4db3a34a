"""Three brokers, all SASL_SSL, to clients and to each other, with a ZooKeeper that only they can use."""

from __future__ import annotations

import base64
import socket
import ssl
import struct
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

from penstock.credentials.scram import ClientScram
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message, decode_response, encode_request, response_header_version
from tests.certificates import Authority
from tests.cluster.harness import PATIENCE, Cluster, Node, running, wait_until

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
        "delegation.token.secret.key": "token-secret",
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


@pytest.mark.promise(
    "protocol",
    "A cluster with SASL_SSL between brokers keeps acknowledged records when a leader is killed; clients "
    "and replicas must present a password and a certificate",
)
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


@pytest.mark.promise(
    "protocol",
    "A cluster with SASL_SSL between brokers keeps acknowledged records when a leader is killed; clients "
    "and replicas must present a password and a certificate",
)
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


@pytest.mark.promise(
    "protocol",
    "A ZooKeeper client without the brokers' password can neither read nor change the brokers' nodes",
)
def test_who_reaches_zookeeper_without_the_password_can_do_nothing_there(cluster: Cluster) -> None:
    client = KazooClient(f"127.0.0.1:{cluster.zookeeper_port}")
    client.start(timeout=PATIENCE)
    try:
        for attempt in (
            lambda: client.create("/test/cluster/mine", b"{}"),
            lambda: client.get("/test/controller"),
            lambda: client.set("/test/controller", b"{}"),
            lambda: client.get_children("/test/credentials"),
            lambda: client.create("/test/other", b"{}"),
            lambda: client.delete("/test/controller"),
        ):
            with pytest.raises(NoAuthError):
                attempt()
        client.add_auth("digest", ZOOKEEPER_AUTH)
        assert client.get("/test/controller")[0]
    finally:
        client.stop()
        client.close()


class Session:
    """A connection to one broker that has logged in; `code` is the error of that."""

    def __init__(self, node: Node, ca: Path, user: str, password: str, *, is_token: bool = False) -> None:
        plain = socket.create_connection(("127.0.0.1", node.clients.port), timeout=PATIENCE)
        self._socket = ssl.create_default_context(cafile=ca).wrap_socket(plain, server_hostname="127.0.0.1")
        mechanism = "SCRAM-SHA-256"
        self.request(ApiKey.SASL_HANDSHAKE, 1, Message(mechanism=mechanism))
        side = ClientScram(mechanism, user, password, "abc", is_token=is_token)
        first = self.request(ApiKey.SASL_AUTHENTICATE, 2, Message(auth_bytes=side.first()))
        proof = Message(auth_bytes=side.proof(bytes(first.auth_bytes)))
        self.code: int = self.request(ApiKey.SASL_AUTHENTICATE, 2, proof).error_code

    def request(self, api: ApiKey, version: int, message: Message) -> Message:
        flexible = b"\0" if response_header_version(api, version) else b""
        body = struct.pack(">hhih", api, version, 1, -1) + flexible + encode_request(api, version, message)
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", self._exactly(4))
        return decode_response(api, version, self._exactly(size), 5 if flexible else 4)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            assert part, "the connection is closed"
            data += part
        return data

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


@pytest.mark.promise(
    "access",
    "A delegation token logs in its owner over SCRAM on all brokers until it expires; other users cannot "
    "change it, and a client that logged in with a token cannot create one",
)
def test_a_delegation_token_made_at_one_broker_logs_in_at_all_and_expired_at_another_at_none(
    cluster: Cluster,
) -> None:
    ca, nodes = cluster.directory / "ca.pem", list(cluster.nodes.values())
    with Session(nodes[0], ca, "alice", USER_PASSWORD) as session:
        asked = Message(owner_principal_type=None, owner_principal_name=None, renewers=[], max_lifetime_ms=-1)
        token = session.request(ApiKey.CREATE_DELEGATION_TOKEN, 3, asked)
    assert (token.error_code, token.principal_name) == (0, "alice")
    hmac = bytes(token.hmac)

    def codes() -> list[int]:
        found = []
        for node in nodes:
            password = base64.b64encode(hmac).decode()
            with Session(node, ca, token.token_id, password, is_token=True) as login:
                found.append(login.code)
        return found

    wait_until("the token logs in at all brokers", lambda: codes() == [0, 0, 0])
    with Session(nodes[1], ca, "alice", USER_PASSWORD) as session:
        ended = Message(hmac=hmac, expiry_time_period_ms=-1)
        assert session.request(ApiKey.EXPIRE_DELEGATION_TOKEN, 2, ended).error_code == 0
    wait_until("the token logs in nowhere", lambda: codes() == [58, 58, 58])
