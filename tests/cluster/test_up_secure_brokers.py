"""`penstock up --secure --brokers 2`: brokers that log in to each other, a ZooKeeper that only they use."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.handlers.threading import KazooTimeoutError

from tests.clients.secure_clients import SECURE_CLIENTS, Login
from tests.clients.secure_up import SecureUp, answer
from tests.cluster.harness import PATIENCE, wait_until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureUp]:
    # Sessions that a busy machine does not end.
    running = SecureUp(
        tmp_path_factory.mktemp("secure"), "--brokers", "2", "--set", "zookeeper.session.timeout.ms=20000"
    )
    yield running
    running.stop()


@pytest.mark.promise("access", "A secured cluster survives the death of a broker")
def test_records_are_replicated_and_survive_a_broker_that_dies(up: SecureUp) -> None:
    admin = AdminClient(up.client)
    admin.create_topics([NewTopic("kept", 2, 2)])["kept"].result(PATIENCE)
    producer = Producer({**up.client, "acks": "all"})
    errors: list[object] = []
    for number in range(200):
        if number == 100:
            producer.flush(PATIENCE)
            os.kill(up.ready["brokers"][0]["pid"], signal.SIGKILL)
        producer.produce("kept", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE) == 0
    assert errors == [None] * 200

    def in_sync() -> bool:
        partitions = admin.list_topics("kept", timeout=PATIENCE).topics["kept"].partitions.values()
        return len(partitions) == 2 and all(len(one.isrs) == 2 for one in partitions)

    wait_until("both brokers are in sync again", in_sync)


def test_every_broker_takes_the_login_and_the_other_client_does_too(up: SecureUp) -> None:
    config = up.client
    for broker in json.loads((up.directory / "ready.json").read_text())["brokers"]:
        address = f"{broker['host']}:{broker['port']}"
        assert AdminClient({**config, "bootstrap.servers": address}).list_topics(timeout=PATIENCE).brokers
    login = Login(
        "SASL_SSL",
        Path(up.ready["ca"]),
        mechanism="SCRAM-SHA-512",
        user=config["sasl.username"],
        password=config["sasl.password"],
    )
    admin = AdminClient(config)
    admin.create_topics([NewTopic("python", 1, 2)])["python"].result(PATIENCE)
    assert SECURE_CLIENTS["kafka-python"](config["bootstrap.servers"], "python", login)


def zookeeper(up: SecureUp, timeout: float = PATIENCE, **options: Any) -> KazooClient:
    client = KazooClient(up.ready["zookeeper"], **options)
    try:
        client.start(timeout=timeout)
    except KazooTimeoutError:
        client.close()
        raise
    return client


@pytest.mark.promise(
    "access",
    "With `penstock up --secure`, no port serves anything without a login: brokers, registry, Connect, "
    "ZooKeeper",
)
def test_zookeeper_serves_only_who_has_a_certificate_of_its_own_and_shows_nodes_to_brokers_alone(
    up: SecureUp,
) -> None:
    host, port = up.ready["zookeeper"].split(":")
    for word in (b"srvr", b"ruok", b"mntr"):
        assert answer((host, int(port)), word)[:1] in (b"", b"\x15")
    secure = up.data / "secure"
    ca, own = str(secure / "zookeeper" / "ca.pem"), str(secure / "zookeeper" / "zookeeper.pem")
    client = str(secure / "server.pem")  # of the other authority, as certificates of clients are
    for options in (
        {},
        {"use_ssl": True, "ca": ca},
        {"use_ssl": True, "ca": ca, "certfile": client, "keyfile": client},
    ):
        with pytest.raises(KazooTimeoutError):
            zookeeper(up, timeout=4, connection_retry={"max_tries": 3}, **options)
    insider = zookeeper(up, use_ssl=True, ca=ca, certfile=own, keyfile=own)
    try:
        with pytest.raises(NoAuthError):
            insider.get_children("/brokers")
        with pytest.raises(NoAuthError):
            insider.create("/brokers/x", b"")
        with pytest.raises(NoAuthError):
            insider.delete("/controller")  # who may change the root may do that
        with pytest.raises(NoAuthError):
            insider.create("/mine", b"")
    finally:
        insider.stop()
        insider.close()


@pytest.mark.promise(
    "access",
    "With `penstock up --secure`, only the owner can read the files, and no secret is in a process "
    "argument or a log",
)
def test_no_secret_is_an_argument_of_a_process_or_in_a_log(up: SecureUp) -> None:
    passwords = (up.data / "secure" / "passwords.properties").read_text().splitlines()
    secrets = [line.split("=", 1)[1].encode() for line in passwords]
    said = [up.log.read_bytes(), (up.data / "zookeeper" / "zookeeper.log").read_bytes()]
    for pid in up.processes():
        said += [Path(f"/proc/{pid}/cmdline").read_bytes(), Path(f"/proc/{pid}/environ").read_bytes()]
    assert len(secrets) == 6
    for secret in secrets:
        assert not any(secret in each for each in said)
