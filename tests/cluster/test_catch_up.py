"""A follower that was far behind catches up, also when it is killed on the way: its log is the leader's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.cluster.harness import PATIENCE, Cluster, Node, running, wait_until
from tests.cluster.history import Writer, check, read_all

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # Small answers, so that there are many of them.
    settings = {"replica.fetch.max.bytes": "65536", "replica.fetch.response.max.bytes": "131072"}
    with running(tmp_path_factory.mktemp("behind"), settings=settings) as cluster:
        yield cluster


def log_of(node: Node, topic: str, partition: int) -> bytes:
    files = sorted(Path(node.directory, f"{topic}-{partition}").glob("*.log"))
    return b"".join(file.read_bytes() for file in files)


@pytest.mark.promise(
    "topics",
    "A follower that was down catches up, even if it is killed while it does, and its log equals the "
    "leader's",
)
def test_a_follower_far_behind_ends_with_the_leaders_log(cluster: Cluster) -> None:
    cluster.create_topic("t", 3)
    follower = cluster.nodes[3]
    follower.stop()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "1", "log_level": 0})
    for number in range(20_000):
        producer.produce("t", b"%d" % number * 200, partition=number % 3)
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0
    before = len(log_of(follower, "t", 0))
    with Writer(cluster, "t", name="w") as writer:
        follower.start()
        wait_until("it has begun", lambda: len(log_of(follower, "t", 0)) > before)
        follower.kill()
        follower.start()
        cluster.wait_in_sync("t")
        writer.wait_for_progress()
        history = writer.stop()
    cluster.wait_in_sync("t")
    for partition in range(3):
        leader = cluster.leader("t", partition)
        others = [node for node in cluster.nodes.values() if node is not leader]
        for node in others:
            wait_until(
                f"broker {node.id} has all of {partition}",
                lambda node=node, leader=leader, partition=partition: (  # type: ignore[misc]
                    log_of(node, "t", partition) == log_of(leader, "t", partition)
                ),
            )
    written = read_all(cluster, "t")
    ours = {
        number: [(offset, value) for offset, value in records if value.startswith(b"w:")]
        for number, records in written.items()
    }
    check(history, ours)
    assert sum(map(len, written.values())) == 20_000 + sum(map(len, ours.values()))
