"""Kafka's command-line tools, with the Java client inside them, against a broker process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.testing import PenstockBroker
    from tests.tools.conftest import KafkaTools


@pytest.mark.promise("clients", "Kafka 4.1's console tools and Java client work unchanged")
def test_kafka_topics_creates_lists_describes_alters_and_deletes(
    kafka_tools: KafkaTools, penstock: PenstockBroker
) -> None:
    def topics(*arguments: str) -> str:
        return kafka_tools.run("kafka-topics", "--bootstrap-server", penstock.bootstrap, *arguments)

    topics("--create", "--topic", "orders", "--partitions", "3", "--config", "retention.ms=60000")
    assert topics("--list").split() == ["orders"]

    described = topics("--describe", "--topic", "orders")
    assert "PartitionCount: 3" in described
    assert "ReplicationFactor: 1" in described
    assert "retention.ms=60000" in described
    assert described.count("Partition: ") == 3

    topics("--alter", "--topic", "orders", "--partitions", "5")
    assert "PartitionCount: 5" in topics("--describe", "--topic", "orders")

    topics("--delete", "--topic", "orders")
    assert topics("--list").split() == []


def test_kafka_topics_reports_a_topic_that_exists_and_one_that_does_not(
    kafka_tools: KafkaTools, penstock: PenstockBroker
) -> None:
    penstock.create_topic("orders")
    server = ("--bootstrap-server", penstock.bootstrap)
    again = kafka_tools.run("kafka-topics", *server, "--create", "--topic", "orders", ok=False)
    assert "TopicExistsException" in again
    missing = kafka_tools.run("kafka-topics", *server, "--describe", "--topic", "nowhere", ok=False)
    assert "does not exist" in missing


@pytest.mark.promise("clients", "Kafka 4.1's console tools and Java client work unchanged")
def test_kafka_configs_alters_and_describes_topics_and_brokers(
    kafka_tools: KafkaTools, penstock: PenstockBroker
) -> None:
    penstock.create_topic("orders")

    def configs(*arguments: str) -> str:
        return kafka_tools.run("kafka-configs", "--bootstrap-server", penstock.bootstrap, *arguments)

    topic = ("--entity-type", "topics", "--entity-name", "orders")
    configs(*topic, "--alter", "--add-config", "retention.ms=1234,cleanup.policy=[compact,delete]")
    described = configs(*topic, "--describe")
    assert "retention.ms=1234" in described
    assert "cleanup.policy=compact,delete" in described
    assert "DYNAMIC_TOPIC_CONFIG" in described

    configs(*topic, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in configs(*topic, "--describe")
    assert "retention.ms=604800000" in configs(*topic, "--describe", "--all")

    brokers = ("--entity-type", "brokers", "--entity-default")
    configs(*brokers, "--alter", "--add-config", "log.retention.ms=5678")
    assert "log.retention.ms=5678" in configs(*brokers, "--describe")
    assert "retention.ms=5678" in configs(*topic, "--describe", "--all")

    loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")
    assert "penstock.broker.topics=WARN" in configs(*loggers, "--describe")
    configs(*loggers, "--alter", "--add-config", "penstock.broker.topics=DEBUG")
    assert "penstock.broker.topics=DEBUG" in configs(*loggers, "--describe")


@pytest.mark.promise("clients", "Kafka 4.1's console tools and Java client work unchanged")
# All codecs through librdkafka and kafka-python, which start in no time: tests/clients.
@pytest.mark.parametrize(
    "codec",
    ["none", "zstd", *(pytest.param(each, marks=pytest.mark.long) for each in ("gzip", "snappy", "lz4"))],
)
def test_console_producer_and_consumer_round_trip(
    kafka_tools: KafkaTools, penstock: PenstockBroker, codec: str
) -> None:
    penstock.create_topic("lines")
    lines = [f"k{i}\tvalue number {i}" for i in range(200)]
    kafka_tools.run(
        *("kafka-console-producer", "--bootstrap-server", penstock.bootstrap, "--topic", "lines"),
        *("--compression-codec", codec, "--property", "parse.key=true"),
        input="\n".join(lines) + "\n",
    )
    read = kafka_tools.run(
        *("kafka-console-consumer", "--bootstrap-server", penstock.bootstrap, "--topic", "lines"),
        *("--partition", "0", "--offset", "earliest", "--max-messages", "200", "--timeout-ms", "30000"),
        *("--property", "print.key=true"),
    )
    assert read.splitlines() == lines


def test_console_consumer_starts_at_an_offset(kafka_tools: KafkaTools, penstock: PenstockBroker) -> None:
    penstock.create_topic("lines")
    penstock.produce("lines", [f"line {i}" for i in range(50)])
    read = kafka_tools.run(
        *("kafka-console-consumer", "--bootstrap-server", penstock.bootstrap, "--topic", "lines"),
        *("--partition", "0", "--offset", "45", "--max-messages", "5", "--timeout-ms", "30000"),
    )
    assert read.splitlines() == [f"line {i}" for i in range(45, 50)]


def test_kafka_get_offsets_answers_earliest_latest_and_max_timestamp(
    kafka_tools: KafkaTools, penstock: PenstockBroker
) -> None:
    penstock.create_topic("events", partitions=2)
    # The newest timestamp is not the last record.
    stamps = [1_700_000_000_000 + n for n in (0, 5, 9, 3, 4)]
    penstock.produce("events", [{"value": str(n), "timestamp": stamp} for n, stamp in enumerate(stamps)])

    def offsets(time: str) -> list[str]:
        said = kafka_tools.run(
            *("kafka-get-offsets", "--bootstrap-server", penstock.bootstrap, "--topic", "events"),
            *("--time", time),
        )
        return sorted(line for line in said.split() if not line.endswith(":"))

    assert offsets("earliest") == ["events:0:0", "events:1:0"]
    assert offsets("latest") == ["events:0:5", "events:1:0"]
    assert "events:0:2" in offsets("max-timestamp")
    assert "events:0:1" in offsets(str(stamps[1]))


@pytest.mark.promise("topics", "DeleteRecords moves the log start offset, which survives kill -9")
def test_kafka_delete_records_moves_the_log_start(
    kafka_tools: KafkaTools, penstock: PenstockBroker, tmp_path: Path
) -> None:
    penstock.create_topic("events")
    penstock.produce("events", [str(n) for n in range(20)])
    wanted = tmp_path / "offsets.json"
    wanted.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "events", "partition": 0, "offset": 12}]})
    )
    server = ("--bootstrap-server", penstock.bootstrap)
    said = kafka_tools.run("kafka-delete-records", *server, "--offset-json-file", str(wanted))
    assert "low_watermark: 12" in said
    said = kafka_tools.run("kafka-get-offsets", *server, "--topic", "events", "--time", "earliest")
    assert said.split() == ["events:0:12"]


def test_kafka_log_dirs_shows_the_size_of_each_partition(
    kafka_tools: KafkaTools, penstock: PenstockBroker
) -> None:
    penstock.create_topic("events", partitions=2)
    penstock.produce("events", ["x" * 1000] * 10)
    said = kafka_tools.run("kafka-log-dirs", "--bootstrap-server", penstock.bootstrap, "--describe")
    report = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    (directory,) = report["brokers"][0]["logDirs"]
    sizes = {entry["partition"]: entry["size"] for entry in directory["partitions"]}
    assert sizes["events-0"] > 10_000
    assert sizes["events-1"] == 0
    assert directory["error"] is None


def test_kafka_cluster_and_broker_api_versions_know_the_broker(
    kafka_tools: KafkaTools, penstock: PenstockBroker
) -> None:
    said = kafka_tools.run("kafka-cluster", "cluster-id", "--bootstrap-server", penstock.bootstrap)
    assert said.startswith("Cluster ID: ")
    said = kafka_tools.run("kafka-broker-api-versions", "--bootstrap-server", penstock.bootstrap)
    produce = next(line for line in said.splitlines() if "Produce(0)" in line)
    assert "UNSUPPORTED" not in produce
    assert "UNKNOWN" not in said


@pytest.mark.promise("clients", "Kafka 4.1's console tools and Java client work unchanged")
@pytest.mark.parametrize(
    "properties",
    [
        pytest.param(["acks=all"], marks=pytest.mark.long),
        ["acks=1", "enable.idempotence=false", "compression.type=lz4"],
        pytest.param(["acks=0", "enable.idempotence=false"], marks=pytest.mark.long),
        ["acks=all", "compression.type=zstd", "batch.size=200000", "linger.ms=20"],
    ],
    ids=" ".join,
)
def test_producer_performance_with_the_java_client_loses_nothing(
    kafka_tools: KafkaTools, penstock: PenstockBroker, properties: list[str]
) -> None:
    penstock.create_topic("load", partitions=3)
    said = kafka_tools.run(
        *("kafka-producer-perf-test", "--topic", "load", "--num-records", "20000", "--record-size", "200"),
        *("--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={penstock.bootstrap}", *properties),
    )
    assert "20000 records sent" in said
    ends = kafka_tools.run("kafka-get-offsets", "--bootstrap-server", penstock.bootstrap, "--topic", "load")
    assert sum(int(line.rsplit(":", 1)[1]) for line in ends.split()) == 20_000
