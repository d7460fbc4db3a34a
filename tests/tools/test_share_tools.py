"""Kafka's console share consumer, with the Java KafkaShareConsumer inside it, and its group command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing import PenstockBroker
    from tests.tools.conftest import KafkaTools


@pytest.mark.promise("share groups", "Kafka's console share consumer and `kafka-share-groups` work")
def test_the_java_share_consumer_takes_from_a_queue_and_its_group_is_administered(
    kafka_tools: KafkaTools, penstock: PenstockBroker
) -> None:
    server = ("--bootstrap-server", penstock.bootstrap)
    penstock.create_topic("jobs", partitions=2)
    group = ("--entity-type", "groups", "--entity-name", "workers")
    kafka_tools.run(
        "kafka-configs", *server, *group, "--alter", "--add-config", "share.auto.offset.reset=earliest"
    )
    assert "share.auto.offset.reset=earliest" in kafka_tools.run(
        "kafka-configs", *server, *group, "--describe"
    )

    penstock.produce("jobs", [f"job {n}" for n in range(20)])

    def take(count: int, *more: str) -> list[str]:
        output = kafka_tools.run(
            "kafka-console-share-consumer", *server, "--topic", "jobs", "--group", "workers",
            "--max-messages", str(count), "--timeout-ms", "20000", *more,
        )  # fmt: skip
        return output.split("\n")[:-1]

    assert take(20, "--release") == [f"job {n}" for n in range(20)]
    assert take(20) == [f"job {n}" for n in range(20)]

    def groups(*arguments: str) -> str:
        return kafka_tools.run("kafka-share-groups", *server, *arguments)

    assert groups("--list").split() == ["workers"]
    described = groups("--describe", "--group", "workers").split()
    assert described[-8:] == ["workers", "jobs", "0", "20", "workers", "jobs", "1", "0"]
    assert "Empty" in groups("--describe", "--group", "workers", "--state")
    assert "Successful" in groups("--delete-offsets", "--group", "workers", "--topic", "jobs")
    assert "successful" in groups("--delete", "--group", "workers")
    assert groups("--list").split() == []
