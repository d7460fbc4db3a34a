"""Spark's own Kafka connector, through Maven into build/ once; where that fails, the reason instead."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_TIMEOUT_S = 300
# Where the connector of the installed Spark is not out yet: older parts that run in it.
OLDER = ("4.2.0", "4.0.0")
# What the connector is built with.
KAFKA_CLIENTS = "3.9.2"
COMMONS_POOL = "2.13.1"


def connector_jars(root: Path, spark_version: str) -> tuple[list[str], str]:
    """The jars for `spark.jars` and the connector's version, or none and why."""
    found = _jars(root, spark_version, spark_version)
    return found if found[0] else _jars(root, *OLDER)


def _jars(root: Path, connector: str, token_provider: str) -> tuple[list[str], str]:
    home = root / "build" / f"spark-kafka-{connector}"
    libraries = home / "lib"
    if not (home / "complete").exists():
        if shutil.which("mvn") is None:
            return [], "Maven (mvn) is not installed"
        home.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(libraries, ignore_errors=True)
        (home / "pom.xml").write_text(_pom(connector, token_provider))
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        try:
            done = subprocess.run(
                [*command, f"-DoutputDirectory={libraries}"],
                cwd=home, capture_output=True, text=True, timeout=_TIMEOUT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return [], f"Maven gave no answer within {_TIMEOUT_S} s"
        if done.returncode != 0:
            said = (done.stdout + done.stderr).splitlines()
            return [], f"Maven could not fetch it: {said[0][:150] if said else 'no output'}"
        (home / "complete").touch()
    return sorted(str(path) for path in libraries.glob("*.jar")), connector


def _pom(connector: str, token_provider: str) -> str:
    """Each jar by name and nothing that they name: the rest is in PySpark, and Spark's POM also names a
    mirror that not every network knows.
    """
    wanted = (
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", connector),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", token_provider),
        ("org.apache.kafka", "kafka-clients", KAFKA_CLIENTS),
        ("org.apache.commons", "commons-pool2", COMMONS_POOL),
    )
    dependencies = "".join(
        f"""
    <dependency>
      <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{number}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>"""
        for group, artifact, number in wanted
    )
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId><artifactId>spark-kafka</artifactId><version>1</version>
  <dependencies>{dependencies}
  </dependencies>
</project>
"""
