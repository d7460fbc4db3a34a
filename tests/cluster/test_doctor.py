"""`penstock doctor cluster` while brokers are away."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from tests.cluster.harness import Cluster, wait_until


def findings(cluster: Cluster, topic: str) -> list[dict[str, Any]] | None:
    """None while the command fails: it may ask a broker that was killed a moment ago."""
    words = ["doctor", "cluster", "-b", cluster.bootstrap, "--watch", "0.5", "--json"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code in (0, 1), done.output
    if not done.stdout:
        assert "closed the connection" in done.stderr or "no answer" in done.stderr, done.stderr
        return None
    found = json.loads(done.stdout)["findings"]
    return [each for each in found if each["where"] == f"{topic}-0"]


def finding(cluster: Cluster, topic: str, check: str) -> dict[str, Any]:
    """The only one, once the broker that is asked has heard of what happened."""
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        found[:] = findings(cluster, topic) or []
        return [one["check"] for one in found] == [check]

    wait_until(f"{topic} is {check}", is_there)
    return found[0]


@pytest.mark.promise(
    "commands",
    "`penstock doctor` finds faults of a cluster, a data directory or a Spark installation, and says how "
    "to fix them",
)
def test_partitions_without_a_replica_or_a_leader_are_found(
    cluster: Cluster,
) -> None:
    cluster.create_topic("doctored", partitions=1, replicas=2)
    cluster.wait_in_sync("doctored", 2)
    wait_until("nothing is found", lambda: findings(cluster, "doctored") == [])
    leader = cluster.leader("doctored")
    (other,) = cluster.in_sync("doctored")[0] - {leader.id}
    follower = cluster.nodes[other]
    follower.kill()
    found = finding(cluster, "doctored", "under-replicated")
    assert f"missing on {other}" in found["what"]
    leader.kill()
    found = finding(cluster, "doctored", "offline")
    assert f"start one of the brokers {leader.id}" in found["remedy"]
    leader.start()
    follower.start()
    cluster.wait_in_sync("doctored", 2)
    wait_until("nothing is found", lambda: findings(cluster, "doctored") == [])
