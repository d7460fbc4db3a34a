"""The data directory of an Apache Kafka node is opened by Penstock, written to, and given back."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.cli.main import cli
from penstock.testing import PenstockBroker
from penstock.testing.broker import BrokerFailed
from tests.tools.conftest import KafkaTools
from tests.tools.kafka_broker import apache_kafka

PATIENCE = 60
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def write(bootstrap: str, name: str) -> list[str]:
    """In every compression, then a committed and an aborted transaction; what may be read."""
    written = []
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "log_level": 0})
        for number in range(20):
            written.append(f"{name} {codec} {number}")
            producer.produce("moved", written[-1].encode(), key=str(number).encode(), partition=0)
        assert producer.flush(PATIENCE) == 0
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "mover", "log_level": 0})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    producer.produce("moved", f"{name} committed".encode(), partition=0)
    producer.commit_transaction(PATIENCE)
    producer.begin_transaction()
    producer.produce("moved", b"aborted", partition=0)
    producer.flush(PATIENCE)
    producer.abort_transaction(PATIENCE)
    return [*written, f"{name} committed"]


def where_it_is(consumer: Consumer) -> TopicPartition:
    """Asked again while the coordinator starts: with assign alone, librdkafka 2.16 may wait forever then."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            found: TopicPartition = consumer.committed([TopicPartition("moved", 0)], 5)[0]
            if found.error is None and found.offset >= 0:
                return found
        except KafkaException:
            pass
        assert time.monotonic() < end, "the group has no offset"


def read(bootstrap: str, count: int) -> list[str]:
    """From where the group is, which is moved to the end."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "error", "log_level": 0}
    )
    consumer.assign([where_it_is(consumer)])
    found: list[str] = []
    errors: list[object] = []
    end = time.monotonic() + PATIENCE
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} records came: {errors}"
        for message in consumer.consume(count - len(found), 1.0):
            if message.error() is None:
                found.append((message.value() or b"").decode())
            else:
                errors.append(message.error())
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


@pytest.mark.promise(
    "backups",
    "Penstock starts on the data directory of a single Apache Kafka node, with its topics and committed "
    "offsets, and Kafka starts on it again with what was written in between",
)
def test_a_data_directory_moves_to_penstock_and_back(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    with apache_kafka(kafka_tools, tmp_path) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        for future in admin.create_topics([NewTopic("moved", 2, 1)]).values():
            future.result(PATIENCE)
        first = write(kafka.bootstrap, "kafka")
        group = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g"})
        group.commit(offsets=[TopicPartition("moved", 0, 0)], asynchronous=False)
        group.close()
        assert read(kafka.bootstrap, len(first)) == first
        second = write(kafka.bootstrap, "kafka again")
        settings = {"node.id": "1", "group.initial.rebalance.delay.ms": "0"}
        with pytest.raises(BrokerFailed, match="is in use by another broker"):
            PenstockBroker(settings, data_dir=kafka.data).start()
        kafka.stop()

        with PenstockBroker(settings, data_dir=kafka.data) as broker:
            topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=PATIENCE).topics
            assert "__cluster_metadata" not in topics
            assert len(topics["moved"].partitions) == 2
            assert read(broker.bootstrap, len(second)) == second
            third = write(broker.bootstrap, "penstock")
            broker.stop()
        checked = CliRunner().invoke(cli, ["log", "verify", str(kafka.data), "--json"])
        assert json.loads(checked.stdout)["clean"] is True, checked.stdout

        kafka.start()
        assert read(kafka.bootstrap, len(third)) == third
        fourth = write(kafka.bootstrap, "kafka at last")
        assert read(kafka.bootstrap, len(fourth)) == fourth
