"""Classic groups with real clients: sharing, restarts, kill -9 of members and of the broker."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from confluent_kafka.admin import AdminClient
from kafka.coordinator.assignors.range import RangePartitionAssignor as kafka_python_range

from penstock.testing import PenstockBroker
from tests.clients.group_members import (
    BROKER,
    MEMBERS,
    ConfluentMember,
    MemberProcess,
    share,
    until,
)

pytestmark = pytest.mark.penstock(settings=BROKER)


def fill(broker: PenstockBroker, topic: str, partitions: int, each: int, start: int = 0) -> set[bytes]:
    """Distinct records in every partition."""
    values = set()
    for partition in range(partitions):
        batch = [f"{partition}:{number}" for number in range(start, start + each)]
        broker.produce(topic, batch, partition=partition)
        values |= {value.encode() for value in batch}
    return values


@pytest.mark.promise(
    "groups",
    "1 to 20 members share the partitions and read everything once; clients of all kinds share one group",
)
@pytest.mark.parametrize(
    ("client", "count"),
    [
        ("confluent", 1),
        pytest.param("confluent", 4, marks=pytest.mark.long),
        ("confluent", 20),
        pytest.param("kafka-python", 1, marks=pytest.mark.long),
        ("kafka-python", 4),
        pytest.param("aiokafka", 1, marks=pytest.mark.long),
        ("aiokafka", 6),
    ],
)
def test_members_share_the_partitions_and_read_everything_once(
    penstock: PenstockBroker, client: str, count: int
) -> None:
    partitions = 24
    penstock.create_topic("t", partitions=partitions)
    members = [MEMBERS[client](penstock.bootstrap, "g", "t") for _ in range(count)]
    try:
        until(lambda: share(members, partitions), *members)
        written = fill(penstock, "t", partitions, 5)
        until(lambda: sum(len(member.read) for member in members) >= len(written), *members)
        read = [value for member in members for value in member.values]
        assert sorted(read) == sorted(written)
    finally:
        for member in members:
            member.stop()
    admin = AdminClient({"bootstrap.servers": penstock.bootstrap})
    assert admin.describe_consumer_groups(["g"])["g"].result().state.name == "EMPTY"


@pytest.mark.promise(
    "groups",
    "1 to 20 members share the partitions and read everything once; clients of all kinds share one group",
)
def test_clients_of_all_kinds_share_one_group(penstock: PenstockBroker) -> None:
    penstock.create_topic("t", partitions=6)
    # The assignor that they all know; each also has its own.
    kinds: dict[str, dict[str, Any]] = {
        "confluent": {"partition_assignment_strategy": "range"},
        "kafka-python": {"partition_assignment_strategy": [kafka_python_range]},
        "aiokafka": {"partition_assignment_strategy": [RangePartitionAssignor]},
    }
    members = [MEMBERS[kind](penstock.bootstrap, "g", "t", **settings) for kind, settings in kinds.items()]
    try:
        until(lambda: share(members, 6), *members)
    finally:
        for member in members:
            member.stop()


@pytest.mark.promise("groups", "A rolling restart of members loses no record")
@pytest.mark.parametrize("client", list(MEMBERS))
def test_a_rolling_restart_loses_nothing(penstock: PenstockBroker, client: str) -> None:
    partitions = 6
    penstock.create_topic("t", partitions=partitions)
    written = fill(penstock, "t", partitions, 20)
    members = [MEMBERS[client](penstock.bootstrap, "g", "t") for _ in range(3)]
    gone = []
    try:
        for turn in range(3):
            until(lambda: share(members, partitions), *members)
            leaving = members.pop(0)
            leaving.stop()
            gone.append(leaving)
            written |= fill(penstock, "t", partitions, 10, start=100 * (turn + 1))
            members.append(MEMBERS[client](penstock.bootstrap, "g", "t"))
        until(lambda: written <= {v for member in (*members, *gone) for v in member.values}, *members)
        until(lambda: share(members, partitions), *members)
    finally:
        for member in members:
            member.stop()


@pytest.mark.promise("groups", "After kill -9 of a member, the other members take over its partitions")
@pytest.mark.parametrize("client", list(MEMBERS))
def test_the_others_take_over_from_a_member_that_was_killed(penstock: PenstockBroker, client: str) -> None:
    partitions = 4
    penstock.create_topic("t", partitions=partitions)
    victim = MemberProcess(client, penstock.bootstrap, "g", "t")
    survivor = MEMBERS[client](penstock.bootstrap, "g", "t")
    try:
        until(lambda: share([victim, survivor], partitions), survivor)
        victim.kill()
        until(lambda: survivor.owned == set(range(partitions)), survivor)
        written = fill(penstock, "t", partitions, 5)
        until(lambda: written <= set(survivor.values), survivor)
    finally:
        victim.kill()
        survivor.stop()


@pytest.mark.promise(
    "groups", "After kill -9 of the broker, members continue in their generation without a rebalance"
)
@pytest.mark.parametrize("client", list(MEMBERS))
def test_members_go_on_in_their_generation_when_the_broker_was_killed(
    penstock: PenstockBroker, client: str
) -> None:
    partitions = 4
    penstock.create_topic("t", partitions=partitions)
    # Longer than the broker is away, so that nobody's session ends.
    members = [MEMBERS[client](penstock.bootstrap, "g", "t", session_timeout_ms=30_000) for _ in range(2)]
    try:
        until(lambda: share(members, partitions), *members)
        written = fill(penstock, "t", partitions, 3)
        until(lambda: sum(len(member.read) for member in members) == len(written), *members)
        before = _members_of(penstock)
        rebalances = [(len(member.given), len(member.taken)) for member in members]

        penstock.kill()
        penstock.restart()

        more = fill(penstock, "t", partitions, 3, start=100)
        until(lambda: more <= {v for member in members for v in member.values}, *members)
        assert _members_of(penstock) == before
        assert [(len(member.given), len(member.taken)) for member in members] == rebalances
        read = [value for member in members for value in member.values]
        assert written | more == set(read)
    finally:
        for member in members:
            member.stop()


def _members_of(broker: PenstockBroker) -> dict[str, list[int]]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    described = admin.describe_consumer_groups(["g"])["g"].result()
    return {
        member.member_id: sorted(part.partition for part in member.assignment.topic_partitions)
        for member in described.members
    }


@pytest.mark.promise(
    "groups", "A member's leave takes effect immediately; many members can leave in one request"
)
def test_a_leave_is_prompt(penstock: PenstockBroker) -> None:
    penstock.create_topic("t", partitions=2)
    # Sessions so long that only the LeaveGroup can have done it.
    first = ConfluentMember(penstock.bootstrap, "g", "t", session_timeout_ms=200_000)
    second = ConfluentMember(penstock.bootstrap, "g", "t", session_timeout_ms=200_000)
    try:
        until(lambda: share([first, second], 2), first, second)
        second.stop()
        until(lambda: first.owned == {0, 1}, first)
    finally:
        first.stop()


@pytest.mark.promise(
    "groups", "Session timeouts and the initial rebalance delay, which may be 0, follow the broker's clock"
)
def test_sessions_follow_the_brokers_clock(penstock: PenstockBroker) -> None:
    penstock.create_topic("t", partitions=2)
    member = MemberProcess("confluent", penstock.bootstrap, "g", "t", session_timeout_ms=200_000)
    until(lambda: member.owned == {0, 1})
    member.kill()
    assert len(_members_of(penstock)) == 1
    penstock.clock.advance(seconds=201)
    assert _members_of(penstock) == {}


# cooperative rebalancing, static members


@pytest.mark.promise("groups", "A cooperative rebalance revokes only the partitions that move")
def test_a_cooperative_rebalance_takes_only_what_moves(penstock: PenstockBroker) -> None:
    penstock.create_topic("t", partitions=6)
    strategy = {"partition_assignment_strategy": "cooperative-sticky"}
    members = [ConfluentMember(penstock.bootstrap, "g", "t", **strategy)]
    try:
        until(lambda: share(members, 6), *members)
        members.append(ConfluentMember(penstock.bootstrap, "g", "t", **strategy))
        until(lambda: share(members, 6), *members)
        taken = set().union(*members[0].taken)
        assert len(taken) == 3
        assert members[1].owned == taken
        members.append(ConfluentMember(penstock.bootstrap, "g", "t", **strategy))
        until(lambda: share(members, 6), *members)
        assert all(len(member.owned) == 2 for member in members)
        kept = members[0].owned
        assert not kept & set().union(*members[0].taken)
    finally:
        for member in members:
            member.stop()


@pytest.mark.promise(
    "groups",
    "Static members (KIP-345) return without a rebalance; if two processes have the same id, the older "
    "one is fenced",
)
def test_a_static_member_restarts_without_a_rebalance(penstock: PenstockBroker) -> None:
    penstock.create_topic("t", partitions=4)
    settings = {"session_timeout_ms": 60_000}
    first = ConfluentMember(penstock.bootstrap, "g", "t", group_instance_id="one", **settings)
    other = ConfluentMember(penstock.bootstrap, "g", "t", group_instance_id="two", **settings)
    again = None
    try:
        until(lambda: share([first, other], 4), first, other)
        parts, rebalances = set(first.owned), len(other.given)
        first.stop()  # a static member does not leave
        again = ConfluentMember(penstock.bootstrap, "g", "t", group_instance_id="one", **settings)
        until(lambda: again.owned == parts, again, other)
        assert len(other.given) == rebalances
    finally:
        other.stop()
        if again is not None:
            again.stop()


@pytest.mark.promise(
    "groups",
    "Static members (KIP-345) return without a rebalance; if two processes have the same id, the older "
    "one is fenced",
)
def test_of_two_processes_with_one_instance_id_the_older_is_fenced(penstock: PenstockBroker) -> None:
    penstock.create_topic("t", partitions=2)
    older = ConfluentMember(penstock.bootstrap, "g", "t", group_instance_id="one")
    until(lambda: older.owned == {0, 1}, older)
    newer = ConfluentMember(penstock.bootstrap, "g", "t", group_instance_id="one")
    try:
        until(lambda: newer.owned == {0, 1}, newer)
        until(lambda: older.failure is not None)
        assert "fenced" in str(older.failure).lower()
    finally:
        newer.stop()
