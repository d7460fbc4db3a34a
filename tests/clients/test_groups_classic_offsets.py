"""Committed offsets and group administration with real clients, and every version of the group APIs."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.errors import (
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    OffsetMetadataTooLarge,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from penstock.testing import PenstockBroker, WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from penstock.wire.primitives import ZERO_UUID
from tests.clients.group_members import BROKER, MEMBERS, ConfluentMember, until

pytestmark = pytest.mark.penstock(settings=BROKER)


def by_hand(broker: PenstockBroker, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})


def test_a_consumer_without_a_group_commits_and_another_client_reads_it(penstock: PenstockBroker) -> None:
    from kafka import KafkaConsumer
    from kafka import TopicPartition as Partition

    penstock.create_topic("t", partitions=2)
    consumer = by_hand(penstock, "g")
    consumer.assign([TopicPartition("t", 1, 0)])
    consumer.commit(offsets=[TopicPartition("t", 1, 42, "a note")], asynchronous=False)
    consumer.close()
    other = KafkaConsumer(bootstrap_servers=penstock.bootstrap, group_id="g", enable_auto_commit=False)
    found = other.committed(Partition("t", 1), metadata=True)
    # confluent-kafka sends the zero byte behind a C string as well.
    assert (found.offset, found.metadata.rstrip("\0")) == (42, "a note")
    assert other.committed(Partition("t", 0)) is None
    other.close()


@pytest.mark.promise("groups", "Committed offsets survive kill -9 of the broker")
@pytest.mark.parametrize("client", list(MEMBERS))
def test_committed_offsets_survive_kill_9_of_the_broker(penstock: PenstockBroker, client: str) -> None:
    penstock.create_topic("t", partitions=2)
    for partition in range(2):
        penstock.produce("t", [str(number) for number in range(10)], partition=partition)
    member = MEMBERS[client](penstock.bootstrap, "g", "t")
    until(lambda: len(member.read) == 20, member)
    member.stop()
    penstock.kill()
    penstock.restart()
    again = MEMBERS[client](penstock.bootstrap, "g", "t")
    penstock.produce("t", ["new"], partition=0)
    until(lambda: again.read, again)
    assert again.values == [b"new"]
    again.stop()


@pytest.mark.promise(
    "groups", "Administrators can list (by state and type), describe, alter and delete groups"
)
def test_an_administrator_lists_alters_and_deletes(penstock: PenstockBroker) -> None:
    penstock.create_topic("t", partitions=2)
    admin = AdminClient({"bootstrap.servers": penstock.bootstrap})
    wanted = [TopicPartition("t", 0, 5), TopicPartition("t", 1, 6)]
    (altered,) = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("g", wanted)]).values()
    assert all(part.error is None for part in altered.result().topic_partitions)
    (listed,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")]).values()
    assert {(p.partition, p.offset) for p in listed.result().topic_partitions} == {(0, 5), (1, 6)}
    assert [row.group_id for row in admin.list_consumer_groups().result().valid] == ["g"]

    member = ConfluentMember(penstock.bootstrap, "g", "t")
    until(lambda: len(member.owned) == 2, member)
    with pytest.raises(KafkaException, match="not empty"):
        admin.delete_consumer_groups(["g"])["g"].result()
    described = admin.describe_consumer_groups(["g"])["g"].result()
    assert described.state.name == "STABLE"
    assert [len(m.assignment.topic_partitions) for m in described.members] == [2]
    member.stop()
    admin.delete_consumer_groups(["g"])["g"].result()
    assert admin.list_consumer_groups().result().valid == []
    (listed,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")]).values()
    assert listed.result().topic_partitions == []


@pytest.mark.promise(
    "groups", "Administrators can list (by state and type), describe, alter and delete groups"
)
def test_kafka_python_administers_groups_too(penstock: PenstockBroker) -> None:
    from kafka.admin import KafkaAdminClient

    penstock.create_topic("t")
    consumer = by_hand(penstock, "g")
    consumer.assign([TopicPartition("t", 0, 0)])
    consumer.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
    consumer.close()
    admin = KafkaAdminClient(bootstrap_servers=penstock.bootstrap)
    try:
        listed = str(admin.list_groups())
        assert "'g'" in listed
    finally:
        admin.close()


@pytest.mark.promise("groups", "Committed offsets expire as in Kafka, and are deleted with their topic")
@pytest.mark.penstock(
    settings={**BROKER, "offsets.retention.minutes": 60, "offsets.retention.check.interval.ms": 600_000}
)
def test_offsets_expire_by_the_brokers_clock(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    consumer = by_hand(penstock, "g")
    consumer.assign([TopicPartition("t", 0, 0)])
    consumer.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
    assert consumer.committed([TopicPartition("t", 0)])[0].offset == 7
    penstock.clock.advance(seconds=50 * 60)
    assert consumer.committed([TopicPartition("t", 0)])[0].offset == 7
    penstock.clock.advance(seconds=30 * 60)
    assert consumer.committed([TopicPartition("t", 0)])[0].offset < 0
    consumer.close()


# every version, and bad input


def found(wire: WireClient, group: str = "g") -> None:
    """Clients ask for the coordinator before anything else; that makes `__consumer_offsets`."""
    answer = wire.request(ApiKey.FIND_COORDINATOR, 3, Message(key=group, key_type=0))
    assert answer.error_code == 0


@pytest.fixture
def asked(penstock: PenstockBroker) -> Any:
    penstock.create_topic("t", partitions=2)
    with WireClient(penstock.port) as wire:
        found(wire)
        yield wire


@pytest.mark.promise("groups", "Every served version of the group APIs works")
@pytest.mark.parametrize("version", range(7))
def test_find_coordinator(asked: WireClient, penstock: PenstockBroker, version: int) -> None:
    request = Message(key="g", key_type=0, coordinator_keys=["g", "h"])
    answer = asked.request(ApiKey.FIND_COORDINATOR, version, request)
    answers = answer.coordinators if version >= 4 else [answer]
    assert [(item.error_code, item.port) for item in answers] == [(0, penstock.port)] * (
        2 if version >= 4 else 1
    )
    if version >= 1:
        bad = asked.request(
            ApiKey.FIND_COORDINATOR, version, Message(key="g", key_type=9, coordinator_keys=["g"])
        )
        assert (bad.coordinators[0] if version >= 4 else bad).error_code == 42


def join(wire: WireClient, version: int, group: str = "g", **fields: Any) -> Message:
    request = Message(
        **{
            "group_id": group,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "member_id": "",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [Message(name="range", metadata=b"m")],
            "reason": "because",
            **fields,
        }
    )
    answer = wire.request(ApiKey.JOIN_GROUP, version, request)
    if answer.error_code == 79:
        return join(wire, version, group, **{**fields, "member_id": answer.member_id})
    return answer


@pytest.mark.promise("groups", "Every served version of the group APIs works")
@pytest.mark.parametrize("version", range(10))
def test_a_group_lives_and_dies_in_every_version(asked: WireClient, version: int) -> None:
    joined = join(asked, version)
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, joined.member_id)
    member = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id, "group_instance_id": None}
    assignments = [Message(member_id=joined.member_id, assignment=b"a")]
    sync = Message(**member, protocol_type="consumer", protocol_name="range", assignments=assignments)
    synced = asked.request(ApiKey.SYNC_GROUP, min(version, 5), sync)
    assert (synced.error_code, synced.assignment) == (0, b"a")
    assert asked.request(ApiKey.HEARTBEAT, min(version, 4), Message(**member)).error_code == 0
    described = asked.request(
        ApiKey.DESCRIBE_GROUPS, min(version, 6), Message(groups=["g"], include_authorized_operations=True)
    ).groups[0]
    assert (described.error_code, described.group_state, described.protocol_data) == (0, "Stable", "range")
    assert described.members[0].member_assignment == b"a"
    listed = asked.request(ApiKey.LIST_GROUPS, min(version, 5), Message(states_filter=[], types_filter=[]))
    assert [row.group_id for row in listed.groups] == ["g"]
    leaving = [Message(member_id=joined.member_id, group_instance_id=None, reason=None)]
    left = asked.request(
        ApiKey.LEAVE_GROUP,
        min(version, 5),
        Message(group_id="g", member_id=joined.member_id, members=leaving),
    )
    assert left.error_code == 0
    deleted = asked.request(ApiKey.DELETE_GROUPS, min(version, 2), Message(groups_names=["g", "nobody"]))
    assert [item.error_code for item in deleted.results] == [0, GroupIdNotFound.code]


def commit(wire: WireClient, version: int, topic_id: Any, **fields: Any) -> int:
    partition = Message(
        partition_index=fields.pop("partition", 1),
        committed_offset=fields.pop("offset", 9),
        committed_leader_epoch=-1,
        committed_metadata=fields.pop("metadata", "md"),
    )
    request = Message(
        **{
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "retention_time_ms": -1,
            "topics": [Message(name=fields.pop("topic", "t"), topic_id=topic_id, partitions=[partition])],
            **fields,
        }
    )
    code: int = wire.request(ApiKey.OFFSET_COMMIT, version, request).topics[0].partitions[0].error_code
    return code


@pytest.mark.promise("groups", "Every served version of the group APIs works")
@pytest.mark.promise(
    "groups", "Offsets can be committed by topic name or topic id, and fetched for many groups at once"
)
@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_are_committed_and_fetched_in_every_version(asked: WireClient, version: int) -> None:
    request = Message(
        topics=[Message(topic_id=ZERO_UUID, name="t")],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    described = asked.request(ApiKey.METADATA, 12, request)
    topic_id = described.topics[0].topic_id
    assert commit(asked, version, topic_id) == 0
    assert commit(asked, version, topic_id, partition=99) == UnknownTopicOrPartition.code
    assert commit(asked, version, topic_id, metadata="x" * 5000) == OffsetMetadataTooLarge.code
    for fetch_version in {version, 1}:
        topics = [Message(name="t", topic_id=topic_id, partition_indexes=[0, 1])]
        group = Message(group_id="g", member_id=None, member_epoch=-1, topics=topics)
        answer = asked.request(
            ApiKey.OFFSET_FETCH,
            fetch_version,
            Message(group_id="g", topics=topics, groups=[group, group], require_stable=True),
        )
        groups = answer.groups if fetch_version >= 8 else [answer]
        assert len(groups) == (2 if fetch_version >= 8 else 1)
        for item in groups:
            assert [(p.partition_index, p.committed_offset) for p in item.topics[0].partitions] == [
                (0, -1),
                (1, 9),
            ]


@pytest.mark.promise(
    "groups",
    "Invalid requests (unknown members, old generations, long metadata, empty and very long ids, hostile "
    "subscriptions) get Kafka's errors and do not affect the group",
)
def test_bad_requests_get_kafkas_errors_and_the_group_goes_on(asked: WireClient) -> None:
    joined = join(asked, 9)
    member = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id, "group_instance_id": None}
    asked.request(
        ApiKey.SYNC_GROUP, 5, Message(**member, protocol_type=None, protocol_name=None, assignments=[])
    )

    def heartbeat(**changed: Any) -> int:
        code: int = asked.request(ApiKey.HEARTBEAT, 4, Message(**{**member, **changed})).error_code
        return code

    assert join(asked, 9, group="").error_code == InvalidGroupId.code
    assert join(asked, 9, session_timeout_ms=-7).error_code == InvalidSessionTimeout.code
    assert join(asked, 9, protocols=[]).error_code == InconsistentGroupProtocol.code
    assert join(asked, 9, member_id="nobody").error_code == UnknownMemberId.code
    assert join(asked, 6, group="").error_code == InvalidGroupId.code
    assert heartbeat(member_id="nobody") == UnknownMemberId.code
    assert heartbeat(generation_id=0) == IllegalGeneration.code
    assert heartbeat(group_instance_id="i") == UnknownMemberId.code
    assert heartbeat(group_id="") == InvalidGroupId.code
    assert commit(asked, 9, ZERO_UUID, generation_id_or_member_epoch=7, member_id=joined.member_id) == (
        IllegalGeneration.code
    )
    assert commit(asked, 9, ZERO_UUID, group_id="x", generation_id_or_member_epoch=7) == GroupIdNotFound.code
    hostile = [Message(name=f"p{n}", metadata=bytes(1000)) for n in range(1000)] + [
        Message(name="range", metadata=b"\xff" * 100)
    ]
    other = join(asked, 9, group="hostile", protocols=hostile)
    assert other.error_code == 0
    assert heartbeat() == 0


@pytest.mark.promise(
    "groups",
    "Invalid requests (unknown members, old generations, long metadata, empty and very long ids, hostile "
    "subscriptions) get Kafka's errors and do not affect the group",
)
def test_a_static_member_is_fenced_on_the_wire(asked: WireClient) -> None:
    first = join(asked, 9, group_instance_id="i")
    asked.request(
        ApiKey.SYNC_GROUP,
        5,
        Message(group_id="g", generation_id=1, member_id=first.member_id, group_instance_id="i",
                protocol_type=None, protocol_name=None, assignments=[]),
    )  # fmt: skip
    second = join(asked, 9, group_instance_id="i")
    assert (second.error_code, second.generation_id, second.skip_assignment) == (0, 1, True)
    beat = Message(group_id="g", generation_id=1, member_id=first.member_id, group_instance_id="i")
    assert asked.request(ApiKey.HEARTBEAT, 4, beat).error_code == FencedInstanceId.code


def test_a_leave_on_the_same_connection_ends_a_waiting_join(
    asked: WireClient, penstock: PenstockBroker
) -> None:
    from penstock.wire.codec import encode_request

    joined = join(asked, 9)
    with WireClient(penstock.port) as second:
        request = Message(group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=200_000, member_id="",
                          group_instance_id=None, protocol_type="consumer",
                          protocols=[Message(name="range", metadata=b"")], reason=None)  # fmt: skip
        member_id = second.request(ApiKey.JOIN_GROUP, 9, request).member_id
        waiting = Message(**{**request.__dict__, "member_id": member_id})
        first = second.send(ApiKey.JOIN_GROUP, 9, encode_request(ApiKey.JOIN_GROUP, 9, waiting))
        leaving = Message(
            group_id="g", members=[Message(member_id=member_id, group_instance_id=None, reason="bye")]
        )
        then = second.send(ApiKey.LEAVE_GROUP, 5, encode_request(ApiKey.LEAVE_GROUP, 5, leaving))
        assert second.receive(ApiKey.JOIN_GROUP, 9, first).error_code == UnknownMemberId.code
        assert second.receive(ApiKey.LEAVE_GROUP, 5, then).members[0].error_code == 0
    assert joined.error_code == 0


@pytest.mark.promise(
    "groups", "The committed offsets of a deleted topic do not come back, even if the broker is killed"
)
def test_the_offsets_of_a_deleted_topic_do_not_come_back_with_a_crash(penstock: PenstockBroker) -> None:
    from confluent_kafka import Consumer, TopicPartition

    penstock.create_topic("t")
    penstock.produce("t", [b"x"] * 10)
    consumer = Consumer({"bootstrap.servers": penstock.bootstrap, "group.id": "g"})
    consumer.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
    penstock.delete_topic("t")
    penstock.kill()
    penstock.restart()
    penstock.create_topic("t")
    assert consumer.committed([TopicPartition("t", 0)], timeout=30)[0].offset < 0
    consumer.close()
