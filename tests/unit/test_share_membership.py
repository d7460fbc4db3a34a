"""The members of share groups: joining, epochs, assignment, leaving, silence, and Kafka's records."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from penstock.coordinator import Outcome, StateRecord
from penstock.groups.group import Caller
from penstock.groups.settings import GroupSettings
from penstock.groups.shard import GroupShard
from penstock.groups.share import assignor, records
from penstock.groups.share.group import ShareGroup
from penstock.groups.share.membership import MemberGone, ShareGroups
from penstock.groups.share.settings import ShareGroupConfig, ShareSettings
from penstock.metadata.image import ClusterImage, PartitionImage, TopicImage
from penstock.wire.message import Message

NOW = 1_700_000_000_000
A, B = UUID(int=0xA), UUID(int=0xB)
WHO = Caller("client", "/127.0.0.1", 1)


def image(**topics: int) -> ClusterImage:
    ids = {"a": A, "b": B}
    made = [
        TopicImage(name, ids[name], tuple(PartitionImage(i, 1, 0, (1,), (1,)) for i in range(count)))
        for name, count in topics.items()
    ]
    return ClusterImage("c", 1).with_topics(made)


@dataclass
class Host:
    """A log, and a shard that is led by it."""

    image: ClusterImage = field(default_factory=lambda: image(a=2))
    settings: ShareSettings = field(default_factory=lambda: ShareSettings(max_size=3))
    config: ShareGroupConfig = field(default_factory=ShareGroupConfig)
    log: list[StateRecord] = field(default_factory=list)
    now: int = NOW

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.shard = GroupShard(GroupSettings(), lambda: self.image, random.Random(1))
        self.share = ShareGroups(self.shard, self.settings, lambda group_id: self.config)
        for record in self.log:
            self.shard.replay(record, timestamp=NOW, producer=None)
        self.apply(self.shard.on_time(self.now))

    def apply(self, out: Outcome) -> Outcome:
        for record in out.records:
            self.log.append(record)
            self.shard.replay(record, timestamp=self.now, producer=None)
        return out

    def beat(self, member: str, epoch: int, topics: list[str] | None = None, **more: Any) -> Message:
        request = Message(
            group_id=more.pop("group", "g"),
            member_id=member,
            member_epoch=epoch,
            rack_id=None,
            subscribed_topic_names=topics,
        )
        vars(request).update(more)
        [reply] = self.apply(self.share.heartbeat(request, WHO, "token", self.now)).replies
        assert isinstance(reply.response, Message)
        return reply.response

    def sleep(self, ms: int) -> Outcome:
        self.now += ms
        return self.apply(self.shard.on_time(self.now))

    @property
    def group(self) -> ShareGroup:
        found = self.shard.groups["g"]
        assert isinstance(found, ShareGroup)
        return found


def assigned(answer: Message) -> dict[UUID, list[int]]:
    return {item.topic_id: item.partitions for item in answer.assignment.topic_partitions}


def test_the_first_member_gets_every_partition_and_an_interval() -> None:
    answer = Host().beat("m1", 0, ["a"])
    assert (answer.error_code, answer.member_epoch, answer.heartbeat_interval_ms) == (0, 1, 5000)
    assert assigned(answer) == {A: [0, 1]}


def test_a_second_member_takes_over_a_part_and_a_third_shares_a_partition() -> None:
    host = Host()
    host.beat("m1", 0, ["a"])
    second = assigned(host.beat("m2", 0, ["a"]))
    first = host.beat("m1", 1)
    assert first.member_epoch == 2
    assert sorted(assigned(first)[A] + second[A]) == [0, 1]
    assert host.beat("m1", 2).assignment is None  # nothing new
    third = assigned(host.beat("m3", 0, ["a"]))
    assert len(third[A]) == 1


def test_a_member_whose_answer_was_lost_is_told_again() -> None:
    host = Host()
    host.beat("m1", 0, ["a"])
    host.beat("m2", 0, ["a"])
    lost = host.beat("m1", 1)
    again = host.beat("m1", 1)
    assert again.member_epoch == lost.member_epoch == 2
    assert assigned(again) == assigned(lost)


def test_a_partition_more_is_assigned_at_the_next_heartbeat() -> None:
    host = Host()
    host.beat("m1", 0, ["a"])
    host.image = image(a=3)
    assert assigned(host.beat("m1", 1)) == {A: [0, 1, 2]}
    assert host.group.initialized == {A: ("a", frozenset((0, 1, 2)))}


@pytest.mark.promise("share groups", "Invalid requests get Kafka's errors and change nothing")
@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"member": "", "epoch": 0, "topics": ["a"]}, 42),
        ({"member": "m", "epoch": 0, "topics": None}, 42),
        ({"member": "m", "epoch": 0, "topics": []}, 42),
        ({"member": "m", "epoch": -2}, 42),
        ({"member": "m", "epoch": 0, "topics": ["a"], "group": " "}, 42),
        ({"member": "m", "epoch": 0, "topics": ["a"], "rack_id": ""}, 42),
        ({"member": "m", "epoch": 1}, 69),  # no such group
        ({"member": "m", "epoch": -1}, 69),
    ],
)
def test_bad_requests_are_refused_as_kafka_does(request_: dict[str, Any], code: int) -> None:
    host = Host()
    assert host.beat(**request_).error_code == code
    assert not host.log


def test_unknown_fenced_and_surplus_members_are_refused() -> None:
    host = Host()
    host.beat("m1", 0, ["a"])
    assert host.beat("m2", 1).error_code == 25
    assert host.beat("m1", 7).error_code == 110
    host.beat("m2", 0, ["a"])
    host.beat("m3", 0, ["a"])
    assert host.beat("m1", -1).error_code == 0
    host.beat("m1", 0, ["a"])
    assert host.beat("m4", 0, ["a"]).error_code == 81


def test_a_group_of_another_type_is_not_a_share_group() -> None:
    host = Host()
    host.shard.groups["g"] = SimpleNamespace(type="classic")  # type: ignore[assignment]
    assert host.beat("m1", 0, ["a"]).error_code == 69


def test_who_leaves_is_gone_and_closes_its_session_itself() -> None:
    host = Host()
    host.beat("m1", 0, ["a"])
    host.beat("m2", 0, ["a"])
    request = Message(
        group_id="g", member_id="m1", member_epoch=-1, rack_id=None, subscribed_topic_names=None
    )
    out = host.apply(host.share.heartbeat(request, WHO, "t", host.now))
    assert out.actions == []
    assert list(host.group.members) == ["m2"]
    assert assigned(host.beat("m2", host.group.members["m2"].epoch)) == {A: [0, 1]}


def test_who_is_silent_is_taken_out_after_the_session_also_after_a_restart() -> None:
    host = Host()
    host.beat("m1", 0, ["a"])
    host.beat("m2", 0, ["a"])
    host.sleep(44_000)
    assert len(host.group.members) == 2
    host.restart()
    out = host.sleep(45_000)
    assert set(out.actions) == {MemberGone("g", "m1"), MemberGone("g", "m2")}
    assert host.group.state_name == "Empty"
    assert sum(record.key[1] == records.GROUP for record in out.records) == 1


def test_replay_makes_the_same_group() -> None:
    host = Host()
    host.beat("m1", 0, ["a"])
    host.beat("m2", 0, ["a"])
    before = host.group
    host.restart()
    after = host.group
    for name in ("epoch", "assignment_epoch", "metadata_hash", "members", "target", "initialized"):
        assert getattr(after, name) == getattr(before, name), name
    assert host.beat("m1", 1).member_epoch == 2


def test_an_empty_group_stays_until_it_is_deleted() -> None:
    host = Host()
    host.beat("m1", 0, ["a"])
    out = host.shard.delete_groups("g", WHO, "t", host.now)
    assert out.replies[0].response.error_code == 68  # type: ignore[union-attr]
    host.beat("m1", -1)
    host.sleep(8 * 24 * 3600 * 1000)
    assert host.group.is_empty
    host.apply(host.shard.delete_groups("g", WHO, "t", host.now))
    assert not host.shard.groups
    host.restart()
    assert not host.shard.groups


def test_describe_and_list_show_the_group() -> None:
    host = Host()
    host.beat("m1", 0, ["a"])
    described = host.share.describe("g")
    assert (described.group_state, described.group_epoch, described.assignor_name) == ("Stable", 1, "simple")
    [member] = described.members
    assert (member.member_id, member.client_id, member.subscribed_topic_names) == ("m1", "client", ["a"])
    assert member.assignment.topic_partitions[0].topic_name == "a"
    assert host.share.describe("other").error_code == 69
    [row] = host.shard.list_groups([], ["share"])
    assert (row.group_id, row.group_type, row.protocol_type) == ("g", "share", "share")


@pytest.mark.promise("share groups", "The share coordinator's records are byte for byte Kafka's")
def test_the_records_are_kafkas_byte_for_byte() -> None:
    assert records.group_record("g", 7, 9).value == bytes.fromhex("0000 00000007 0000000000000009 00")
    assert records.key(records.MEMBER, "g", "m") == bytes.fromhex("000a 0001 67 0001 6d")
    said = records.MemberMetadata(None, "c", "h", frozenset(["t"]))
    member = records.member_record("g", "m", said)
    assert member.value == bytes.fromhex("0000 00 02 63 02 68 02 02 74 00")
    assert records.read_member(member.value) == said
    target = {A: frozenset((1, 0))}
    raw = "02" + A.hex + "03 00000000 00000001 00"
    record = records.target_record("g", "m", target)
    assert record.value == bytes.fromhex("0000" + raw + "00")
    current = records.CurrentAssignment(5, 4, target)
    record = records.current_record("g", "m", current)
    assert record.value == bytes.fromhex("0000 00000005 00000004 00" + raw + "00")
    assert records.read_current(record.value) == current
    state = {A: ("a", frozenset((0, 1)))}
    record = records.state_partitions_record("g", state)
    assert record.value == bytes.fromhex("0000 01 02" + A.hex + "02 61 03 00000000 00000001 00 01 00")
    assert records.read_state_partitions(record.value) == state


def sizes(found: dict[str, Any]) -> list[int]:
    return sorted(sum(map(len, partitions.values())) for partitions in found.values())


@pytest.mark.promise(
    "share groups",
    "Partitions are distributed evenly over the members and move little; with more members than "
    "partitions, members share them",
)
def test_the_assignor_balances_and_moves_little() -> None:
    both = frozenset((A, B))
    counts = {A: 5, B: 2}
    three = dict.fromkeys(("m1", "m2", "m3"), both)
    first = assignor.assign(three, {}, counts)
    assert sizes(first) == [2, 2, 3]
    assert assignor.assign(three, first, counts) == first
    two = dict.fromkeys(("m1", "m2"), both)
    second = assignor.assign(two, first, counts)
    assert sizes(second) == [3, 4]
    for name in two:
        assert all(first[name][topic] <= second[name].get(topic, frozenset()) for topic in first[name])


@pytest.mark.promise(
    "share groups",
    "Partitions are distributed evenly over the members and move little; with more members than "
    "partitions, members share them",
)
def test_more_members_than_partitions_are_spread_over_them() -> None:
    members = {f"m{i}": frozenset((A,)) for i in range(7)}
    found = assignor.assign(members, {}, {A: 3})
    assert sizes(found) == [1] * 7
    per_partition = [sum(number in partitions[A] for partitions in found.values()) for number in range(3)]
    assert sorted(per_partition) == [2, 2, 3]


def test_members_of_different_topics_get_only_theirs() -> None:
    found = assignor.assign(
        {"m1": frozenset((A,)), "m2": frozenset((A, B)), "m3": frozenset((B,))}, {}, {A: 2, B: 1}
    )
    assert set(found["m1"]) == {A} and set(found["m3"]) == {B}
    assert {number for partitions in found.values() for number in partitions.get(A, ())} == {0, 1}
