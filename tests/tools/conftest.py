"""Apache Kafka's own tools and storage classes, fetched through Maven into build/ once.

`kafka_tools` is skipped by name where Maven is missing or its repository does not answer. Where
Maven is there, a Java older than 17 is an error: the README asks for 17.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

# The newest line whose tools run on Java 17.
KAFKA_VERSION = "4.1.0"
ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / f"kafka-tools-{KAFKA_VERSION}"
MAVEN_TIMEOUT_S = 300
# Short-lived processes: no time for the second compiler or a parallel collector.
JVM_FLAGS = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId><artifactId>kafka-tools</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""

TOOLS = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
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
        command = [
            "java",
            *JVM_FLAGS,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            f"{self.libraries}/*",
        ]
        done = subprocess.run(
            [*command, *arguments], input=input or "", capture_output=True, text=True, timeout=timeout
        )
        if ok and done.returncode != 0:
            pytest.fail(f"{arguments[0]} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout if ok else done.stdout + done.stderr


def _fetch(run_id: str) -> None:
    """Called with the lock held. Remembers a failure, so that other workers of this run do not wait again."""
    failed = CACHE / "failed"
    if failed.exists() and run_id and failed.read_text().startswith(f"{run_id}\n"):
        pytest.skip(failed.read_text().split("\n", 1)[1])
    (CACHE / "pom.xml").write_text(POM)
    libraries = CACHE / "lib"
    shutil.rmtree(libraries, ignore_errors=True)
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={libraries}"]
    try:
        done = subprocess.run(command, cwd=CACHE, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S)
        reason = (
            "" if done.returncode == 0 else next(iter((done.stdout + done.stderr).splitlines()), "no output")
        )
    except subprocess.TimeoutExpired:
        reason = f"no answer within {MAVEN_TIMEOUT_S} s"
    if reason:
        reason = f"Kafka {KAFKA_VERSION}'s tools could not be fetched through Maven: {reason[:200]}"
        failed.write_text(f"{run_id}\n{reason}")
        pytest.skip(reason)
    failed.unlink(missing_ok=True)
    (CACHE / "complete").touch()


def _java_major() -> int:
    said = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    found = re.search(r'version "(\d+)', said)
    return int(found.group(1)) if found else 0


@pytest.fixture(scope="session")
def kafka_tools() -> KafkaTools:
    complete = CACHE / "complete"
    if not complete.exists():
        if shutil.which("mvn") is None:
            pytest.skip("Kafka's own tools need Maven (mvn), which is not installed")
        CACHE.mkdir(parents=True, exist_ok=True)
        with open(CACHE / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not complete.exists():
                _fetch(os.environ.get("PYTEST_XDIST_TESTRUNUID", ""))
    if shutil.which("java") is None or _java_major() < 17:
        pytest.fail("Kafka's own tools need Java 17 or newer, as the README says")
    return KafkaTools(CACHE / "lib")
