"""Kafka's own tools for moving partitions and electing leaders, on a cluster of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.harness import running, wait_until

if TYPE_CHECKING:
    from tests.tools.conftest import KafkaTools


@pytest.mark.promise("reassignment", "Kafka's own tools reassign partitions and elect leaders")
def test_kafka_reassign_partitions_and_kafka_leader_election_work_on_a_cluster(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    with running(tmp_path, brokers=3) as cluster:
        server = ("--bootstrap-server", cluster.bootstrap)
        cluster.create_topic("moved", 1, 2)
        old = list(cluster.metadata("moved").topics["moved"].partitions[0].replicas)
        (new,) = {1, 2, 3} - set(old)
        plan = tmp_path / "plan.json"
        target = [new, old[0]]
        partitions = [{"topic": "moved", "partition": 0, "replicas": target}]
        plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
        options = (*server, "--reassignment-json-file", str(plan))
        said = kafka_tools.run("kafka-reassign-partitions", *options, "--execute", "--throttle", "5000000")
        assert "Successfully started partition reassignment" in said
        wait_until(
            "it has arrived",
            lambda: list(cluster.metadata("moved").topics["moved"].partitions[0].replicas) == target,
        )
        said = kafka_tools.run("kafka-reassign-partitions", *options, "--verify")
        assert "is completed" in said and "Clearing broker-level throttles" in said
        said = kafka_tools.run("kafka-reassign-partitions", *server, "--list")
        assert "No partition reassignments found" in said

        elected = ("--election-type", "preferred", "--topic", "moved", "--partition", "0")
        said = kafka_tools.run("kafka-leader-election", *server, *elected)
        assert "Successfully completed leader election" in said or "Valid replica already elected" in said
        wait_until("the first replica leads", lambda: cluster.leaders("moved")[0] == new)
