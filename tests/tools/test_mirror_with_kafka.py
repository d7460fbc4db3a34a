"""Replication between Penstock and Apache Kafka, one way each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import PenstockBroker
from tests.clients.test_batch_producer import aborts_and_goes_on
from tests.connect.mirror.conftest import BROKER, Pair, connect, partition, until_equal
from tests.connect.mirror.task_process import TaskProcess
from tests.connect.mirror.test_source import write
from tests.connect.mirror.test_tasks import prepare, task_config
from tests.tools.conftest import KafkaTools
from tests.tools.kafka_broker import Kafka, apache_kafka


@pytest.fixture(scope="module")
def kafka(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with apache_kafka(kafka_tools, tmp_path_factory.mktemp("kafka")) as started:
        with started.connect() as cluster:
            cluster.topics()
        yield started


def test_a_producer_of_batches_goes_on_after_an_error(kafka: Kafka) -> None:
    with kafka.connect() as cluster:
        cluster.create_topic("batches", 1)
    aborts_and_goes_on(kafka.bootstrap, "batches")


@pytest.mark.promise(
    "mirror", "Exactly once also from and to Apache Kafka 4.1, with batches copied byte for byte"
)
@pytest.mark.parametrize("direction", ["from-kafka", "to-kafka"])
def test_one_way_each(kafka: Kafka, tmp_path: Path, direction: str) -> None:
    with PenstockBroker(BROKER) as penstock:
        ends: tuple[Any, Any] = (kafka, penstock) if direction == "from-kafka" else (penstock, kafka)
        pair = Pair(*ends)
        topic = direction
        with connect(pair.source.bootstrap) as source:
            source.create_topic(topic, 3)
        prepare(pair, f"x.{topic}")
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            write(pair.source, topic, 200, **{"compression.type": codec})
        config, log = task_config(pair, "x", topic), tmp_path / "log"
        task = TaskProcess(pair.target.bootstrap, topic, config, log)
        try:
            until_equal(pair, topic, f"x.{topic}", 3)
            task.kill()
            task = TaskProcess(pair.target.bootstrap, topic, config, log)
            write(pair.source, topic, 200)
            until_equal(pair, topic, f"x.{topic}", 3)
            with connect(pair.source.bootstrap) as source, connect(pair.target.bootstrap) as target:
                for number in range(3):
                    assert partition(source, topic, number)[1] == partition(target, f"x.{topic}", number)[1]
            assert task.stop() == 0
        finally:
            task.kill()
