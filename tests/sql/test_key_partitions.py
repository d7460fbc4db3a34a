"""One key, one partition: every writer here puts it where Java's clients and kafka-python put it."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

import pytest
from click.testing import CliRunner
from kafka import KafkaProducer
from kafka.partitioner.default import murmur2

from penstock.cli.main import cli
from penstock.client.partitioning import partition_for_key
from penstock.demo.feeder import Feeder, events_after
from penstock.demo.replay import FLIGHTS, PARTITIONS, WEATHER
from penstock.spark.sink.producer import BY_KEY, ProducerSettings, Rows, TaskProducer
from penstock.testing import PenstockBroker
from tests.sql.serving import SqlClient

KEYS = [f"key-{n}" for n in range(60)] + ["", "ä", "a", "ab", "abc"]
TOPIC_PARTITIONS = 7


def expected(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def by_kafka_python(broker: PenstockBroker, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for key in KEYS:
        producer.send(topic, key=key.encode(), value=b"v")
    producer.flush(30)
    producer.close()


def by_command_line(broker: PenstockBroker, topic: str) -> None:
    lines = "".join(f"{key}=v\n" for key in KEYS)
    done = CliRunner().invoke(
        cli,
        ["produce", topic, "--key-separator", "=", "--bootstrap", broker.bootstrap],
        input=lines.encode(),
    )
    assert done.exit_code == 0, done.output


def by_sink(broker: PenstockBroker, topic: str) -> None:
    settings = ProducerSettings.from_kafka({"bootstrap.servers": broker.bootstrap}, transactional=False)
    producer = TaskProducer(settings)
    keys = [key.encode() for key in KEYS]
    producer.send(Rows(topic, BY_KEY, keys, [b"v"] * len(keys), None, None, 100, 1000))
    producer.flush()


WRITERS = {"kafka-python": by_kafka_python, "penstock produce": by_command_line, "Spark's sink": by_sink}


@pytest.mark.promise(
    "demo",
    "Records with the same key go to the same partition: `penstock produce`, the demo, Spark's sink, SQL "
    "and Kafka's own clients hash keys with murmur2",
)
@pytest.mark.parametrize("name", WRITERS)
def test_a_writer_puts_a_key_where_java_does(name: str, sql_broker: PenstockBroker) -> None:
    topic = f"keys-{list(WRITERS).index(name)}"
    sql_broker.create_topic(topic, partitions=TOPIC_PARTITIONS)
    WRITERS[name](sql_broker, topic)
    records = sql_broker.consume(topic)
    assert sorted(record.key.decode() for record in records) == sorted(KEYS)
    for record in records:
        assert record.partition == expected(record.key, TOPIC_PARTITIONS), record.key


@pytest.mark.promise(
    "demo",
    "Records with the same key go to the same partition: `penstock produce`, the demo, Spark's sink, SQL "
    "and Kafka's own clients hash keys with murmur2",
)
def test_sql_inserts_a_key_where_java_does(sql: SqlClient, sql_broker: PenstockBroker) -> None:
    sql.run(f"CREATE STREAM keyed (n INT) WITH (format = 'json', partitions = {TOPIC_PARTITIONS})")
    rows = ", ".join(f"('{key}', {number})" for number, key in enumerate(KEYS))
    assert sql.run(f"INSERT INTO keyed (__key, n) VALUES {rows}")[-1].error is None
    records = sql_broker.consume("keyed")
    assert sorted(record.key.decode() for record in records) == sorted(KEYS)
    for record in records:
        assert record.partition == expected(record.key, TOPIC_PARTITIONS), record.key


@pytest.mark.promise(
    "demo",
    "Records with the same key go to the same partition: `penstock produce`, the demo, Spark's sink, SQL "
    "and Kafka's own clients hash keys with murmur2",
)
def test_the_demo_feeds_a_key_where_java_does(sql_broker: PenstockBroker) -> None:
    for topic in (FLIGHTS, WEATHER):
        sql_broker.create_topic(topic, partitions=PARTITIONS)
    events = events_after({}, datetime(2013, 6, 1, tzinfo=UTC), 1)
    feeder = Feeder(sql_broker.bootstrap, lambda: islice(events(), 300), speed=10_000_000)
    feeder.start()
    feeder.join(60)
    assert (feeder.failure, feeder.over) == (None, True)
    records = [*sql_broker.consume(FLIGHTS), *sql_broker.consume(WEATHER)]
    assert len(records) == 300
    for record in records:
        assert record.partition == expected(record.key, PARTITIONS), record.key


def test_the_hash_is_that_of_kafkas_clients() -> None:
    for key in (*KEYS, "x" * 1000, "\x00\xff"):
        assert partition_for_key(key.encode(), 13) == expected(key.encode(), 13)
