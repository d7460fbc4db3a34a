"""Administration with kafka-python: also log dirs, producers and pages of partitions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, KafkaAdminClient, OffsetSpec
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

from penstock.testing import PenstockBroker
from tests.clients.adapters import CLIENTS, Rec


@pytest.fixture(scope="module")
def admin(broker: PenstockBroker) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


@pytest.mark.promise("protocol", "kafka-python recognises the broker's release from ApiVersions")
def test_the_release_is_recognised_from_the_api_table(admin: Any) -> None:
    assert admin._manager.broker_version >= (4, 0)


def test_topics_are_created_described_and_deleted(admin: Any, topic_name: Callable[[], str]) -> None:
    name = topic_name()
    admin.create_topics({name: {"num_partitions": 2, "configs": {"retention.ms": "1000"}}})
    (described,) = admin.describe_topics([name])
    assert [p["partition_index"] for p in described["partitions"]] == [0, 1]
    assert name in admin.list_topics()
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([name])
    admin.delete_topics([name])
    assert name not in admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([name])


def test_partitions_are_added(admin: Any, topic: str) -> None:
    admin.create_partitions({topic: 3})
    assert len(admin.describe_topics([topic])[0]["partitions"]) == 3


@pytest.mark.parametrize("incremental", [True, False])
def test_configs_are_altered_and_described(admin: Any, topic: str, incremental: bool) -> None:
    change = ConfigResource("TOPIC", topic, {"retention.ms": (AlterConfigOp.SET, "5000")})
    admin.alter_configs([change], incremental=incremental)
    found = admin.describe_configs([ConfigResource("TOPIC", topic)])["topic"][topic]
    assert found["retention.ms"]["value"] == "5000"
    admin.reset_configs([ConfigResource("TOPIC", topic, {"retention.ms": None})], incremental=incremental)
    found = admin.describe_configs([ConfigResource("TOPIC", topic)], config_filter="all")["topic"][topic]
    assert found["retention.ms"]["value"] == "604800000"


def test_log_dirs_show_the_size_of_each_partition(broker: PenstockBroker, admin: Any, topic: str) -> None:
    broker.produce(topic, [b"x" * 1000])
    ((answer,),) = [admin.describe_log_dirs({topic: [0]})]
    (log_dir,) = answer["log_dirs"]
    assert log_dir["error_code"] == 0
    assert log_dir["log_dir"] == broker.data_dir
    (described,) = [t for t in log_dir["topics"] if t["name"] == topic]
    (partition,) = described["partitions"]
    on_disk = os.path.getsize(os.path.join(broker.data_dir, f"{topic}-0", "00000000000000000000.log"))
    assert partition["partition_size"] == on_disk > 1000
    assert partition["offset_lag"] == 0


def test_the_cluster_is_described(broker: PenstockBroker, admin: Any) -> None:
    cluster = admin.describe_cluster()
    assert [(b["host"], b["port"]) for b in cluster["brokers"]] == [("127.0.0.1", broker.port)]
    assert cluster["controller_id"] == cluster["brokers"][0]["broker_id"]


def test_records_are_deleted_up_to_an_offset(broker: PenstockBroker, admin: Any, topic: str) -> None:
    broker.produce(topic, [f"{i}" for i in range(10)])
    partition = TopicPartition(topic, 0)
    assert admin.delete_records({partition: 6})[partition]["low_watermark"] == 6
    assert [record.value for record in broker.consume(topic)] == [b"6", b"7", b"8", b"9"]


def test_offsets_are_listed_by_spec(broker: PenstockBroker, admin: Any, topic: str) -> None:
    broker.produce(topic, [{"value": b"x", "timestamp": 1_750_000_000_000 + i} for i in (0, 9, 5)])
    partition = TopicPartition(topic, 0)

    def offset(spec: Any) -> int:
        return int(admin.list_partition_offsets({partition: spec})[partition].offset)

    assert offset(OffsetSpec.EARLIEST) == 0
    assert offset(OffsetSpec.LATEST) == 3
    assert offset(OffsetSpec.MAX_TIMESTAMP) == 1


def test_partitions_are_described_page_by_page(
    broker: PenstockBroker, admin: Any, topic_name: Callable[[], str]
) -> None:
    names = sorted([topic_name(), topic_name()])
    for name in names:
        broker.create_topic(name, partitions=5)
    seen: list[tuple[str, int]] = []
    cursor = None
    for _ in range(10):
        page = admin.describe_topic_partitions(names, response_partition_limit=3, cursor=cursor)
        for each in page["topics"]:
            seen += [(each["name"], p["partition_index"]) for p in each["partitions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [(name, p) for name in names for p in range(5)]


def test_the_producers_of_a_partition_are_described(broker: PenstockBroker, admin: Any, topic: str) -> None:
    CLIENTS["confluent"].produce(broker.bootstrap, topic, [Rec(b"a"), Rec(b"b"), Rec(b"c")], idempotent=True)
    partition = TopicPartition(topic, 0)
    (producer,) = admin.describe_producers([partition])[partition].active_producers
    assert producer.producer_id >= 0
    assert producer.last_sequence == 2
