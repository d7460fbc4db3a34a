"""Apache Kafka's own tools and storage classes, fetched through Maven into build/ once.

`kafka_tools` is skipped by name where Maven is missing or its repository does not answer. Where
Maven is there, a Java older than 17 is an error: the README asks for 17.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tools import kafka_classes
from tests.tools.kafka_jars import MAVEN_TIMEOUT_S, NotFetched, fetch

TOOLS = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-dump-log": "kafka.tools.DumpLogSegments",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("tools")
            # The first run of all waits for Maven.
            item.add_marker(pytest.mark.timeout(MAVEN_TIMEOUT_S + 120))


@dataclass(frozen=True)
class KafkaTools:
    """Runs one of Kafka's programs and returns its standard output; a failure shows all it said."""

    libraries: Path

    def run(
        self, tool: str, *arguments: str, input: str | None = None, ok: bool = True, timeout: float = 60
    ) -> str:
        return self._java([TOOLS[tool], *arguments], input, ok, timeout)

    def run_source(self, source: Path, *arguments: str, timeout: float = 60) -> dict[str, str]:
        """A single-file Java program that prints `name=value` lines."""
        output = self._java([str(source), *arguments], None, True, timeout)
        return dict(line.split("=", 1) for line in output.splitlines() if "=" in line)

    def _java(self, arguments: list[str], input: str | None, ok: bool, timeout: float) -> str:
        command = [*kafka_classes.command(), *arguments]
        done = subprocess.run(command, input=input or "", capture_output=True, text=True, timeout=timeout)
        if ok and done.returncode != 0:
            pytest.fail(f"{arguments[0]} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout if ok else done.stdout + done.stderr


def _java_major() -> int:
    said = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    found = re.search(r'version "(\d+)', said)
    return int(found.group(1)) if found else 0


@pytest.fixture(scope="session")
def kafka_tools() -> KafkaTools:
    try:
        libraries = fetch(os.environ.get("PYTEST_XDIST_TESTRUNUID", ""))
    except NotFetched as error:
        pytest.skip(str(error))
    if shutil.which("java") is None or _java_major() < 17:
        pytest.fail("Kafka's own tools need Java 17 or newer, as the README says")
    kafka_classes.make()
    return KafkaTools(libraries)
