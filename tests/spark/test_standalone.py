"""`penstock pipeline run` on a real standalone Spark cluster: a master and two workers, each a JVM."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.spark.standalone import StandaloneCluster, standalone_cluster

if TYPE_CHECKING:
    from penstock.testing import PenstockBroker

PARTITIONS = 4
RECORDS = 1200
WAIT_SECONDS = 240.0
FLOWS = """
from pyspark import pipelines as dp

dp.create_sink("doubled", "penstock", {{"kafka.bootstrap.servers": "{bootstrap}", "topic": "doubled"}})

@dp.append_flow(target="doubled")
def doubles():
    words = spark.readStream.format("penstock").option("kafka.bootstrap.servers", "{bootstrap}")
    words = words.option("subscribe", "words").option("startingOffsets", "earliest")
    words = words.option("maxOffsetsPerTrigger", "400")
    return words.load().selectExpr("key", "concat(value, value) AS value")
"""
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    # Both executors first, so that the test shows two of them.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    "spark.cores.max": "2",
}


@pytest.mark.promise(
    "demo",
    "`penstock pipeline run --master spark://…` copies a topic exactly on a standalone cluster with a "
    "master and two workers",
)
@pytest.mark.timeout(400)
def test_a_pipeline_on_a_standalone_cluster_copies_a_topic_exactly(
    penstock: PenstockBroker, tmp_path: Path
) -> None:
    for topic in ("words", "doubled"):
        penstock.create_topic(topic, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        values = [f"{number};" for number in range(partition, RECORDS, PARTITIONS)]
        penstock.produce("words", values, partition=partition)
    project = tmp_path / "copy"
    (project / "transformations").mkdir(parents=True)
    (project / "spark-pipeline.yml").write_text(
        f"name: copy\nstorage: {(project / 'storage').as_uri()}\n"
        "libraries:\n  - glob:\n      include: transformations/**\n"
    )
    (project / "transformations" / "flows.py").write_text(FLOWS.format(bootstrap=penstock.bootstrap))

    with standalone_cluster(tmp_path / "cluster") as cluster:
        run_until_copied(project, cluster, penstock)
        started = cluster.executors_started()

    assert len(started) == 2, started
    assert committed_values(penstock, "doubled") == Counter(
        f"{number};{number};" for number in range(RECORDS)
    )


def run_until_copied(project: Path, cluster: StandaloneCluster, penstock: PenstockBroker) -> None:
    """Ends the run with `pipeline stop`, as a user would, when all that was there has been read."""
    command = [sys.executable, "-m", "penstock", "pipeline"]
    conf = [argument for name, value in CONF.items() for argument in ("--conf", f"{name}={value}")]
    log = project / "run.log"
    with open(log, "wb") as output:
        arguments = ["run", str(project), "--master", cluster.url, "--json", "--progress-to", "none", *conf]
        process = subprocess.Popen([*command, *arguments], stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + WAIT_SECONDS
            while sum(committed_values(penstock, "doubled").values()) < RECORDS:
                assert process.poll() is None, f"{log.read_text()[-3000:]}\n{cluster.logs()}"
                assert time.monotonic() < deadline, f"{log.read_text()[-3000:]}\n{cluster.logs()}"
                time.sleep(0.5)
            subprocess.run([*command, "stop", str(project)], check=True, capture_output=True, timeout=120)
            assert process.wait(120) == 0, log.read_text()[-3000:]
        finally:
            process.kill()
            process.wait(60)
    assert json.loads(log.read_text().splitlines()[-1])["event"] == "stopped"


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
