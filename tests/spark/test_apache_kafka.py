"""Source and exactly-once sink against an Apache Kafka broker; skipped by name without Maven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.client import LATEST, READ_COMMITTED
from penstock.spark.source.reading import read_range
from tests.tools.conftest import KafkaTools, kafka_tools
from tests.tools.kafka_broker import Kafka, apache_kafka
from tests.tools.kafka_jars import MAVEN_TIMEOUT_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.tools, pytest.mark.timeout(MAVEN_TIMEOUT_S + 240)]
PARTITIONS = 2
RECORDS = 900


__all__ = ["kafka_tools"]  # the fixture of the other directory, taken over


@pytest.fixture
def kafka(kafka_tools: KafkaTools, tmp_path: Path) -> Iterator[Kafka]:
    with apache_kafka(kafka_tools, tmp_path) as started:
        yield started


def copy(spark: SparkSession, bootstrap: str, checkpoint: Path) -> None:
    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", "from").option("startingOffsets", "earliest")
    records = reader.option("maxOffsetsPerTrigger", "300").load().select("key", "value")
    writer = records.writeStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("topic", "to").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.promise(
    "demo",
    "The source and the sink work on Apache Kafka 4.1: a micro-batch that runs again writes nothing twice",
)
def test_a_copy_on_apache_kafka_whose_last_batches_are_run_again_has_each_record_once(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    with kafka.connect() as cluster:
        for topic in ("from", "to"):
            cluster.create_topic(topic, PARTITIONS, {})
        producer = kafka.producer()
        for number in range(RECORDS):
            producer.produce("from", f"value {number}", f"key {number % 7}", number % PARTITIONS)
        assert producer.flush(60) == 0
        copy(spark, kafka.bootstrap, tmp_path / "checkpoint")
        # As after a crash between the commit to Kafka and Spark's own note of it: the batch is run again.
        committed = sorted(
            (int(path.name), path) for path in (tmp_path / "checkpoint" / "commits").glob("[0-9]*")
        )
        assert len(committed) >= 3
        for path in (committed[-1][1], committed[-1][1].with_name(f".{committed[-1][1].name}.crc")):
            path.unlink(missing_ok=True)
        copy(spark, kafka.bootstrap, tmp_path / "checkpoint")

        found: Counter[str] = Counter()
        ends = cluster.list_offsets({("to", partition): LATEST for partition in range(PARTITIONS)})
        for (topic, partition), end in ends.items():
            assert end is not None
            for batch in read_range(cluster, topic, partition, 0, end, isolation=READ_COMMITTED):
                found.update(value.decode() for value in batch["value"].to_pylist())
    assert found == Counter(f"value {number}" for number in range(RECORDS))
