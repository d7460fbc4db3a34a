"""Logs that part are brought together by leader epochs; unclean elections are off, and shown where on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.cluster.harness import Cluster, Node, wait_until
from tests.cluster.history import Writer, check, read_all

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def load(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Writer]:
    """Another topic is written and read all the while; what happens to one must not harm it."""
    topic = f"beside-{len(request.node.name)}"
    cluster.create_topic(topic, min_insync_replicas="2")
    with Writer(cluster, topic) as writer:
        writer.wait_for_progress()
        yield writer
        cluster.mend()
        writer.wait_for_progress()
        history = writer.stop()
    assert not history.failed
    check(history, read_all(cluster, topic))


@pytest.mark.promise(
    "cluster", "Diverging logs are truncated by leader epoch, after which all replicas are equal"
)
def test_a_tail_that_no_other_replica_has_is_cut_when_its_leader_returns(cluster: Cluster) -> None:
    """It was acknowledged by the leader alone (acks=1), so it may go; what all had stays, on all alike."""
    cluster.create_topic("tails", partitions=1, min_insync_replicas="2")
    with Writer(cluster, "tails", partitions=1) as writer:
        writer.wait_for_progress()
        before = writer.stop()
    old = cluster.leader("tails")
    old.peers.cut()
    _write_to(cluster, "tails", [b"tail:%d" % number for number in range(100)], acks=1)
    old.kill()
    wait_until("another leads", lambda: cluster.leaders("tails")[0] not in (old.id, -1))
    _write_to(cluster, "tails", [b"new:%d" % number for number in range(30)], acks=-1)
    old.peers.heal()
    old.start()
    cluster.wait_in_sync("tails")
    log = read_all(cluster, "tails")
    check(before, {0: [one for one in log[0] if one[1].startswith(b"w:")]})
    values = [value for _, value in log[0]]
    assert values.count(b"new:29") == 1
    assert not any(value.startswith(b"tail:") for value in values)
    wait_until(
        "all replicas are alike",
        lambda: len({_digest(node, "tails-0") for node in cluster.nodes.values()}) == 1,
    )


@pytest.mark.promise(
    "cluster",
    "Without unclean elections a partition stays offline until an in-sync replica returns; with them, "
    "consumers get an error where records were lost",
)
def test_without_unclean_elections_a_partition_waits_for_its_last_in_sync_replica(cluster: Cluster) -> None:
    cluster.create_topic("clean", partitions=1, replicas=2, min_insync_replicas="1")
    last = _leave_alone(cluster, "clean")
    last.kill()
    wait_until("it has no leader", lambda: cluster.leaders("clean")[0] == -1)
    refused = _write_to(cluster, "clean", [b"v"], acks=-1, timeout_ms=3000)
    assert refused, "a record was taken though nobody may lead"
    last.peers.heal()
    last.start()
    assert cluster.leader("clean") is last
    assert not _write_to(cluster, "clean", [b"v"], acks=-1)
    values = [value for _, value in read_all(cluster, "clean")[0]]
    assert values.count(b"alone:9") == 1 and values[-1] == b"v"


@pytest.mark.promise(
    "cluster",
    "Without unclean elections a partition stays offline until an in-sync replica returns; with them, "
    "consumers get an error where records were lost",
)
def test_an_unclean_election_serves_on_and_clients_are_shown_what_is_gone(cluster: Cluster) -> None:
    cluster.create_topic("unclean", partitions=1, replicas=2, min_insync_replicas="1")
    last = _leave_alone(cluster, "unclean")
    end = read_all(cluster, "unclean")[0][-1][0] + 1
    last.kill()
    wait_until("it has no leader", lambda: cluster.leaders("unclean")[0] == -1)
    _allow_unclean(cluster, "unclean")
    assert cluster.leader("unclean") is not last
    # A reader that has read to the old end is told that its offset is not there.
    assert _error_when_reading_from(cluster, "unclean", end) == KafkaError._AUTO_OFFSET_RESET
    assert not _write_to(cluster, "unclean", [b"after:%d" % number for number in range(20)], acks=-1)
    last.peers.heal()
    last.start()
    cluster.wait_in_sync("unclean", 2)
    values = [value for _, value in read_all(cluster, "unclean")[0]]
    assert not any(value.startswith(b"alone:") for value in values)
    assert values.count(b"after:19") == 1
    replicas = [node for node in cluster.nodes.values() if (node.directory / "unclean-0").exists()]
    assert len(replicas) == 2
    wait_until("both are alike", lambda: len({_digest(node, "unclean-0") for node in replicas}) == 1)


def _leave_alone(cluster: Cluster, topic: str) -> Node:
    """Its leader, which is alone in sync and has records that the other replica never got."""
    assert not _write_to(cluster, topic, [b"both:%d" % number for number in range(10)], acks=-1)
    leader = cluster.leader(topic)
    leader.peers.cut()
    # A follower that lacks nothing stays in sync however long it is silent, so there must be something.
    assert not _write_to(cluster, topic, [b"alone:%d" % number for number in range(10)], acks=1)
    wait_until("it is alone in sync", lambda: cluster.in_sync(topic)[0] == {leader.id})
    return leader


def _write_to(
    cluster: Cluster, topic: str, values: list[bytes], *, acks: int, timeout_ms: int = 60000
) -> list[KafkaError]:
    """The errors; none when all was acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": acks,
            "message.timeout.ms": timeout_ms,
            "topic.metadata.refresh.interval.ms": 1000,
            "log_level": 0,
        }
    )
    errors: list[KafkaError] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: error and errors.append(error))
    assert producer.flush(90) == 0
    return errors


def _allow_unclean(cluster: Cluster, topic: str) -> None:
    entry = ConfigEntry("unclean.leader.election.enable", "true", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in cluster.admin.incremental_alter_configs([resource]).values():
        future.result()


def _error_when_reading_from(cluster: Cluster, topic: str, offset: int) -> int:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        for _ in range(60):
            message = consumer.poll(1)
            error = None if message is None else message.error()
            if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
                return error.code()
        raise AssertionError("the reader was not told")
    finally:
        consumer.close()


def _digest(node: Node, partition: str) -> str:
    digest = hashlib.sha256()
    for segment in sorted((node.directory / partition).glob("*.log")):
        digest.update(segment.name.encode() + Path(segment).read_bytes())
    return digest.hexdigest()
