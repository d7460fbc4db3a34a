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

_TOOLS = ("kafka_2.13", "kafka-tools")
_CONNECT = ("connect-runtime", "connect-file")
_MIRROR = ("connect-mirror", "connect-mirror-client")
_DEPENDENCY = """    <dependency>
      <groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>
    </dependency>
"""


def _pom(artifacts: tuple[str, ...]) -> str:
    wanted = [("org.apache.kafka", each, KAFKA_VERSION) for each in artifacts]
    wanted.append(("org.slf4j", "slf4j-simple", "1.7.36"))
    listed = "".join(
        _DEPENDENCY.format(group=group, name=name, version=version) for group, name, version in wanted
    )
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId><artifactId>kafka-tools</artifactId><version>1</version>
  <dependencies>
{listed}  </dependencies>
</project>
"""


class NotFetched(Exception):
    """The jars are not here, and why."""


def are_here(cache: Path = CACHE) -> bool:
    return (cache / "complete").exists()


def fetch(run_id: str = "") -> Path:
    """The directory of the jars. A failure is remembered for others of the same run, so that they do not
    wait again."""
    return _fetch_into(CACHE, _TOOLS, run_id)


def fetch_connect(run_id: str = "") -> Path:
    """The same for Kafka Connect and its file connectors."""
    return _fetch_into(ROOT / "build" / f"kafka-connect-{KAFKA_VERSION}", _CONNECT, run_id)


def fetch_mirror(run_id: str = "") -> Path:
    """The same for MirrorMaker 2."""
    return _fetch_into(ROOT / "build" / f"kafka-mirror-{KAFKA_VERSION}", _MIRROR, run_id)


def _fetch_into(cache: Path, artifacts: tuple[str, ...], run_id: str) -> Path:
    if are_here(cache):
        return cache / "lib"
    if shutil.which("mvn") is None:
        raise NotFetched("Kafka's own tools need Maven (mvn), which is not installed")
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not are_here(cache):
            _fetch(cache, artifacts, run_id)
    return cache / "lib"


def _fetch(cache: Path, artifacts: tuple[str, ...], run_id: str) -> None:
    failed = cache / "failed"
    if failed.exists() and run_id and failed.read_text().startswith(f"{run_id}\n"):
        raise NotFetched(failed.read_text().split("\n", 1)[1])
    (cache / "pom.xml").write_text(_pom(artifacts))
    shutil.rmtree(cache / "lib", ignore_errors=True)
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={cache / 'lib'}"]
    try:
        done = subprocess.run(command, cwd=cache, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S)
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
    (cache / "complete").touch()
