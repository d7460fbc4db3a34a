"""Apache Kafka's jars, fetched through Maven into build/ once; where that fails, the reason instead."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

# The newest line whose tools run on Java 17.
KAFKA_VERSION = "4.1.0"
ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / f"kafka-tools-{KAFKA_VERSION}"
LIBRARIES = CACHE / "lib"
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


class NotFetched(Exception):
    """The jars are not here, and why."""


def are_here() -> bool:
    return (CACHE / "complete").exists()


def fetch(run_id: str = "") -> Path:
    """The directory of the jars. A failure is remembered for others of the same run, so that they do not
    wait again."""
    if are_here():
        return LIBRARIES
    if shutil.which("mvn") is None:
        raise NotFetched("Kafka's own tools need Maven (mvn), which is not installed")
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not are_here():
            _fetch(run_id)
    return LIBRARIES


def _fetch(run_id: str) -> None:
    failed = CACHE / "failed"
    if failed.exists() and run_id and failed.read_text().startswith(f"{run_id}\n"):
        raise NotFetched(failed.read_text().split("\n", 1)[1])
    (CACHE / "pom.xml").write_text(POM)
    shutil.rmtree(LIBRARIES, ignore_errors=True)
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={LIBRARIES}"]
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
        raise NotFetched(reason)
    failed.unlink(missing_ok=True)
    (CACHE / "complete").touch()
