"""What the examples of streams share: their options, a session, topics as streams, streams into topics."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

import penstock.spark

Record = tuple[str, str | None, Any]
"""A topic, a key and a value: text as it is, None, or what becomes JSON."""


@dataclass
class Streams:
    """Where an example runs: a Spark, a Kafka cluster, and the directory of its checkpoint."""

    spark: SparkSession
    kafka: dict[str, str]
    checkpoint: str
    once: bool

    def read(self, topics: str, **options: str) -> DataFrame:
        """The records of topics, from the first one on, and then as they come."""
        given = {**self.kafka, "subscribe": topics, "startingOffsets": "earliest", **options}
        return self.spark.readStream.format("penstock").options(**given).load()

    def read_now(self, topics: str) -> DataFrame:
        """The records that topics have now."""
        return self.spark.read.format("penstock").options(**self.kafka, subscribe=topics).load()

    def write(self, rows: DataFrame, topic: str | None = None) -> None:
        """Rows into a topic, or into those that their column `topic` names, exactly once."""
        writer = rows.writeStream.format("penstock").options(**self.kafka)
        self.run(writer if topic is None else writer.option("topic", topic))

    def run(self, writer: DataStreamWriter) -> None:
        """Until it is stopped or, with --once, until all that is there has been read."""
        writer = writer.option("checkpointLocation", self.checkpoint)
        (writer.trigger(availableNow=True) if self.once else writer).start().awaitTermination()


def options(doc: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", default="localhost:9092", help="where the cluster is (%(default)s)")
    parser.add_argument("--checkpoint", help="where the query keeps its state (a new directory)")
    parser.add_argument("--sample", action="store_true", help="send some records first")
    parser.add_argument("--once", action="store_true", help="end when all that is there has been read")
    return parser


def connect(arguments: argparse.Namespace, sample: Iterable[Record] = ()) -> Streams:
    kafka = {"kafka.bootstrap.servers": arguments.bootstrap}
    if arguments.sample:
        send(arguments.bootstrap, sample)
    checkpoint = arguments.checkpoint or tempfile.mkdtemp(prefix="checkpoint-")
    # Times in the examples are in UTC.
    spark = penstock.spark.session("streams", conf={"spark.sql.session.timeZone": "UTC"})
    return Streams(spark, kafka, checkpoint, arguments.once)


def start(doc: str | None, sample: Iterable[Record], arguments: Sequence[str] | None) -> Streams:
    return connect(options(doc).parse_args(arguments), sample)


def send(bootstrap: str, records: Iterable[Record]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "partitioner": "murmur2_random"})
    for topic, key, value in records:
        text = value if value is None or isinstance(value, str) else json.dumps(value)
        producer.produce(topic, text, key)
    producer.flush(30)


def fields(records: DataFrame, schema: str) -> DataFrame:
    """The fields of JSON values as columns, beside key, topic, partition, offset and timestamp."""
    parsed = F.from_json(F.col("value").cast("string"), schema).alias("fields")
    return (
        records.select("key", "topic", "partition", "offset", "timestamp", parsed)
        .select("*", "fields.*")
        .drop("fields")
    )


def as_json(*columns: str | Column) -> Column:
    """Columns as the JSON value of a record."""
    return F.to_json(F.struct(*columns)).alias("value")
