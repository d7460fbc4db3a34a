"""Penstock's own client against an Apache Kafka broker: the protocol is the boundary, as Kafka speaks it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.client import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    AuthenticationFailed,
    ClientSettings,
    Cluster,
)
from penstock.client.groups import committed_metadata, list_groups
from penstock.spark.reading import read_range
from penstock.testing.ports import free_port
from tests.tools.conftest import JVM_FLAGS, KafkaTools

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
JAAS = "org.apache.kafka.common.security"


class Kafka:
    """One node that is broker and controller, with a listener of each kind."""

    def __init__(self, tools: KafkaTools, directory: Path) -> None:
        self.plaintext, self.sasl, self._controller = (free_port() for _ in range(3))
        self._log = directory / "kafka.log"
        config = directory / "server.properties"
        config.write_text(self._properties(directory / "data"))
        classpath = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{tools.libraries}/*"]
        java = ["java", *JVM_FLAGS, *classpath]
        users = [f"SCRAM-SHA-{size}=[name=alice,password=wonder]" for size in (256, 512)]
        scram = [word for user in users for word in ("--add-scram", user)]
        subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config), *scram],
            check=True,
            capture_output=True,
            timeout=120,
        )
        self._process = subprocess.Popen(
            [*java, "kafka.Kafka", str(config)], stdout=self._log.open("wb"), stderr=subprocess.STDOUT
        )

    def _properties(self, data: Path) -> str:
        lines = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.plaintext},SASL_PLAINTEXT://127.0.0.1:{self.sasl},"
            f"CONTROLLER://127.0.0.1:{self._controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{JAAS}.plain.PlainLoginModule required "
            'user_alice="wonder";',
            "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{JAAS}.scram.ScramLoginModule "
            "required;",
            "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": f"{JAAS}.scram.ScramLoginModule "
            "required;",
            "log.dirs": str(data),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        return "".join(f"{name}={value}\n" for name, value in lines.items())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def connect(self, **settings: str) -> Cluster:
        port = self.sasl if settings else self.plaintext
        address = {"bootstrap.servers": f"127.0.0.1:{port}", "default.api.timeout.ms": "120000"}
        return Cluster(ClientSettings.from_kafka({**address, **settings}))

    def producer(self, **settings: str) -> Producer:
        return Producer({"bootstrap.servers": f"127.0.0.1:{self.plaintext}", "linger.ms": 20, **settings})


@pytest.fixture(scope="module")
def kafka(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    started = Kafka(kafka_tools, tmp_path_factory.mktemp("kafka"))
    try:
        yield started
    finally:
        started.close()


def values(cluster: Cluster, topic: str, end: int, isolation: int = READ_UNCOMMITTED) -> list[bytes]:
    batches = read_range(cluster, topic, 0, 0, end, isolation=isolation)
    return [value for batch in batches for value in batch["value"].to_pylist()]


def test_topics_offsets_and_records(kafka: Kafka) -> None:
    with kafka.connect() as cluster:
        assert cluster.create_topic("records", 2, {"retention.ms": "-1"})
        assert not cluster.create_topic("records", 2, if_absent=True)
        assert cluster.partitions(["records", "absent"]).keys() == {"records"}
        expected = {}
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            producer = kafka.producer(**{"compression.type": codec})
            for i in range(1000):
                text = f"{codec} {i}" * 5
                producer.produce("records", text, f"k{i}", 0, timestamp=1000 + i, headers={"codec": codec})
                expected[len(expected)] = text.encode()
            assert producer.flush(60) == 0
        place = ("records", 0)
        assert cluster.list_offsets({place: EARLIEST, ("records", 1): LATEST}) == {
            place: 0,
            ("records", 1): 0,
        }
        assert cluster.list_offsets({place: LATEST}) == {place: 5000}
        assert cluster.list_offsets({place: 10**13}) == {place: None}
        assert values(cluster, "records", 5000) == list(expected.values())
        (last,) = read_range(cluster, "records", 0, 4999, 5000, headers=True)
        assert last["headers"].to_pylist() == [[{"key": "codec", "value": b"zstd"}]]
        assert last["key"].to_pylist() == [b"k999"]


def test_committed_offsets(kafka: Kafka) -> None:
    with kafka.connect() as cluster:
        cluster.create_topic("committed", 1, if_absent=True)
        assert cluster.committed("a-group", [("committed", 0)]) == {("committed", 0): None}
        cluster.commit_offsets("a-group", {("committed", 0): 17})
        assert cluster.committed("a-group", [("committed", 0)]) == {("committed", 0): 17}
        cluster.commit_offsets("a-group", {("committed", 0): 18}, "a note")
        assert committed_metadata(cluster, "a-group", [("committed", 0)]) == {("committed", 0): "a note"}
        assert "a-group" in list_groups(cluster)


def test_transactions_of_a_kafka_log(kafka: Kafka) -> None:
    with kafka.connect() as cluster:
        cluster.create_topic("transactions", 1, if_absent=True)
        producer = kafka.producer(**{"transactional.id": "t"})
        producer.init_transactions(60)
        for i, end in enumerate(("commit", "abort", "commit", "abort")):
            producer.begin_transaction()
            for _ in range(3):
                producer.produce("transactions", f"{end} {i}", partition=0)
            if end == "commit":
                producer.commit_transaction(60)
            else:
                assert producer.flush(60) == 0  # an abort would drop what was not sent yet
                producer.abort_transaction(60)
        place = ("transactions", 0)
        # Kafka answers before the last marker is written: the end that is committed comes a moment later.
        deadline = time.monotonic() + 60
        end_offset = None
        while end_offset != 16 and time.monotonic() < deadline:
            end_offset = cluster.list_offsets({place: LATEST}, READ_COMMITTED)[place]
        assert end_offset == 16
        assert values(cluster, "transactions", 16, READ_COMMITTED) == [b"commit 0"] * 3 + [b"commit 2"] * 3
        assert len(values(cluster, "transactions", 16)) == 12


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kafka_lets_in_who_knows_the_password(kafka: Kafka, mechanism: str) -> None:
    def settings(password: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{JAAS}.LoginModule required username="alice" password="{password}";',
        }

    with kafka.connect(**settings("wonder")) as cluster:
        cluster.create_topic("secured", 1, if_absent=True)
        assert "secured" in cluster.topics()
    with kafka.connect(**settings("wrong")) as cluster:
        with pytest.raises(AuthenticationFailed, match=f"refused {mechanism} as alice"):
            cluster.topics()
