"""`kafka-client-metrics` and a Java client that pushes its metrics, against a Penstock broker."""

from __future__ import annotations

import json
import time

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.testing import PenstockBroker
from tests.tools.conftest import KafkaTools


@pytest.mark.promise(
    "operations",
    "`kafka-client-metrics` sets, lists and deletes subscriptions, and Java's clients push for them",
)
def test_kafkas_tool_subscribes_and_a_java_client_pushes(kafka_tools: KafkaTools) -> None:
    with PenstockBroker() as broker:
        broker.create_topic("orders")
        at = ("--bootstrap-server", broker.bootstrap)

        def tool(*arguments: str) -> str:
            return kafka_tools.run("kafka-client-metrics", *at, *arguments)

        tool("--alter", "--name", "java", "--metrics", "org.apache.kafka.producer.", "--interval", "100",
             "--match", "client_software_name=apache-kafka-java")  # fmt: skip
        assert tool("--list").split() == ["java"]
        described = tool("--describe", "--name", "java")
        assert "interval.ms=100" in described and "metrics=org.apache.kafka.producer." in described
        kafka_tools.run(
            "kafka-producer-perf-test", "--topic", "orders", "--num-records", "30", "--record-size", "10",
            "--throughput", "10", "--producer-props", f"bootstrap.servers={broker.bootstrap}",
            "client.id=perf",
        )  # fmt: skip

        def shown(*arguments: str) -> list[dict[str, object]]:
            run = CliRunner().invoke(cli, ["clients", *arguments, "--bootstrap", broker.bootstrap, "--json"])
            assert run.exit_code == 0, run.output
            return list(json.loads(run.stdout))

        end = time.monotonic() + 60
        while not (found := shown("list")):
            assert time.monotonic() < end, "nothing was pushed"
        assert [(one["client_id"], one["software"]) for one in found] == [("perf", "apache-kafka-java")]
        (one,) = shown("describe", "perf")
        names = {each["name"] for each in one["metrics"]}  # type: ignore[attr-defined]
        assert names and all(name.startswith("org.apache.kafka.producer.") for name in names)
        tool("--delete", "--name", "java")
        assert tool("--list").split() == []
