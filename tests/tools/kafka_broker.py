"""Apache Kafka brokers for a test or a measurement, from the jars that were fetched."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from penstock.client import ClientSettings, Cluster
from penstock.testing.ports import free_port
from tests.tools import kafka_classes
from tests.tools.conftest import KafkaTools
from tests.tools.kafka_jars import JVM_FLAGS

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
JAAS = "org.apache.kafka.common.security"
SHARE = ("--feature", "share.version=1")  # a preview in Kafka 4.1, off by default


class Kafka:
    """One node that is broker and controller, with a listener of each kind."""

    def __init__(self, tools: KafkaTools, directory: Path) -> None:
        self.plaintext, self.sasl, self._controller = (free_port() for _ in range(3))
        self._log = directory / "kafka.log"
        config = directory / "server.properties"
        config.write_text(self._properties(directory / "data"))
        java = kafka_classes.command()
        users = [f"SCRAM-SHA-{size}=[name=alice,password=wonder]" for size in (256, 512)]
        scram = [word for user in users for word in ("--add-scram", user)]
        subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config), *scram, *SHARE],
            check=True,
            capture_output=True,
            timeout=120,
        )
        self._command = [*java, "kafka.Kafka", str(config)]
        self.data = directory / "data"
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)

    def stop(self) -> None:
        """In order: its files are as a clean shutdown leaves them."""
        self._process.terminate()
        self._process.wait(60)

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
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.min.isr": "1",
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


class KafkaNodes:
    """Some nodes that are broker and controller each, with Kafka's own defaults for internal topics."""

    def __init__(
        self,
        libraries: Path,
        directory: Path,
        count: int,
        flags: Sequence[str],
        more: Mapping[str, str],
    ) -> None:
        """`more` are settings; a listener of theirs comes after PLAINTEXT."""
        self._more = dict(more)
        self._ports = {number: (free_port(), free_port()) for number in range(1, count + 1)}
        self._processes: list[subprocess.Popen[bytes]] = []
        java = ["java", *flags, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{libraries}/*"]
        for number in self._ports:
            config = directory / f"kafka-{number}.properties"
            config.write_text(self._properties(number, directory / f"kafka-{number}"))
            words = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)]
            subprocess.run([*java, *words], check=True, capture_output=True, timeout=120)
            with (directory / f"kafka-{number}.log").open("wb") as log:
                command = [*java, "kafka.Kafka", str(config)]
                self._processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))

    def _properties(self, number: int, data: Path) -> str:
        port, controller = self._ports[number]
        voters = ",".join(f"{one}@127.0.0.1:{ports[1]}" for one, ports in self._ports.items())
        lines = {
            "process.roles": "broker,controller",
            "node.id": str(number),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(data),
        }
        listeners = ",".join(filter(None, (lines["listeners"], self._more.get("listeners"))))
        lines |= {**self._more, "listeners": listeners}
        return "".join(f"{name}={value}\n" for name, value in lines.items())

    def wait_until_ready(self) -> None:
        address = {"bootstrap.servers": self.bootstrap, "default.api.timeout.ms": "120000"}
        with Cluster(ClientSettings.from_kafka(address)) as cluster:
            cluster.topics()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port, _ in self._ports.values())

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@contextmanager
def kafka_nodes(
    libraries: Path,
    directory: Path,
    count: int,
    flags: Sequence[str] = JVM_FLAGS,
    more: Mapping[str, str] | None = None,
) -> Iterator[KafkaNodes]:
    started = KafkaNodes(libraries, directory, count, flags, more or {})
    try:
        yield started
    finally:
        started.close()
