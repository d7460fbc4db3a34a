"""Links are cut, one kind at a time, and nothing that was acknowledged is lost."""

from __future__ import annotations

import random
import time

import pytest

from tests.cluster.harness import Cluster, wait_until
from tests.cluster.history import Writer, check, read_all

pytestmark = pytest.mark.timeout(300)


@pytest.mark.promise(
    "cluster",
    "A leader that loses only its connection to ZooKeeper is replaced; a leader that cannot reach its "
    "followers continues only if `min.insync.replicas` allows it",
)
def test_a_leader_cut_off_from_zookeeper_alone_is_replaced_and_acknowledges_nothing_more(
    cluster: Cluster,
) -> None:
    cluster.create_topic("no-zookeeper", min_insync_replicas="2")
    with Writer(cluster, "no-zookeeper") as writer:
        writer.wait_for_progress()
        old = cluster.leader("no-zookeeper")
        old.zookeeper.cut()
        others = [node for node in cluster.nodes.values() if node is not old]
        wait_until(
            "another leads, as the others see it",
            lambda: old.id not in _leaders_seen_by(cluster, others[0].clients.port, "no-zookeeper"),
        )
        writer.wait_for_progress()
        old.zookeeper.heal()
        cluster.wait_in_sync("no-zookeeper")
        writer.wait_for_progress()
        history = writer.stop()
    assert not history.failed
    check(history, read_all(cluster, "no-zookeeper"))


@pytest.mark.promise(
    "cluster",
    "A leader that loses only its connection to ZooKeeper is replaced; a leader that cannot reach its "
    "followers continues only if `min.insync.replicas` allows it",
)
def test_a_leader_that_its_followers_cannot_reach_goes_on_alone_only_where_that_is_enough(
    cluster: Cluster,
) -> None:
    """They fall out of sync, through the controller. With min.insync.replicas=1 it acknowledges then."""
    cluster.create_topic("no-followers", partitions=1, min_insync_replicas="1")
    with Writer(cluster, "no-followers", partitions=1) as writer:
        writer.wait_for_progress()
        leader = cluster.leader("no-followers")
        leader.peers.cut()
        wait_until("the leader is alone", lambda: cluster.in_sync("no-followers")[0] == {leader.id})
        writer.wait_for_progress()
        leader.peers.heal()
        cluster.wait_in_sync("no-followers")
        writer.wait_for_progress()
        history = writer.stop()
    assert not history.failed
    check(history, read_all(cluster, "no-followers"))


@pytest.mark.promise(
    "cluster",
    "Clients continue after a network partition; slow and broken connections lose and duplicate nothing",
)
def test_clients_that_were_cut_off_go_on_when_they_are_not(cluster: Cluster) -> None:
    cluster.create_topic("no-clients", min_insync_replicas="2")
    with Writer(cluster, "no-clients") as writer:
        writer.wait_for_progress()
        for node in cluster.nodes.values():
            node.clients.cut()
        time.sleep(2)  # the clients notice; there is no event to wait for when nobody can be asked
        for node in cluster.nodes.values():
            node.clients.heal()
        writer.wait_for_progress()
        history = writer.stop()
    assert not history.failed
    check(history, read_all(cluster, "no-clients"))


@pytest.mark.promise(
    "cluster",
    "Clients continue after a network partition; slow and broken connections lose and duplicate nothing",
)
def test_slow_and_breaking_links_lose_and_double_nothing(cluster: Cluster) -> None:
    """Delay on every link; connections that break under requests, so that these are lost or sent twice."""
    cluster.create_topic("shaken", min_insync_replicas="2")
    chance = random.Random(5)
    links = [link for node in cluster.nodes.values() for link in (node.clients, node.peers)]
    with Writer(cluster, "shaken") as writer:
        writer.wait_for_progress()
        for link in links:
            link.slow(0.01)
        for _ in range(12):
            chance.choice(links).shake()
            writer.wait_for_progress(5)
        for link in links:
            link.heal()
        writer.wait_for_progress()
        history = writer.stop()
    assert not history.failed
    cluster.wait_in_sync("shaken")
    check(history, read_all(cluster, "shaken"))


def _leaders_seen_by(cluster: Cluster, port: int, topic: str) -> set[int]:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
    found = admin.list_topics(topic, timeout=20).topics[topic]
    return {partition.leader for partition in found.partitions.values()}
