"""A group goes from the classic protocol to the consumer protocol and back, while its members go on."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import (
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownServerError,
)
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.consumer.embedded import read_assignment, write_assignment
from penstock.groups.consumer.group import ConsumerGroup
from penstock.wire.message import Message
from penstock.wire.primitives import INT16, INT32, encode_string
from tests.sim.group_host import Host
from tests.unit.groups_consumer_host import ConsumerHost

COOPERATIVE = "cooperative-sticky"


def subscription(*topics: str, owned: dict[str, list[int]] | None = None) -> bytes:
    parts = [INT16.pack(1), INT32.pack(len(topics)), *map(encode_string, topics), INT32.pack(-1)]
    owned = owned or {}
    parts.append(INT32.pack(len(owned)))
    for topic, numbers in owned.items():
        parts += (encode_string(topic), INT32.pack(len(numbers)), *map(INT32.pack, numbers))
    return b"".join(parts)


class MigrationHost(ConsumerHost):
    """With classic members of the consumer protocol: `c1` has t in generation 1."""

    def classic_join(
        self, member_id: str, *, owned: dict[str, list[int]] | None = None, **fields: Any
    ) -> Message:
        protocols = {COOPERATIVE: subscription("t", owned=owned)}
        answer = self.answers.get(self.join(member_id, protocols=protocols, **fields))
        assert isinstance(answer, Message)
        return answer

    def classic_sync(self, member_id: str, generation: int, **fields: Any) -> dict[str, list[int]]:
        answer = self.answers[self.sync(member_id, generation, **fields)]
        assert answer.error_code == 0, answer
        return {topic: sorted(numbers) for topic, numbers in read_assignment(answer.assignment).items()}

    def beat(self, member_id: str, generation: int, instance: str | None = None) -> int:
        return Host.heartbeat(self, member_id, generation, instance=instance)

    def classic_group(self, instance: str | None = None) -> str:
        """A classic group with one member that has all of t; returns its id."""
        protocols = {COOPERATIVE: subscription("t")}
        if instance is None:
            token, member_id = self.join_new(protocols=protocols)
            self.tick()
        else:
            token = self.join("", instance=instance, protocols=protocols)
            self.tick()
            member_id = self.answers[token].member_id
        assert self.answers[token].error_code == 0
        self.sync(
            member_id, 1, {member_id: write_assignment({"t": frozenset(range(4))}, 1)}, instance=instance
        )
        assert self.shard.groups["g"].state_name == "Stable"
        return member_id


@pytest.fixture
def host() -> MigrationHost:
    return MigrationHost({"t": 4, "u": 2})


# up


def test_a_classic_group_becomes_a_consumer_group_when_a_new_member_joins(host: MigrationHost) -> None:
    old = host.classic_group()
    host.commit(5, member_id=old, generation=1)
    answer = host.heartbeat("n", 0, topics=["t"])
    assert (answer.member_epoch, host.assigned(answer)) == (2, {})
    group = host.group()
    assert group.members[old].classic is not None
    assert (group.members[old].epoch, host.named(group.members[old].assigned)) == (1, {"t": [0, 1, 2, 3]})
    assert {member.member_type for member in host.describe().members} == {0, 1}
    assert host.committed() == 5


def test_the_classic_member_is_led_to_its_part_by_rejoining(host: MigrationHost) -> None:
    old = host.classic_group()
    host.heartbeat("n", 0, topics=["t"])
    assert host.beat(old, 1) == RebalanceInProgress.code
    joined = host.classic_join(old, owned={"t": [0, 1, 2, 3]})
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, "")
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", COOPERATIVE)
    assert host.classic_sync(old, 1) == {"t": [0, 1]}
    assert host.heartbeat("n", 2).assignment is None, "the classic member has not given up anything yet"
    assert host.beat(old, 1) == RebalanceInProgress.code
    joined = host.classic_join(old, owned={"t": [0, 1]})
    assert joined.generation_id == 2
    assert host.classic_sync(old, 2) == {"t": [0, 1]}
    assert host.beat(old, 2) == 0
    assert host.assigned(host.heartbeat("n", 2)) == {"t": [2, 3]}
    assert host.group().state_name == "Stable"


@pytest.mark.promise(
    "consumer groups",
    "A group can be migrated from the classic protocol and back, member by member, eager or cooperative, "
    "unless the migration policy forbids it",
)
def test_an_eager_member_gives_up_everything_before_it_rejoins(host: MigrationHost) -> None:
    old = host.classic_group()
    host.heartbeat("n", 0, topics=["t"])
    joined = host.classic_join(old)
    assert joined.generation_id == 2
    assert host.classic_sync(old, 2) == {"t": [0, 1]}
    assert host.assigned(host.heartbeat("n", 2)) == {"t": [2, 3]}


def test_a_classic_member_is_called_back_when_what_it_waits_for_is_free(host: MigrationHost) -> None:
    host.heartbeat("n", 0, topics=["t"])
    answer = host.classic_join("c")
    assert (answer.error_code, answer.generation_id) == (0, 2)
    assert host.classic_sync("c", 2) == {}
    assert host.beat("c", 2) == 0
    host.heartbeat("n", 1)
    host.heartbeat("n", 1, owned={"t": [0, 1]})
    assert host.beat("c", 2) == RebalanceInProgress.code
    assert host.classic_join("c").generation_id == 2
    assert host.classic_sync("c", 2) == {"t": [2, 3]}


def test_members_that_wait_in_a_rebalance_are_told_to_come_again(host: MigrationHost) -> None:
    old = host.classic_group()
    token = host.join("", protocols={COOPERATIVE: subscription("t")}, version=3)
    assert token not in host.answers
    host.heartbeat("n", 0, topics=["t"])
    assert host.answers[token].error_code == RebalanceInProgress.code
    assert old in host.group().members


def test_what_a_cooperative_member_owned_when_it_joined_is_its_own_within_a_rebalance(
    host: MigrationHost,
) -> None:
    old = host.classic_group()
    host.join("", protocols={COOPERATIVE: subscription("t")}, version=3)
    host.join(old, protocols={COOPERATIVE: subscription("t", owned={"t": [0, 1, 2]})})
    assert host.shard.groups["g"].state_name == "CompletingRebalance"
    host.shard.groups["g"].members[old].assignment = b""  # type: ignore[attr-defined]
    answer = host.heartbeat("n", 0, topics=["t"])
    assert host.named(host.group().members[old].assigned) == {"t": [0, 1, 2]}
    assert all(part not in host.assigned(answer).get("t", []) for part in (0, 1, 2))


def test_a_group_that_is_no_consumer_of_the_known_kind_is_not_upgraded(host: MigrationHost) -> None:
    host.stable_group("a", protocol_type="connect")
    host.refused(GroupIdNotFound, "n", 0, topics=["t"])
    assert isinstance(host.shard.groups["g"], ClassicGroup)


def test_malformed_subscriptions_keep_a_group_classic(host: MigrationHost) -> None:
    host.stable_group("a", protocols={"range": b"\x00"})
    host.refused(GroupIdNotFound, "n", 0, topics=["t"])
    assert host.shard.groups["g"].state_name == "Stable"


def test_an_empty_classic_group_makes_place_and_its_offsets_stay(host: MigrationHost) -> None:
    old = host.classic_group()
    host.commit(9, member_id=old, generation=1)
    host.leave((old, None))
    assert host.heartbeat("n", 0, topics=["t"]).member_epoch == 1
    assert host.committed() == 9
    host.crash()
    assert isinstance(host.shard.groups["g"], ConsumerGroup)


@pytest.mark.promise(
    "consumer groups",
    "A group can be migrated from the classic protocol and back, member by member, eager or cooperative, "
    "unless the migration policy forbids it",
)
@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_the_policy_can_forbid_upgrades(policy: str) -> None:
    host = MigrationHost({"t": 4}, group_consumer_migration_policy=policy)
    host.classic_group()
    host.refused(GroupIdNotFound, "n", 0, topics=["t"])


# classic members of a consumer group


def test_classic_requests_are_checked_as_in_kafka(host: MigrationHost) -> None:
    host.heartbeat("n", 0, topics=["t"])
    asked = host.answers[host.join("", protocols={COOPERATIVE: subscription("t")})]
    assert asked.error_code == MemberIdRequired.code
    assert host.classic_join(asked.member_id).error_code == 0
    wrong = host.answers[host.join("x", protocols={"range": subscription("t")})]
    assert wrong.error_code == InconsistentGroupProtocol.code, "no protocol in common with the classic member"
    other = host.answers[host.join("x", protocols={COOPERATIVE: b""}, protocol_type="connect")]
    assert other.error_code == InconsistentGroupProtocol.code
    hostile = host.answers[host.join("x", protocols={COOPERATIVE: b"\x00\x01\x7f"})]
    assert hostile.error_code == UnknownServerError.code
    assert "x" not in host.group().members
    assert host.beat(asked.member_id, 9) == IllegalGeneration.code
    assert host.beat("nobody", 1) == UnknownMemberId.code
    assert host.answers[host.sync(asked.member_id, 7)].error_code == IllegalGeneration.code
    strange = host.answers[host.sync(asked.member_id, 2, protocol_name="range")]
    assert strange.error_code == InconsistentGroupProtocol.code
    assert host.commit(1, member_id=asked.member_id, generation=1) == IllegalGeneration.code
    assert host.commit(1, member_id=asked.member_id, generation=2, version=5) == 0


def test_a_classic_member_that_was_taken_out_has_to_begin_anew(host: MigrationHost) -> None:
    host.heartbeat("n", 0, topics=["t"])
    late = host.classic_join("c", owned={"t": [0]})
    assert late.error_code == UnknownMemberId.code
    assert sorted(host.group().members) == ["n"]


def test_classic_members_leave_and_time_out_like_others(host: MigrationHost) -> None:
    host.heartbeat("n", 0, topics=["t"])
    host.classic_join("c1", session_ms=10_000)
    host.classic_join("c2", session_ms=10_000)
    assert host.leave(("c1", None), ("c1", None), ("n", None)) == [
        0,
        UnknownMemberId.code,
        UnknownMemberId.code,
    ]
    host.tick(10_000)
    assert sorted(host.group().members) == ["n"]


def test_a_classic_member_that_does_not_rejoin_in_time_is_taken_out(host: MigrationHost) -> None:
    host.heartbeat("n", 0, topics=["t"])
    host.classic_join("c", rebalance_ms=15_000, session_ms=10_000)
    host.classic_sync("c", 2)
    host.heartbeat("n", 1, topics=["t", "u"])
    for _ in range(4):
        host.beat("c", 2)
        host.tick(5_000)
    assert sorted(host.group().members) == ["n"]


def test_a_classic_member_that_does_not_sync_in_time_is_taken_out(host: MigrationHost) -> None:
    host.heartbeat("n", 0, topics=["t"])
    host.classic_join("c", rebalance_ms=8_000)
    host.tick(8_000)
    assert sorted(host.group().members) == ["n"]


def test_classic_static_members_are_replaced_and_fenced(host: MigrationHost) -> None:
    host.heartbeat("n", 0, topics=["t"])
    first = host.classic_join("", instance="i")
    assert first.error_code == 0
    second = host.classic_join("", instance="i")
    assert second.error_code == 0
    assert sorted(host.group().members) == sorted(["n", second.member_id])
    assert host.beat(first.member_id, first.generation_id, instance="i") == FencedInstanceId.code
    assert host.leave(("", "i")) == [0]


# down


@pytest.mark.promise(
    "consumer groups",
    "A group can be migrated from the classic protocol and back, member by member, eager or cooperative, "
    "unless the migration policy forbids it",
)
def test_the_group_becomes_classic_when_the_last_new_member_leaves(host: MigrationHost) -> None:
    old = host.classic_group()
    host.heartbeat("n", 0, topics=["t"])
    host.classic_join(old)
    host.classic_sync(old, 2)
    host.heartbeat("n", 2)
    host.commit(4, member_id="n", generation=2)
    host.heartbeat("n", -1)
    group = host.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert (group.generation, group.state_name) == (2, "PreparingRebalance")
    assert host.beat(old, 2) == RebalanceInProgress.code
    token = host.join(old, protocols={COOPERATIVE: subscription("t", owned={"t": [0, 1]})})
    host.tick()
    joined = host.answers[token]
    assert (joined.generation_id, joined.leader) == (3, old)
    assert host.committed() == 4


def test_a_downgraded_group_that_is_read_from_the_log_begins_with_a_rebalance(host: MigrationHost) -> None:
    old = host.classic_group()
    host.heartbeat("n", 0, topics=["t"])
    host.heartbeat("n", -1)
    host.crash()
    assert host.shard.groups["g"].state_name == "PreparingRebalance"
    assert old in host.shard.groups["g"].members  # type: ignore[attr-defined]


def test_the_group_becomes_classic_when_the_last_new_members_die_together(host: MigrationHost) -> None:
    old = host.classic_group()
    host.heartbeat("n1", 0, topics=["t"])
    host.heartbeat("n2", 0, topics=["t"])
    host.classic_join(old, session_ms=100_000)
    host.classic_sync(old, 3)
    host.tick(45_000)
    assert isinstance(host.shard.groups["g"], ClassicGroup)


def test_a_classic_process_of_the_last_new_static_member_goes_on_without_a_rebalance(
    host: MigrationHost,
) -> None:
    host.settle("n", topics=["t"], instance="i")
    host.heartbeat("n", -2, instance="i")
    joined = host.classic_join("", instance="i")
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert isinstance(host.shard.groups["g"], ClassicGroup)
    assert host.classic_sync(joined.member_id, 1, instance="i") == {"t": [0, 1, 2, 3]}
    host.crash()
    assert host.shard.groups["g"].state_name == "Stable"


@pytest.mark.promise(
    "consumer groups",
    "A group can be migrated from the classic protocol and back, member by member, eager or cooperative, "
    "unless the migration policy forbids it",
)
@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_the_policy_can_forbid_downgrades(policy: str) -> None:
    host = MigrationHost({"t": 4}, group_consumer_migration_policy=policy)
    host.heartbeat("n", 0, topics=["t"])
    host.classic_join("c")
    host.heartbeat("n", -1)
    assert sorted(host.group().members) == ["c"]
    assert host.beat("c", 2) == RebalanceInProgress.code


def test_a_classic_member_joins_an_empty_consumer_group_as_a_classic_one(host: MigrationHost) -> None:
    host.settle("n", topics=["t"])
    host.commit(3, member_id="n", generation=1)
    host.heartbeat("n", -1)
    host.stable_group("c", protocols={COOPERATIVE: subscription("t")})
    assert isinstance(host.shard.groups["g"], ClassicGroup)
    assert host.committed() == 3
    host.crash()
    assert isinstance(host.shard.groups["g"], ClassicGroup)


@pytest.mark.parametrize("raw", [b"", b"\x00", b"\xff\xff", b"\x00\x01\x7f\xff\xff\xff"])
@pytest.mark.parametrize("how", ["leaves", "is silent"])
def test_the_last_new_member_goes_whatever_a_classic_member_says_in_another_protocol(
    raw: bytes, how: str, host: MigrationHost
) -> None:
    host.heartbeat("m1", 0, topics=["t"])
    good = subscription("t")
    for protocols in ({"zz": good, "range": good}, {"range": good, "zz": raw}):
        token, _ = host.join_new(protocols=protocols, session_ms=1_000_000)
        assert host.answers[token].error_code == 0
    if how == "leaves":
        host.heartbeat("m1", -1)
    else:
        host.tick(60_000)
    assert host.shard.groups["g"].type == "classic"
    host.crash()
    assert host.state() == "PreparingRebalance"


def test_a_classic_member_is_answered_whatever_it_said_in_a_protocol_that_was_not_chosen(
    host: MigrationHost,
) -> None:
    protocols = {"zz": b"", "range": subscription("t")}
    other, _ = host.join_new(protocols={"range": subscription("t")})
    token, member_id = host.join_new(protocols=protocols)
    host.tick()
    assert host.answers[other].protocol_name == "range"
    leader = host.answers[other].leader
    for each in {leader, host.answers[other].member_id, member_id}:
        host.sync(each, 1, {} if each == leader else None)
    host.heartbeat("m1", 0, topics=["t"])
    assert host.answers[token].error_code == 0
    assert isinstance(host.answers[host.sync(member_id, 1)], Message)
