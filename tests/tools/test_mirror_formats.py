"""The records of replication beside those of Apache Kafka's MirrorMaker 2, whose client reads ours."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.connect.connectors.mirror.formats import Checkpoint, Heartbeat, OffsetSync
from penstock.testing import PenstockBroker
from tests.tools import kafka_jars

SOURCE = Path(__file__).with_name("MirrorFormats.java")


@pytest.fixture(scope="module")
def jars() -> Path:
    try:
        return kafka_jars.fetch_mirror(os.environ.get("PYTEST_XDIST_TESTRUNUID", ""))
    except kafka_jars.NotFetched as error:
        pytest.skip(str(error))


@pytest.mark.promise(
    "mirror",
    "Heartbeats, checkpoints and offset syncs are byte for byte those of Apache Kafka's MirrorMaker 2 "
    "4.1, and its client (RemoteClusterUtils) translates offsets with them",
)
def test_records_are_those_of_mirrormaker_2(jars: Path) -> None:
    with PenstockBroker() as broker:
        broker.create_topic("east.checkpoints.internal")
        broker.create_topic("heartbeats")
        broker.create_topic("east.heartbeats")
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for checkpoint in (
            Checkpoint("a group", "east.t", 0, 5, 7),
            Checkpoint("a group", "east.t", 1, 50, 70),
            Checkpoint("another", "east.t", 0, 1, 1),
            Checkpoint("a group", "east.t", 0, 8, 11),
        ):
            producer.produce("east.checkpoints.internal", checkpoint.value(), checkpoint.key(), 0)
        assert producer.flush(60) == 0
        done = subprocess.run(
            [
                "java",
                *kafka_jars.JVM_FLAGS,
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                "-cp",
                f"{jars}/*",
            ]
            + [str(SOURCE), broker.bootstrap, "east", "a group"],
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    ours = {
        "heartbeat": Heartbeat("east", "wést", 1234567890123),
        "checkpoint": Checkpoint("a group", "east.t-1", 7, 5000000000, 42, "näh"),
        "offsetsync": OffsetSync("t-1", 7, 5000000000, 42),
    }
    for name, record in ours.items():
        assert found[name] == f"{record.key().hex()} {record.value().hex()}", name
    assert found["translated"] == "{east.t-0=11, east.t-1=70}"
    assert found["upstream"] == "[east]"
