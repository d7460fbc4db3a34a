"""Without ZooKeeper nothing changes, and what is led is served on; when it returns all goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from penstock.errors import CoordinatorNotAvailable
from penstock.testing.wire_client import WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from tests.cluster.harness import PATIENCE, Cluster, running, wait_until
from tests.cluster.history import Writer, check, read_all
from tests.sim.group_host import commit_request

pytestmark = pytest.mark.timeout(300)


@pytest.mark.promise(
    "cluster",
    "Without a ZooKeeper quorum leaders still serve produce and fetch requests, and metadata changes "
    "wait; one of three ZooKeeper servers may fail",
)
def test_produce_and_fetch_go_on_while_the_quorum_is_lost_and_changes_wait_for_its_return(
    tmp_path: Path,
) -> None:
    with running(tmp_path, ensemble=3) as cluster:
        cluster.create_topic("t", min_insync_replicas="2")
        with Writer(cluster, "t") as writer:
            writer.wait_for_progress()
            for server in cluster.zookeepers[1:]:
                server.kill()
            # Longer than a session: brokers that cannot renew it serve on all the same.
            for _ in range(4):
                writer.wait_for_progress(200)
            assert _create_fails(cluster, "while-away")
            for server in cluster.zookeepers[1:]:
                server.start(wait=False)
            for server in cluster.zookeepers:
                server.wait_until_serving()
            wait_until("topics can be made again", lambda: not _create_fails(cluster, "afterwards"))
            # A leader that dies now is replaced again.
            leader = cluster.leader("t")
            leader.kill()
            wait_until("another leads", lambda: leader.id not in cluster.leaders("t").values())
            writer.wait_for_progress()
            leader.start()
            cluster.wait_in_sync("t")
            history = writer.stop()
        assert not history.failed
        check(history, read_all(cluster, "t"))


@pytest.mark.promise(
    "hostile input",
    "Writes that are not replicated within `offsets.commit.timeout.ms` (groups), "
    "`share.coordinator.write.timeout.ms` (share state) or 30 s (transactions) get "
    "COORDINATOR_NOT_AVAILABLE; they may still take effect later, as in Kafka",
)
def test_a_commit_is_answered_in_time_though_a_follower_is_dead_and_nobody_can_shrink_the_isr(
    tmp_path: Path,
) -> None:
    """As in Kafka: COORDINATOR_NOT_AVAILABLE after offsets.commit.timeout.ms; it may still count later."""
    settings = {"offsets.topic.num.partitions": "1", "offsets.commit.timeout.ms": "1000"}
    with running(tmp_path, ensemble=1, settings=settings) as cluster:
        cluster.create_topic("t", 1)
        with WireClient(cluster.nodes[1].clients.target, timeout=PATIENCE) as wire:
            asked = Message(key_type=0, coordinator_keys=["g"])
            wait_until("a coordinator", lambda: not _found(wire, asked).error_code)
            coordinator = cluster.nodes[_found(wire, asked).node_id]
        cluster.wait_in_sync("__consumer_offsets")
        with WireClient(coordinator.clients.target, timeout=PATIENCE) as wire:
            wait_until("it is loaded", lambda: _commit(wire, 1) == 0)
            for server in cluster.zookeepers:
                server.kill()
            dead = next(node for node in cluster.nodes.values() if node is not coordinator)
            dead.kill()
            assert _commit(wire, 2) == CoordinatorNotAvailable.code
            assert _commit(wire, 3) == CoordinatorNotAvailable.code
            for server in cluster.zookeepers:
                server.start(wait=False)
                server.wait_until_serving()
            dead.start()
        # Its session may have ended meanwhile, and another broker may lead.
        wait_until("it is replicated", lambda: _commit_anywhere(cluster, 4) == 0)


def _found(wire: WireClient, asked: Message) -> Any:
    return wire.request(ApiKey.FIND_COORDINATOR, 4, asked).coordinators[0]


def _commit(wire: WireClient, offset: int) -> int:
    answer = wire.request(ApiKey.OFFSET_COMMIT, 8, commit_request("g", {("t", 0): offset}))
    code: int = answer.topics[0].partitions[0].error_code
    return code


def _commit_anywhere(cluster: Cluster, offset: int) -> int:
    """At the broker that coordinates the group now."""
    with WireClient(cluster.nodes[1].clients.target, timeout=PATIENCE) as wire:
        found = _found(wire, Message(key_type=0, coordinator_keys=["g"]))
    if found.error_code:
        code: int = found.error_code
        return code
    with WireClient(cluster.nodes[found.node_id].clients.target, timeout=PATIENCE) as wire:
        return _commit(wire, offset)


def _create_fails(cluster: Cluster, name: str) -> bool:
    futures = cluster.admin.create_topics([NewTopic(name, 1, 3)], request_timeout=5, operation_timeout=4)
    try:
        futures[name].result()
    except KafkaException as error:
        return "already exists" not in str(error)
    return False
