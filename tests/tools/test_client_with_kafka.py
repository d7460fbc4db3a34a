"""Penstock's own client against an Apache Kafka broker: the protocol is the boundary, as Kafka speaks it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from penstock.client import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    AuthenticationFailed,
    Cluster,
)
from penstock.client.groups import committed_metadata, list_groups
from penstock.spark.source.reading import read_range
from tests.tools.conftest import KafkaTools
from tests.tools.kafka_broker import JAAS, Kafka, apache_kafka


@pytest.fixture(scope="module")
def kafka(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with apache_kafka(kafka_tools, tmp_path_factory.mktemp("kafka")) as started:
        yield started


def values(cluster: Cluster, topic: str, end: int, isolation: int = READ_UNCOMMITTED) -> list[bytes]:
    batches = read_range(cluster, topic, 0, 0, end, isolation=isolation)
    return [value for batch in batches for value in batch["value"].to_pylist()]


@pytest.mark.promise(
    "client library", "The client works with Apache Kafka 4.1, and with the request versions of Kafka 2.8"
)
def test_topics_offsets_and_records(kafka: Kafka) -> None:
    with kafka.connect() as cluster:
        assert cluster.create_topic("records", 2, {"retention.ms": "-1"})
        assert not cluster.create_topic("records", 2, if_absent=True)
        assert cluster.partitions(["records", "absent"]).keys() == {"records"}
        expected = {}
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            producer = kafka.producer(**{"compression.type": codec})
            for i in range(1000):
                text = f"{codec} {i}" * 5
                producer.produce("records", text, f"k{i}", 0, timestamp=1000 + i, headers={"codec": codec})
                expected[len(expected)] = text.encode()
            assert producer.flush(60) == 0
        place = ("records", 0)
        assert cluster.list_offsets({place: EARLIEST, ("records", 1): LATEST}) == {
            place: 0,
            ("records", 1): 0,
        }
        assert cluster.list_offsets({place: LATEST}) == {place: 5000}
        assert cluster.list_offsets({place: 10**13}) == {place: None}
        assert values(cluster, "records", 5000) == list(expected.values())
        (last,) = read_range(cluster, "records", 0, 4999, 5000, headers=True)
        assert last["headers"].to_pylist() == [[{"key": "codec", "value": b"zstd"}]]
        assert last["key"].to_pylist() == [b"k999"]


@pytest.mark.promise(
    "client library", "The client works with Apache Kafka 4.1, and with the request versions of Kafka 2.8"
)
def test_committed_offsets(kafka: Kafka) -> None:
    with kafka.connect() as cluster:
        cluster.create_topic("committed", 1, if_absent=True)
        assert cluster.committed("a-group", [("committed", 0)]) == {("committed", 0): None}
        cluster.commit_offsets("a-group", {("committed", 0): 17})
        assert cluster.committed("a-group", [("committed", 0)]) == {("committed", 0): 17}
        cluster.commit_offsets("a-group", {("committed", 0): 18}, "a note")
        assert committed_metadata(cluster, "a-group", [("committed", 0)]) == {("committed", 0): "a note"}
        assert "a-group" in list_groups(cluster)


@pytest.mark.promise(
    "client library", "The client works with Apache Kafka 4.1, and with the request versions of Kafka 2.8"
)
def test_transactions_of_a_kafka_log(kafka: Kafka) -> None:
    with kafka.connect() as cluster:
        cluster.create_topic("transactions", 1, if_absent=True)
        producer = kafka.producer(**{"transactional.id": "t"})
        producer.init_transactions(60)
        for i, end in enumerate(("commit", "abort", "commit", "abort")):
            producer.begin_transaction()
            for _ in range(3):
                producer.produce("transactions", f"{end} {i}", partition=0)
            if end == "commit":
                producer.commit_transaction(60)
            else:
                assert producer.flush(60) == 0  # an abort would drop what was not sent yet
                producer.abort_transaction(60)
        place = ("transactions", 0)
        # Kafka answers before the last marker is written: the end that is committed comes a moment later.
        deadline = time.monotonic() + 60
        end_offset = None
        while end_offset != 16 and time.monotonic() < deadline:
            end_offset = cluster.list_offsets({place: LATEST}, READ_COMMITTED)[place]
        assert end_offset == 16
        assert values(cluster, "transactions", 16, READ_COMMITTED) == [b"commit 0"] * 3 + [b"commit 2"] * 3
        assert len(values(cluster, "transactions", 16)) == 12


@pytest.mark.promise(
    "client library", "SASL PLAIN and SCRAM work, the server is verified, and logins are renewed in time"
)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kafka_lets_in_who_knows_the_password(kafka: Kafka, mechanism: str) -> None:
    def settings(password: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{JAAS}.LoginModule required username="alice" password="{password}";',
        }

    with kafka.connect(**settings("wonder")) as cluster:
        cluster.create_topic("secured", 1, if_absent=True)
        assert "secured" in cluster.topics()
    with kafka.connect(**settings("wrong")) as cluster:
        with pytest.raises(AuthenticationFailed, match=f"refused {mechanism} as alice"):
            cluster.topics()
