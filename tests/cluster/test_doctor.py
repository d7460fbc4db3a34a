"""`penstock doctor cluster` while brokers are away."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from tests.cluster.harness import Cluster, wait_until


def findings(cluster: Cluster, topic: str) -> list[dict[str, Any]]:
    words = ["doctor", "cluster", "-b", cluster.bootstrap, "--watch", "0.5", "--json"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code in (0, 1), done.output
    found = json.loads(done.stdout)["findings"]
    return [each for each in found if each["where"] == f"{topic}-0"]


@pytest.mark.promise(
    "commands",
    "`penstock doctor` finds faults of a cluster, a data directory or a Spark set-up, with a remedy",
)
def test_partitions_without_a_replica_or_a_leader_are_found(
    cluster: Cluster,
) -> None:
    cluster.create_topic("doctored", partitions=1, replicas=2)
    cluster.wait_in_sync("doctored", 2)
    assert findings(cluster, "doctored") == []
    leader = cluster.leader("doctored")
    (other,) = cluster.in_sync("doctored")[0] - {leader.id}
    follower = cluster.nodes[other]
    follower.kill()
    wait_until("the ISR shrinks", lambda: cluster.in_sync("doctored")[0] == {leader.id})
    (found,) = findings(cluster, "doctored")
    assert found["check"] == "under-replicated" and f"missing on {other}" in found["what"]
    leader.kill()
    wait_until("the partition is offline", lambda: cluster.leaders("doctored")[0] < 0)
    (found,) = findings(cluster, "doctored")
    assert found["check"] == "offline" and f"start one of the brokers {leader.id}" in found["remedy"]
    leader.start()
    follower.start()
    cluster.wait_in_sync("doctored", 2)
    assert findings(cluster, "doctored") == []
