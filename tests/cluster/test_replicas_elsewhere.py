"""What a broker answers for partitions that it does not lead or has no replica of, as Kafka answers it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from penstock.testing.wire_client import WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message
from tests.cluster.harness import PATIENCE, Cluster, Node, wait_until

pytestmark = pytest.mark.timeout(300)


def ask(node: Node, api: ApiKey, version: int, message: Message) -> Message:
    with WireClient(node.clients.target, timeout=PATIENCE) as client:
        return client.request(api, version, message)


def replicas(cluster: Cluster, topic: str) -> list[int]:
    return list(cluster.metadata(topic).topics[topic].partitions[0].replicas)


def produce(node: Node, topic: str) -> int:
    batch = bytes(build_batch([Record(0, 1_700_000_000_000, None, b"a", ())]))
    data = [Message(name=topic, partition_data=[Message(index=0, records=batch)])]
    answer = ask(node, ApiKey.PRODUCE, 9, Message(acks=-1, timeout_ms=30_000, topic_data=data))
    return int(answer.responses[0].partition_responses[0].error_code)


def fetch(node: Node, topic: str) -> int:
    partition = Message(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [Message(topic=topic, partitions=[partition])]
    answer = ask(node, ApiKey.FETCH, 12, Message(max_wait_ms=0, session_epoch=-1, topics=topics))
    return int(answer.responses[0].partitions[0].error_code)


def list_offsets(node: Node, topic: str) -> int:
    topics = [Message(name=topic, partitions=[Message(partition_index=0, timestamp=-1)])]
    answer = ask(node, ApiKey.LIST_OFFSETS, 7, Message(replica_id=-1, topics=topics))
    return int(answer.topics[0].partitions[0].error_code)


def end_of_epoch(node: Node, topic: str) -> int:
    topics = [Message(topic=topic, partitions=[Message(partition=0, leader_epoch=0)])]
    answer = ask(node, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, Message(replica_id=-1, topics=topics))
    return int(answer.topics[0].partitions[0].error_code)


def producers(node: Node, topic: str) -> Any:
    topics = [Message(name=topic, partition_indexes=[0])]
    return ask(node, ApiKey.DESCRIBE_PRODUCERS, 0, Message(topics=topics)).topics[0].partitions[0]


QUESTIONS = [
    produce,
    fetch,
    list_offsets,
    end_of_epoch,
    lambda node, topic: producers(node, topic).error_code,
]


@pytest.mark.promise(
    "protocol",
    "A broker without a replica of a partition returns NOT_LEADER_OR_FOLLOWER, and "
    "UNKNOWN_TOPIC_OR_PARTITION only for a missing partition; any replica answers DescribeProducers",
)
def test_a_broker_without_a_replica_says_that_it_does_not_lead(cluster: Cluster) -> None:
    cluster.create_topic("elsewhere", 1, 2)
    hosts = replicas(cluster, "elsewhere")
    (outside,) = (node for node in cluster.nodes.values() if node.id not in hosts)
    wait_until(
        "the broker knows the topic", lambda: fetch(outside, "elsewhere") != UnknownTopicOrPartition.code
    )
    assert [question(outside, "elsewhere") for question in QUESTIONS] == [NotLeaderOrFollower.code] * 5
    assert [question(outside, "absent") for question in QUESTIONS] == [UnknownTopicOrPartition.code] * 5


@pytest.mark.promise(
    "protocol",
    "A broker without a replica of a partition returns NOT_LEADER_OR_FOLLOWER, and "
    "UNKNOWN_TOPIC_OR_PARTITION only for a missing partition; any replica answers DescribeProducers",
)
def test_a_follower_describes_its_producers(cluster: Cluster) -> None:
    from confluent_kafka import Producer

    cluster.create_topic("described", 1, 3)
    cluster.wait_in_sync("described")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    producer.produce("described", b"a", partition=0)
    assert producer.flush(PATIENCE) == 0
    leader = cluster.leader("described")
    (known,) = producers(leader, "described").active_producers
    for node in cluster.nodes.values():
        wait_until(
            "the replica has the record", lambda node=node: producers(node, "described").active_producers
        )
        answer = producers(node, "described")
        assert (answer.error_code, answer.active_producers) == (0, [known]), node.id
