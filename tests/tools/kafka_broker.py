"""An Apache Kafka broker for a test, from the jars that `kafka_tools` fetched."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from penstock.client import ClientSettings, Cluster
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

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.plaintext}"

    def connect(self, **settings: str) -> Cluster:
        port = self.sasl if settings else self.plaintext
        address = {"bootstrap.servers": f"127.0.0.1:{port}", "default.api.timeout.ms": "120000"}
        return Cluster(ClientSettings.from_kafka({**address, **settings}))

    def producer(self, **settings: str) -> Producer:
        return Producer({"bootstrap.servers": f"127.0.0.1:{self.plaintext}", "linger.ms": 20, **settings})


@contextmanager
def apache_kafka(tools: KafkaTools, directory: Path) -> Iterator[Kafka]:
    started = Kafka(tools, directory)
    try:
        yield started
    finally:
        started.close()
