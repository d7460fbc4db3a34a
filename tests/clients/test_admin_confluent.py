"""Administration with confluent-kafka: topics, partitions, configs, cluster, offsets, records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from penstock.testing import PenstockBroker, WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

WAIT = 20


@pytest.fixture(scope="module")
def admin(broker: PenstockBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def only(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(WAIT)


def code_of(futures: dict[Any, Any]) -> int:
    with pytest.raises(KafkaException) as raised:
        only(futures)
    return int(raised.value.args[0].code())


def configs(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    entries: dict[str, ConfigEntry] = only(admin.describe_configs([ConfigResource(kind, name)]))
    return entries


def alter(admin: AdminClient, topic: str, op: AlterConfigOpType, name: str, value: str | None) -> None:
    entry = ConfigEntry(name, value, incremental_operation=op)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    only(admin.incremental_alter_configs([resource]))


def test_topics_are_created_described_and_deleted(admin: AdminClient, topic_name: Callable[[], str]) -> None:
    name = topic_name()
    only(admin.create_topics([NewTopic(name, 3, 1, config={"retention.ms": "123456"})]))
    described = only(admin.describe_topics(TopicCollection([name])))
    assert described.name == name
    assert not described.is_internal
    assert [p.id for p in described.partitions] == [0, 1, 2]
    assert all(p.leader.id == p.replicas[0].id == p.isr[0].id for p in described.partitions)
    assert configs(admin, ResourceType.TOPIC, name)["retention.ms"].value == "123456"
    assert name in admin.list_topics(timeout=WAIT).topics
    only(admin.delete_topics([name]))
    assert name not in admin.list_topics(timeout=WAIT).topics
    assert code_of(admin.delete_topics([name])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_what_cannot_be_created_is_refused_with_kafkas_errors(
    admin: AdminClient, topic: str, topic_name: Callable[[], str]
) -> None:
    assert code_of(admin.create_topics([NewTopic(topic, 1, 1)])) == KafkaError.TOPIC_ALREADY_EXISTS
    assert code_of(admin.create_topics([NewTopic("not/legal", 1, 1)])) == KafkaError.TOPIC_EXCEPTION
    assert code_of(admin.create_topics([NewTopic("n" * 250, 1, 1)])) == KafkaError.TOPIC_EXCEPTION
    assert (
        code_of(admin.create_topics([NewTopic(topic_name(), 1, 5)])) == KafkaError.INVALID_REPLICATION_FACTOR
    )
    bad_value = NewTopic(topic_name(), 1, 1, config={"retention.ms": "soon"})
    assert code_of(admin.create_topics([bad_value])) == KafkaError.INVALID_CONFIG
    unknown = NewTopic(topic_name(), 1, 1, config={"no.such.setting": "1"})
    assert code_of(admin.create_topics([unknown])) == KafkaError.INVALID_CONFIG


@pytest.mark.promise("protocol", "An error for one item of a request does not affect the others")
def test_one_bad_topic_does_not_spoil_the_others_of_its_request(
    admin: AdminClient, topic: str, topic_name: Callable[[], str]
) -> None:
    good = topic_name()
    futures = admin.create_topics([NewTopic(topic, 1, 1), NewTopic(good, 1, 1)])
    futures[good].result(WAIT)
    with pytest.raises(KafkaException):
        futures[topic].result(WAIT)


def test_validating_creates_nothing(admin: AdminClient, topic_name: Callable[[], str]) -> None:
    name = topic_name()
    only(admin.create_topics([NewTopic(name, 1, 1)], validate_only=True))
    assert name not in admin.list_topics(timeout=WAIT).topics


@pytest.mark.promise("topics", "Partitions can be added but not removed")
def test_partitions_are_added_and_never_taken_away(
    broker: PenstockBroker, admin: AdminClient, topic: str
) -> None:
    only(admin.create_partitions([NewPartitions(topic, 4)]))
    broker.produce(topic, [{"value": b"x", "partition": 3}])
    assert code_of(admin.create_partitions([NewPartitions(topic, 2)])) == KafkaError.INVALID_PARTITIONS
    assert code_of(admin.create_partitions([NewPartitions(topic, 4)])) == KafkaError.INVALID_PARTITIONS
    missing = NewPartitions("no-such-topic", 4)
    assert code_of(admin.create_partitions([missing])) == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.promise(
    "topics",
    "Settings can be set, deleted, appended to and subtracted from; a request with an invalid setting "
    "changes nothing",
)
def test_topic_configs_are_set_deleted_appended_and_subtracted(admin: AdminClient, topic: str) -> None:
    default = configs(admin, ResourceType.TOPIC, topic)["cleanup.policy"]
    assert (default.value, default.is_default) == ("delete", True)
    alter(admin, topic, AlterConfigOpType.APPEND, "cleanup.policy", "compact")
    entry = configs(admin, ResourceType.TOPIC, topic)["cleanup.policy"]
    assert set(entry.value.split(",")) == {"delete", "compact"}
    assert entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    alter(admin, topic, AlterConfigOpType.SUBTRACT, "cleanup.policy", "delete")
    assert configs(admin, ResourceType.TOPIC, topic)["cleanup.policy"].value == "compact"
    alter(admin, topic, AlterConfigOpType.DELETE, "cleanup.policy", None)
    assert configs(admin, ResourceType.TOPIC, topic)["cleanup.policy"].value == "delete"
    alter(admin, topic, AlterConfigOpType.SET, "retention.ms", "60000")
    assert configs(admin, ResourceType.TOPIC, topic)["retention.ms"].value == "60000"


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated:DeprecationWarning")
def test_altering_replaces_all_overrides_at_once(admin: AdminClient, topic: str) -> None:
    alter(admin, topic, AlterConfigOpType.SET, "retention.ms", "60000")
    only(
        admin.alter_configs(
            [ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.bytes": "1048576"})]
        )
    )
    found = configs(admin, ResourceType.TOPIC, topic)
    assert found["segment.bytes"].value == "1048576"
    assert found["retention.ms"].value == "604800000"


@pytest.mark.promise(
    "topics",
    "Settings can be set, deleted, appended to and subtracted from; a request with an invalid setting "
    "changes nothing",
)
def test_a_bad_config_is_refused_and_changes_nothing(admin: AdminClient, topic: str) -> None:
    for name, value in [("retention.ms", "soon"), ("no.such.setting", "1"), ("cleanup.policy", "maybe")]:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        assert code_of(admin.incremental_alter_configs([resource])) == KafkaError.INVALID_CONFIG
    assert all(entry.is_default for entry in configs(admin, ResourceType.TOPIC, topic).values())


@pytest.mark.promise("topics", "Topic settings have Kafka's names and defaults")
def test_every_topic_setting_of_kafka_is_described_with_its_default(admin: AdminClient, topic: str) -> None:
    found = configs(admin, ResourceType.TOPIC, topic)
    expected = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "delete.retention.ms": "86400000",
        "file.delete.delay.ms": "60000",
        "flush.messages": "9223372036854775807",
        "flush.ms": "9223372036854775807",
        "index.interval.bytes": "4096",
        "max.compaction.lag.ms": "9223372036854775807",
        "max.message.bytes": "1048588",
        "message.timestamp.type": "CreateTime",
        "message.timestamp.before.max.ms": "9223372036854775807",
        "message.timestamp.after.max.ms": "3600000",
        "min.cleanable.dirty.ratio": "0.5",
        "min.compaction.lag.ms": "0",
        "min.insync.replicas": "1",
        "preallocate": "false",
        "retention.bytes": "-1",
        "retention.ms": "604800000",
        "segment.bytes": "1073741824",
        "segment.index.bytes": "10485760",
        "segment.jitter.ms": "0",
        "segment.ms": "604800000",
        "unclean.leader.election.enable": "false",
        "penstock.retention.strict": "false",
        "penstock.retention.consumed.groups": "",
        "penstock.retention.records": "-1",
    }
    assert {name: found[name].value for name in expected} == expected


def test_broker_configs_are_described(broker: PenstockBroker, admin: AdminClient) -> None:
    node = str(only({0: admin.describe_cluster()}).controller.id)
    found = configs(admin, ResourceType.BROKER, node)
    entry = found["log.retention.check.interval.ms"]
    assert (entry.value, entry.source) == ("3600000", ConfigSource.STATIC_BROKER_CONFIG.value)
    assert found["message.max.bytes"].is_default


def test_configs_of_a_topic_that_is_not_there_are_an_error(admin: AdminClient) -> None:
    missing = ConfigResource(ResourceType.TOPIC, "no-such-topic")
    assert code_of(admin.describe_configs([missing])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_the_cluster_is_described(broker: PenstockBroker, admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(WAIT)
    assert cluster.cluster_id
    assert [(node.host, node.port) for node in cluster.nodes] == [("127.0.0.1", broker.port)]
    assert cluster.controller.id == cluster.nodes[0].id


@pytest.mark.promise("topics", "DeleteRecords moves the log start offset, which survives kill -9")
def test_records_are_deleted_up_to_an_offset(broker: PenstockBroker, admin: AdminClient, topic: str) -> None:
    broker.produce(topic, [f"{i}" for i in range(10)])
    deleted = only(admin.delete_records([TopicPartition(topic, 0, 4)]))
    assert deleted.low_watermark == 4
    assert [record.offset for record in broker.consume(topic)] == [4, 5, 6, 7, 8, 9]
    past_the_end = admin.delete_records([TopicPartition(topic, 0, 11)])
    assert code_of(past_the_end) == KafkaError.OFFSET_OUT_OF_RANGE
    assert only(admin.delete_records([TopicPartition(topic, 0, -1)])).low_watermark == 10
    assert broker.consume(topic) == []


@pytest.mark.promise("protocol", "Every special timestamp of ListOffsets has the meaning that Kafka gives it")
def test_offsets_are_listed_by_every_spec(broker: PenstockBroker, admin: AdminClient, topic: str) -> None:
    base = 1_750_000_000_000
    broker.produce(topic, [{"value": b"x", "timestamp": base + i} for i in (0, 500, 100)])

    def offset(spec: OffsetSpec) -> int:
        return int(only(admin.list_offsets({TopicPartition(topic, 0): spec})).offset)

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 3
    assert offset(OffsetSpec.max_timestamp()) == 1
    assert offset(OffsetSpec.for_timestamp(base + 1)) == 1


@pytest.mark.promise(
    "topics", "A topic's own value overrides the broker's value, which overrides the cluster-wide default"
)
def test_a_brokers_dynamic_default_reaches_topics_and_a_topics_own_wins(penstock: PenstockBroker) -> None:
    own = AdminClient({"bootstrap.servers": penstock.bootstrap})
    penstock.create_topic("default")
    penstock.create_topic("override", config={"retention.ms": 5000})
    # This client cannot name "all brokers", which is the empty name.
    change = Message(name="log.retention.ms", value="70000", config_operation=0)
    everywhere = Message(resource_type=4, resource_name="", configs=[change])
    with WireClient(penstock.port) as wire:
        request = Message(resources=[everywhere], validate_only=False)
        answer = wire.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    assert answer.responses[0].error_code == 0
    inherited = configs(own, ResourceType.TOPIC, "default")["retention.ms"]
    assert (inherited.value, inherited.source) == (
        "70000",
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value,
    )
    assert configs(own, ResourceType.TOPIC, "override")["retention.ms"].value == "5000"
    penstock.restart()
    assert configs(own, ResourceType.TOPIC, "default")["retention.ms"].value == "70000"
    penstock.produce("default", [b"x"])
    penstock.clock.advance(seconds=400)
    assert penstock.consume("default") == []


def test_a_setting_of_the_broker_that_is_not_dynamic_is_refused(
    broker: PenstockBroker, admin: AdminClient
) -> None:
    entry = ConfigEntry("listeners", "PLAINTEXT://:1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    assert code_of(admin.incremental_alter_configs([resource])) in (
        KafkaError.INVALID_REQUEST,
        KafkaError.INVALID_CONFIG,
    )


@pytest.mark.promise(
    "topics",
    "Settings can be set, deleted, appended to and subtracted from; a request with an invalid setting "
    "changes nothing",
)
def test_validating_a_change_changes_nothing(admin: AdminClient, topic: str) -> None:
    entry = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    only(admin.incremental_alter_configs([resource], validate_only=True))
    assert configs(admin, ResourceType.TOPIC, topic)["retention.ms"].is_default
