"""Reading topics through Spark, for tests: in one go, or batch by batch as a stream goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.testing import PenstockBroker

Place = tuple[str, int]


def read(spark: SparkSession, broker: PenstockBroker, options: Mapping[str, object]) -> DataFrame:
    """A batch read."""
    given = {"kafka.bootstrap.servers": broker.bootstrap, **options}
    return spark.read.format("penstock").options(**given).load()


def stream(spark: SparkSession, broker: PenstockBroker, options: Mapping[str, object]) -> DataFrame:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "startingOffsets": "earliest", **options}
    return spark.readStream.format("penstock").options(**given).load()


def offsets_read(frame: DataFrame) -> dict[Place, list[int]]:
    """The offsets of all rows, by partition, in the order in which they were read."""
    found: dict[Place, list[int]] = {}
    for row in frame.select("topic", "partition", "offset").collect():
        found.setdefault((row.topic, row.partition), []).append(row.offset)
    return found


class Collected:
    """What a stream gave, batch by batch; a batch that is run again counts once."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = frame.collect()

    @property
    def rows(self) -> list[Any]:
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]

    @property
    def values(self) -> list[str]:
        return sorted(bytes(row.value).decode() for row in self.rows)

    @property
    def sizes(self) -> list[int]:
        return [len(self.batches[batch]) for batch in sorted(self.batches) if self.batches[batch]]


@contextmanager
def running(
    frame: DataFrame, collected: Collected, checkpoint: Path, *, name: str | None = None, **trigger: Any
) -> Iterator[StreamingQuery]:
    """The query over `frame`, stopped at the end."""
    writer = frame.writeStream.foreachBatch(collected).option("checkpointLocation", str(checkpoint))
    if name is not None:
        writer = writer.queryName(name)
    query = (writer.trigger(**trigger) if trigger else writer).start()
    try:
        yield query
    finally:
        query.stop()


def run_available(
    frame: DataFrame, collected: Collected, checkpoint: Path, *, name: str | None = None
) -> None:
    """Runs the query until it has read what is there now."""
    with running(frame, collected, checkpoint, name=name, availableNow=True) as query:
        assert query.awaitTermination(100), "the query did not come to its end"


def failure(error: PySparkException) -> str:
    """The message of our error inside Spark's, without its type."""
    for line in str(error).splitlines():
        if line.startswith("penstock."):
            return line.partition(": ")[2]
    return str(error)


def admin(broker: PenstockBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})


def add_partitions(broker: PenstockBroker, topic: str, count: int) -> None:
    client = admin(broker)  # answers come only as long as it lives
    (done,) = client.create_partitions([NewPartitions(topic, count)]).values()
    done.result(30)


def delete_records(broker: PenstockBroker, topic: str, partition: int, before: int) -> None:
    from confluent_kafka import TopicPartition

    client = admin(broker)
    (done,) = client.delete_records([TopicPartition(topic, partition, before)]).values()
    done.result(30)


def transaction(broker: PenstockBroker, topic: str, values: list[str], *, commit: bool) -> None:
    """Records of one transaction in partition 0, and its marker."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": f"t-{commit}",
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(30)
    producer.commit_transaction(30) if commit else producer.abort_transaction(30)
