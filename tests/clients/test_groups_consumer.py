"""Groups of KIP-848 with a real client: sharing, patterns, restarts, kill -9, static members, migration."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions

from penstock.errors import GroupIdNotFound, InvalidGroupId, InvalidRegularExpression, UnknownMemberId
from penstock.testing import PenstockBroker, WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.message import Message
from tests.clients.group_members import ConfluentMember, Member, share, until
from tests.clients.groups_consumer_members import BROKER, ConsumerMember, ConsumerProcess

pytestmark = pytest.mark.penstock(settings=BROKER)


@contextmanager
def stopping(members: list[Any]) -> Iterator[None]:
    """Ends them all at once: one after the other would move the partitions each time."""
    try:
        yield
    finally:
        threads = [threading.Thread(target=member.stop) for member in members]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def fill(broker: PenstockBroker, topic: str, partitions: int, each: int, start: int = 0) -> set[bytes]:
    """Distinct records in every partition."""
    values = set()
    for partition in range(partitions):
        batch = [f"{topic}:{partition}:{number}" for number in range(start, start + each)]
        broker.produce(topic, batch, partition=partition)
        values |= {value.encode() for value in batch}
    return values


def describe(broker: PenstockBroker, group: str = "g") -> Any:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return admin.describe_consumer_groups([group])[group].result()


@pytest.mark.promise("consumer groups", "1 to 20 members share the partitions and read everything once")
@pytest.mark.parametrize("count", [1, 4, 20])
def test_members_share_the_partitions_and_read_everything_once(penstock: PenstockBroker, count: int) -> None:
    partitions = 24
    penstock.create_topic("t", partitions=partitions)
    members = [ConsumerMember(penstock.bootstrap, "g", "t") for _ in range(count)]
    with stopping(members):
        until(lambda: share(members, partitions), *members, timeout=60)
        written = fill(penstock, "t", partitions, 5)
        until(lambda: sum(len(member.read) for member in members) >= len(written), *members)
        assert sorted(value for member in members for value in member.values) == sorted(written)
        group = describe(penstock)
        assert (group.state, group.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
        assert len(group.members) == count
    assert describe(penstock).state == ConsumerGroupState.EMPTY


def test_the_group_is_listed_with_its_type(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    member = ConsumerMember(penstock.bootstrap, "g", "t")
    with stopping([member]):
        until(lambda: member.owned == {0}, member)
        admin = AdminClient({"bootstrap.servers": penstock.bootstrap})
        (row,) = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result().valid
        assert (row.group_id, row.state) == ("g", ConsumerGroupState.STABLE)
        assert admin.list_consumer_groups(types={ConsumerGroupType.CLASSIC}).result().valid == []


@pytest.mark.promise(
    "consumer groups",
    "A pattern subscription follows topics that are created and deleted; it uses RE2 syntax and takes at "
    "most linear time",
)
def test_a_pattern_follows_topics_that_come_and_go(penstock: PenstockBroker) -> None:
    penstock.create_topic("logs-a", partitions=2)
    penstock.create_topic("other")
    member = ConsumerMember(penstock.bootstrap, "g", "^logs-.*", topic_metadata_refresh_interval_ms=500)
    with stopping([member]):
        until(lambda: member.parts == {("logs-a", 0), ("logs-a", 1)}, member)
        penstock.create_topic("logs-b")
        until(lambda: ("logs-b", 0) in member.parts, member)
        penstock.delete_topic("logs-a")
        until(lambda: member.parts == {("logs-b", 0)}, member)


@pytest.mark.promise(
    "consumer groups", "Invalid requests and hostile bytes get Kafka's errors, and the group continues"
)
def test_a_pattern_that_is_not_one_is_refused_and_the_group_goes_on(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    member = ConsumerMember(penstock.bootstrap, "g", "t")
    with stopping([member]), WireClient(penstock.port) as wire:
        until(lambda: member.owned == {0}, member)
        joining = Message(
            group_id="g",
            member_id="other",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_regex="(t",
            topic_partitions=[],
        )
        answer = wire.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joining)
        assert answer.error_code == InvalidRegularExpression.code
        assert len(describe(penstock).members) == 1


@pytest.mark.promise(
    "consumer groups",
    "Added partitions are assigned; a topic that is deleted and created again counts as a different topic",
)
def test_added_partitions_are_shared_out(penstock: PenstockBroker) -> None:
    penstock.create_topic("t", partitions=2)
    members = [ConsumerMember(penstock.bootstrap, "g", "t") for _ in range(2)]
    with stopping(members):
        until(lambda: share(members, 2), *members)
        admin = AdminClient({"bootstrap.servers": penstock.bootstrap})
        admin.create_partitions([NewPartitions("t", 6)])["t"].result()
        until(lambda: share(members, 6), *members)


@pytest.mark.promise(
    "consumer groups",
    "A rolling restart loses nothing; after kill -9 of a member, the other members take over its partitions",
)
def test_a_rolling_restart_loses_nothing(penstock: PenstockBroker) -> None:
    partitions = 6
    penstock.create_topic("t", partitions=partitions)
    written = fill(penstock, "t", partitions, 20)
    members = [ConsumerMember(penstock.bootstrap, "g", "t") for _ in range(3)]
    gone: list[ConsumerMember] = []
    with stopping(members):
        for turn in range(3):
            until(lambda: share(members, partitions), *members)
            leaving = members.pop(0)
            leaving.stop()
            gone.append(leaving)
            written |= fill(penstock, "t", partitions, 10, start=100 * (turn + 1))
            members.append(ConsumerMember(penstock.bootstrap, "g", "t"))
        until(lambda: written <= {v for member in (*members, *gone) for v in member.values}, *members)
        until(lambda: share(members, partitions), *members)


@pytest.mark.promise(
    "consumer groups",
    "A rolling restart loses nothing; after kill -9 of a member, the other members take over its partitions",
)
def test_the_others_take_over_from_a_member_that_was_killed(penstock: PenstockBroker) -> None:
    penstock.create_topic("t", partitions=4)
    victim = ConsumerProcess(penstock.bootstrap, "g", "t")
    survivor = ConsumerMember(penstock.bootstrap, "g", "t")
    try:
        with stopping([survivor]):
            until(lambda: share([victim, survivor], 4), survivor)
            victim.kill()
            until(lambda: survivor.owned == {0, 1, 2, 3}, survivor)
            written = fill(penstock, "t", 4, 5)
            until(lambda: written <= set(survivor.values), survivor)
    finally:
        victim.kill()


@pytest.mark.promise("consumer groups", "After kill -9 of the broker, the group continues in its epoch")
def test_a_group_goes_on_in_its_epoch_when_the_broker_was_killed(penstock: PenstockBroker) -> None:
    penstock.create_topic("t", partitions=6)
    members = [ConsumerMember(penstock.bootstrap, "g", "t") for _ in range(3)]
    with stopping(members):
        until(lambda: share(members, 6), *members)
        written = fill(penstock, "t", 6, 5)
        until(lambda: written <= {v for member in members for v in member.values}, *members)
        epochs = member_epochs(penstock)
        owned = [set(member.owned) for member in members]
        given = [len(member.given) for member in members]
        penstock.kill()
        penstock.start()
        assert member_epochs(penstock) == epochs
        written |= fill(penstock, "t", 6, 5, start=100)
        until(lambda: written <= {v for member in members for v in member.values}, *members)
        assert [set(member.owned) for member in members] == owned
        assert [len(member.given) for member in members] == given, "nobody was given anything anew"
        assert member_epochs(penstock) == epochs


def member_epochs(broker: PenstockBroker) -> dict[str, int]:
    with WireClient(broker.port) as wire:
        request = Message(group_ids=["g"], include_authorized_operations=False)
        while True:
            (group,) = wire.request(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request).groups
            if group.error_code == 0:
                return {member.member_id: member.member_epoch for member in group.members}
            assert group.error_code in (14, 15, 16), group


@pytest.mark.promise(
    "consumer groups",
    "A static member gets its partitions back when it returns; a second process with the same "
    "`group.instance.id` is rejected",
)
def test_a_static_member_comes_back_to_its_partitions(penstock: PenstockBroker) -> None:
    penstock.create_topic("t", partitions=4)
    stays = ConsumerMember(penstock.bootstrap, "g", "t", group_instance_id="a")
    leaves = ConsumerMember(penstock.bootstrap, "g", "t", group_instance_id="b")
    members = [stays, leaves]
    with stopping(members):
        until(lambda: share(members, 4), *members)
        had, given = set(leaves.owned), len(stays.given)
        leaves.stop()
        members.remove(leaves)
        back = ConsumerMember(penstock.bootstrap, "g", "t", group_instance_id="b")
        members.append(back)
        until(lambda: back.owned == had, *members)
        assert len(stays.given) == given, "nothing moved"


@pytest.mark.promise(
    "consumer groups",
    "A static member gets its partitions back when it returns; a second process with the same "
    "`group.instance.id` is rejected",
)
def test_a_second_process_with_the_same_instance_id_is_refused(penstock: PenstockBroker) -> None:
    penstock.create_topic("t", partitions=2)
    first = ConsumerMember(penstock.bootstrap, "g", "t", group_instance_id="a")
    with stopping([first]):
        until(lambda: first.owned == {0, 1}, first)
        second = ConsumerMember(penstock.bootstrap, "g", "t", group_instance_id="a")
        until(lambda: second.failure is not None)
        assert isinstance(second.failure, KafkaException)
        assert first.owned == {0, 1}
        assert first.failure is None


# migration


@pytest.mark.promise(
    "consumer groups",
    "A group can be migrated from the classic protocol and back, member by member, eager or cooperative, "
    "unless the migration policy forbids it",
)
@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_a_group_migrates_to_the_consumer_protocol_and_back_member_by_member(
    penstock: PenstockBroker, strategy: str
) -> None:
    partitions = 6
    penstock.create_topic("t", partitions=partitions)
    settings = {"partition_assignment_strategy": strategy}

    def classic() -> Member:
        return ConfluentMember(penstock.bootstrap, "g", "t", **settings)

    def new() -> Member:
        return ConsumerMember(penstock.bootstrap, "g", "t")

    members: list[Member] = [classic() for _ in range(3)]
    gone: list[Member] = []
    written: set[bytes] = set()

    def one_by_one(make: Any, expected: ConsumerGroupType, start: int) -> None:
        nonlocal written
        for turn in range(3):
            joining = make()
            members.append(joining)
            until(lambda: share(members, partitions), *members)
            leaving = members.pop(0)
            leaving.stop()
            gone.append(leaving)
            written |= fill(penstock, "t", partitions, 3, start=start + 10 * turn)
            until(lambda: share(members, partitions), *members)
        until(lambda: written <= {v for member in (*members, *gone) for v in member.values}, *members)
        assert describe(penstock).type == expected

    with stopping(members):
        until(lambda: share(members, partitions), *members)
        one_by_one(new, ConsumerGroupType.CONSUMER, 0)
        one_by_one(classic, ConsumerGroupType.CLASSIC, 1000)


# on the wire


@pytest.mark.promise(
    "consumer groups", "Invalid requests and hostile bytes get Kafka's errors, and the group continues"
)
def test_the_wire_errors_are_kafkas(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    member = ConsumerMember(penstock.bootstrap, "g", "t")
    with stopping([member]), WireClient(penstock.port) as wire:
        until(lambda: member.owned == {0}, member)
        heartbeat = Message(group_id="g", member_id="nobody", member_epoch=3, topic_partitions=None)
        answer = wire.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, heartbeat)
        assert (answer.error_code, answer.member_epoch) == (UnknownMemberId.code, 0)
        assert "nobody" in answer.error_message
        request = Message(group_ids=["g", "none", ""], include_authorized_operations=True)
        groups = wire.request(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, request).groups
        codes = {group.group_id: group.error_code for group in groups}
        assert codes == {"g": 0, "none": GroupIdNotFound.code, "": InvalidGroupId.code}
        (found,) = [group for group in groups if group.group_id == "g"]
        assert found.authorized_operations > 0
