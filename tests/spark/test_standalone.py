"""A pipeline on a real standalone Spark cluster, master and two workers on this machine, not in one JVM."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.spark.standalone import standalone_cluster

if TYPE_CHECKING:
    from penstock.testing import PenstockBroker

PARTITIONS = 4
RECORDS = 1200


@pytest.mark.timeout(300)
def test_a_pipeline_on_a_standalone_cluster_copies_a_topic_exactly(
    penstock: PenstockBroker, tmp_path: Path
) -> None:
    for topic in ("words", "doubled"):
        penstock.create_topic(topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        values = [f"{number};" for number in range(partition, RECORDS, PARTITIONS)]
        penstock.produce("words", values, partition=partition)

    with standalone_cluster(tmp_path / "cluster") as cluster:
        driver = Path(__file__).with_name("standalone_copy.py")
        arguments = [cluster.url, penstock.bootstrap, "words", "doubled", str(tmp_path / "checkpoint")]
        done = subprocess.run(
            [sys.executable, str(driver), *arguments], capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}\n{cluster.logs()}"
        told = json.loads(done.stdout.splitlines()[-1])
        started = cluster.executors_started()

    assert told == {"batches": 3, "rows": RECORDS, "executors": 2}
    assert len(started) == 2, started
    assert committed_values(penstock, "doubled") == Counter(
        f"{number};{number};" for number in range(RECORDS)
    )


def committed_values(penstock: PenstockBroker, topic: str) -> Counter[str]:
    """All that a read_committed reader sees, up to the ends of the partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": penstock.bootstrap,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: Counter[str] = Counter()
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        for message in consumer.consume(500, timeout=5):
            if message.error() is None:
                found[message.value().decode()] += 1
            else:
                ended.add(message.partition())
    consumer.close()
    return found
