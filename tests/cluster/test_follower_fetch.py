"""Consumers read from a follower in their rack (KIP-392), and really from there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from penstock.errors import (
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from penstock.testing.wire_client import WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message
from tests.cluster.harness import PATIENCE, Cluster, Node, running, wait_until

pytestmark = pytest.mark.timeout(300)

SELECTOR = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("racks"), settings=SELECTOR) as cluster:
        yield cluster


def produce(node: Node, topic: str, *values: bytes, acks: int = -1) -> int:
    """Past the link that clients use, as soon as the broker knows the topic; the error code."""
    missing = (UnknownTopicOrPartition.code, NotLeaderOrFollower.code)
    wait_until("the topic is there", lambda: fetch(node, topic).error_code not in missing)
    records = [Record(i, 1_700_000_000_000, None, value, ()) for i, value in enumerate(values)]
    message = Message(
        transactional_id=None,
        acks=acks,
        timeout_ms=int(PATIENCE * 1000),
        topic_data=[
            Message(name=topic, partition_data=[Message(index=0, records=bytes(build_batch(records)))])
        ],
    )
    with WireClient(node.clients.target, timeout=PATIENCE) as client:
        answer = client.request(ApiKey.PRODUCE, 9, message)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def fetch(
    node: Node, topic: str, offset: int = 0, *, version: int = 12, rack: str = "", epoch: int = -1
) -> Message:
    partition = Message(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=1 << 20,
    )
    message = Message(
        replica_id=-1,
        max_wait_ms=200,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[Message(topic=topic, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id=rack,
    )
    with WireClient(node.clients.target, timeout=PATIENCE) as client:
        answer = client.request(ApiKey.FETCH, version, message)
    found: Message = answer.responses[0].partitions[0]
    return found


def follower_of(cluster: Cluster, topic: str) -> Node:
    leader = cluster.leader(topic)
    return next(node for node in cluster.nodes.values() if node is not leader)


@pytest.mark.promise(
    "topics",
    "Consumers read from a follower in their rack, up to its high watermark; their reads are fenced by "
    "the leader epoch (KIP-392)",
)
def test_a_leader_sends_consumers_to_the_replica_in_their_rack(cluster: Cluster) -> None:
    cluster.create_topic("told", 1)
    leader, follower = cluster.leader("told"), follower_of(cluster, "told")
    assert produce(leader, "told", b"a", b"b") == 0
    sent = fetch(leader, "told", rack=f"rack-{follower.id}")
    assert (sent.error_code, sent.preferred_read_replica, sent.high_watermark) == (0, follower.id, 2)
    assert not sent.records
    for rack in ("", f"rack-{leader.id}", "rack-of-nobody"):
        read = fetch(leader, "told", rack=rack)
        assert read.preferred_read_replica == -1 and read.records
    assert fetch(leader, "told", 3, rack=f"rack-{follower.id}").error_code == OffsetOutOfRange.code


@pytest.mark.promise(
    "topics",
    "Consumers read from a follower in their rack, up to its high watermark; their reads are fenced by "
    "the leader epoch (KIP-392)",
)
def test_a_follower_serves_consumers_up_to_its_high_watermark_and_nobody_else(cluster: Cluster) -> None:
    cluster.create_topic("served", 1)
    leader, follower = cluster.leader("served"), follower_of(cluster, "served")
    assert produce(leader, "served", b"a", b"b") == 0
    wait_until("the follower knows", lambda: fetch(follower, "served").high_watermark == 2)
    read = fetch(follower, "served")
    assert read.error_code == 0 and read.records == fetch(leader, "served").records
    assert fetch(follower, "served", 3).error_code == OffsetOutOfRange.code
    # Consumers from before KIP-392 expect the leader, and writers always do.
    assert fetch(follower, "served", version=10).error_code == NotLeaderOrFollower.code
    assert produce(follower, "served", b"c") == NotLeaderOrFollower.code
    with WireClient(leader.clients.target, timeout=PATIENCE) as client:
        metadata = client.request(
            ApiKey.METADATA, 7, Message(topics=[Message(name="served")], allow_auto_topic_creation=False)
        )
    epoch = metadata.topics[0].partitions[0].leader_epoch
    assert fetch(follower, "served", epoch=epoch).error_code == 0
    assert fetch(follower, "served", epoch=epoch + 1).error_code == UnknownLeaderEpoch.code
    leader.restart()
    cluster.wait_in_sync("served")
    third = next(
        node for node in cluster.nodes.values() if node.id not in (leader.id, cluster.leader("served").id)
    )
    wait_until("it knows the new leader", lambda: fetch(third, "served", epoch=epoch).error_code != 0)
    assert fetch(third, "served", epoch=epoch).error_code == FencedLeaderEpoch.code


def read_librdkafka(cluster: Cluster, topic: str, rack: str, cut: Callable[[], None]) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "client.rack": rack,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        first = consumer.consume(1, PATIENCE)
        cut()
        return [message.value() for message in first + consumer.consume(2, PATIENCE)]
    finally:
        consumer.close()


def read_aiokafka(cluster: Cluster, topic: str, rack: str, cut: Callable[[], None]) -> list[bytes]:
    async def read() -> list[bytes]:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            client_rack=rack,
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            found = [await asyncio.wait_for(consumer.getone(), PATIENCE)]
            await asyncio.to_thread(cut)
            found += [await asyncio.wait_for(consumer.getone(), PATIENCE) for _ in range(2)]
            return [one.value for one in found]
        finally:
            await consumer.stop()

    return asyncio.run(read())


@pytest.mark.promise(
    "topics",
    "Consumers read from a follower in their rack, up to its high watermark; their reads are fenced by "
    "the leader epoch (KIP-392)",
)
@pytest.mark.parametrize("reader", [read_librdkafka, read_aiokafka])
def test_clients_read_from_the_follower_in_their_rack(
    cluster: Cluster, reader: Callable[..., list[bytes]]
) -> None:
    topic = reader.__name__
    cluster.create_topic(topic, 1)
    leader, follower = cluster.leader(topic), follower_of(cluster, topic)
    assert produce(leader, topic, b"one") == 0

    def cut() -> None:
        """No consumer reaches the leader any more: what it reads now comes from the follower."""
        leader.clients.cut()
        assert produce(leader, topic, b"two", b"three") == 0

    assert reader(cluster, topic, f"rack-{follower.id}", cut) == [b"one", b"two", b"three"]


@pytest.mark.promise(
    "topics",
    "Consumers read from a follower in their rack, up to its high watermark; their reads are fenced by "
    "the leader epoch (KIP-392)",
)
def test_kafka_python_reads_by_rack_too(cluster: Cluster) -> None:
    """It asks the leader again after every answer of a follower, so it needs both."""
    cluster.create_topic("by-rack", 1)
    leader, follower = cluster.leader("by-rack"), follower_of(cluster, "by-rack")
    assert produce(leader, "by-rack", b"one", b"two") == 0
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap.split(","),
        client_rack=f"rack-{follower.id}",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(PATIENCE * 1000),
    )
    try:
        consumer.assign([KafkaTopicPartition("by-rack", 0)])
        assert [next(consumer).value for _ in range(2)] == [b"one", b"two"]
        assert produce(leader, "by-rack", b"three") == 0
        assert next(consumer).value == b"three"
    finally:
        consumer.close(autocommit=False)
