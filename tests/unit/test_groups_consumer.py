"""What ConsumerGroupHeartbeat promises, request by request, on one shard."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from penstock.coordinator import StateRecord
from penstock.errors import (
    ApiError,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRegularExpression,
    InvalidRequest,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    UnsupportedVersion,
)
from penstock.groups.consumer.group import ConsumerGroup
from penstock.metadata.image import PartitionImage, TopicImage
from penstock.wire.message import Message
from tests.sim.group_host import Host
from tests.unit.groups_consumer_host import ConsumerHost


@pytest.fixture
def host() -> ConsumerHost:
    return ConsumerHost({"t": 4, "u": 2})


# joining and sharing


def test_the_first_member_gets_everything_in_epoch_1(host: ConsumerHost) -> None:
    answer = host.heartbeat("m1", 0, topics=["t"])
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("m1", 1, 5000)
    assert host.assigned(answer) == {"t": [0, 1, 2, 3]}
    assert host.group().state_name == "Stable"


@pytest.mark.promise(
    "consumer groups",
    "A partition moves only after its owner has revoked it; a member that does not revoke it in "
    "time is fenced",
)
def test_a_second_member_waits_until_the_first_has_given_up_its_part(host: ConsumerHost) -> None:
    host.heartbeat("m1", 0, topics=["t"])
    second = host.heartbeat("m2", 0, topics=["t"])
    assert (second.member_epoch, host.assigned(second)) == (2, {})
    first = host.heartbeat("m1", 1)
    assert (first.member_epoch, host.assigned(first)) == (1, {"t": [0, 1]})
    assert host.heartbeat("m2", 2).assignment is None
    assert host.group().state_name == "Reconciling"
    first = host.heartbeat("m1", 1, owned={"t": [0, 1]})
    assert (first.member_epoch, first.assignment) == (2, None)
    assert host.assigned(host.heartbeat("m2", 2)) == {"t": [2, 3]}
    assert host.group().state_name == "Stable"


@pytest.mark.promise(
    "consumer groups",
    "A partition moves only after its owner has revoked it; a member that does not revoke it in "
    "time is fenced",
)
def test_partitions_still_named_as_owned_are_not_given_to_others(host: ConsumerHost) -> None:
    host.heartbeat("m1", 0, topics=["t"])
    host.heartbeat("m2", 0, topics=["t"])
    host.heartbeat("m1", 1)
    assert host.heartbeat("m1", 1, owned={"t": [0, 1, 2]}).member_epoch == 1
    assert host.heartbeat("m2", 2).assignment is None


def test_the_assignment_is_told_again_to_who_sends_everything_again(host: ConsumerHost) -> None:
    host.settle("m1", topics=["t"])
    assert host.heartbeat("m1", 1).assignment is None
    again = host.heartbeat("m1", 1, topics=["t"], timeout=60_000, owned={"t": [0, 1, 2, 3]})
    assert host.assigned(again) == {"t": [0, 1, 2, 3]}


def test_nothing_is_written_when_nothing_changes(host: ConsumerHost) -> None:
    host.settle("m1", topics=["t"])
    host.heartbeat("m1", 1)
    before = len(host.log)
    for _ in range(3):
        host.heartbeat("m1", 1)
    assert len(host.log) == before


def test_a_member_without_subscription_is_a_member_with_nothing(host: ConsumerHost) -> None:
    answer = host.heartbeat("m1", 0, topics=[])
    assert (answer.member_epoch, host.assigned(answer)) == (1, {})
    assert host.heartbeat("m2", 0, topics=["t"]).member_epoch == 2


def test_subscriptions_and_topics_that_change_raise_the_epoch(host: ConsumerHost) -> None:
    host.settle("m1", topics=["t", "none"])
    answer = host.heartbeat("m1", 1, topics=["t", "u"])
    assert (answer.member_epoch, host.assigned(answer)) == (2, {"t": [0, 1, 2, 3], "u": [0, 1]})
    host.grow("t", 5)
    assert host.assigned(host.heartbeat("m1", 2))["t"] == [0, 1, 2, 3, 4]
    host.heartbeat("m1", 3, topics=["t", "new"], owned={"t": [0, 1, 2, 3, 4]})
    host.create("new", 1)
    assert host.assigned(host.heartbeat("m1", 4))["new"] == [0]
    host.image = host.image.without_topics([host.image.topics["t"]])
    told = host.heartbeat("m1", 5)
    assert (told.member_epoch, host.assigned(told)) == (5, {"new": [0]})
    assert host.heartbeat("m1", 5, owned={"new": [0]}).member_epoch == 6


@pytest.mark.promise(
    "consumer groups",
    "Added partitions are assigned; a topic that is deleted and created again counts as a different topic",
)
def test_a_topic_that_is_made_anew_is_another_topic(host: ConsumerHost) -> None:
    host.settle("m1", topics=["u"])
    old = host.image.topics["u"]
    host.image = host.image.without_topics([old]).with_topics([replace(old, id=UUID(int=77))])
    host.heartbeat("m1", 1)
    answer = host.heartbeat("m1", 1, owned={})
    assert host.assigned(answer) == {"u": [0, 1]}
    assert {item.topic_id for item in answer.assignment.topic_partitions} == {UUID(int=77)}


def test_an_image_that_changes_elsewhere_changes_nothing(host: ConsumerHost) -> None:
    host.settle("m1", topics=["t"])
    host.create("other", 1)
    assert host.heartbeat("m1", 1).member_epoch == 1


@pytest.mark.promise(
    "consumer groups",
    "The `uniform` assignor distributes partitions evenly and moves no more than necessary; the `range` "
    "assignor gives contiguous ranges",
)
def test_the_assignor_that_most_members_ask_for_is_used(host: ConsumerHost) -> None:
    host.heartbeat("m1", 0, topics=["t", "u"], assignor="range")
    host.heartbeat("m2", 0, topics=["t", "u"], assignor="range")
    host.heartbeat("m3", 0, topics=["t", "u"])
    assert host.describe().assignor_name == "range"
    targets = {name: host.named(target) for name, target in host.group().target.items()}
    assert targets["m1"] == {"t": [0, 1], "u": [0]}
    assert targets["m3"] == {"t": [3]}


# regular expressions


def test_a_pattern_subscribes_to_topics_that_match_now_and_later(host: ConsumerHost) -> None:
    assert host.assigned(host.heartbeat("m1", 0, regex="t.*|u")) == {}
    assert host.assigned(host.heartbeat("m1", 1)) == {"t": [0, 1, 2, 3], "u": [0, 1]}
    host.create("t2", 1)
    assert host.assigned(host.heartbeat("m1", 2))["t2"] == [0]
    assert host.group().regexes["t.*|u"].topics == {"t", "t2", "u"}


def test_a_pattern_does_not_match_internal_topics(host: ConsumerHost) -> None:
    host.create("__consumer_offsets", 1)
    host.heartbeat("m1", 0, regex=".*")
    assert sorted(host.assigned(host.heartbeat("m1", 1))) == ["t", "u"]


def test_names_and_a_pattern_add_up_and_an_empty_pattern_ends_it(host: ConsumerHost) -> None:
    host.heartbeat("m1", 0, topics=["t"], regex="u")
    assert sorted(host.assigned(host.heartbeat("m1", 1))) == ["t", "u"]
    told = host.heartbeat("m1", 2, regex="")
    assert host.assigned(told) == {"t": [0, 1, 2, 3]}
    assert host.group().regexes == {}


@pytest.mark.promise(
    "consumer groups",
    "Topics that a member subscribes to by name are assigned at once; topics that a new pattern matches "
    "are assigned with a later heartbeat, as in Kafka",
)
def test_named_topics_are_assigned_at_once_and_those_of_a_new_pattern_with_a_later_heartbeat(
    host: ConsumerHost,
) -> None:
    first = host.heartbeat("m1", 0, topics=["t"], regex="u")
    assert (first.member_epoch, host.assigned(first)) == (1, {"t": [0, 1, 2, 3]})
    second = host.heartbeat("m1", 1, owned={"t": [0, 1, 2, 3]})
    assert (second.member_epoch, host.assigned(second)) == (2, {"t": [0, 1, 2, 3], "u": [0, 1]})
    # in a group that has settled, too, and where others have named all that the pattern matches
    host.heartbeat("m1", 2, owned={"t": [0, 1, 2, 3], "u": [0, 1]})
    joined = host.heartbeat("m2", 0, regex="t|nothing")
    assert (joined.member_epoch, host.assigned(joined)) == (3, {})
    assert host.heartbeat("m2", 3).member_epoch == 4
    assert host.named(host.group().target["m2"]) == {"t": [1, 2, 3]}
    # a pattern that the group knows is not waited for
    assert host.heartbeat("m3", 0, regex="t|nothing").member_epoch == 5
    assert "t" in host.named(host.group().target["m3"])


def test_a_pattern_that_nobody_uses_any_more_is_forgotten(host: ConsumerHost) -> None:
    host.heartbeat("m1", 0, regex="t")
    host.heartbeat("m2", 0, topics=["t"])
    host.heartbeat("m1", -1)
    assert host.group().regexes == {}


def test_a_bad_pattern_is_refused_and_the_group_goes_on(host: ConsumerHost) -> None:
    host.settle("m1", topics=["t"])
    host.refused(InvalidRegularExpression, "m2", 0, regex="(a")
    assert list(host.group().members) == ["m1"]


# epochs


@pytest.mark.promise(
    "consumer groups",
    "A member whose response was lost can ask for it again; old epochs are fenced, also in commits",
)
def test_an_epoch_that_was_never_given_is_fenced(host: ConsumerHost) -> None:
    host.settle("m1", topics=["t"])
    host.refused(FencedMemberEpoch, "m1", 2)
    host.refused(UnknownMemberId, "m2", 1)
    host.refused(GroupIdNotFound, "m1", 1, group="other")


def test_the_epoch_before_is_accepted_from_who_owns_no_more_than_its_part(host: ConsumerHost) -> None:
    """The answer with the new epoch was lost."""
    host.settle("m1", topics=["t"])
    host.heartbeat("m1", 1, topics=["u"])
    host.heartbeat("m1", 1, owned={})
    assert host.group().members["m1"].epoch == 2
    host.refused(FencedMemberEpoch, "m1", 1)
    host.refused(FencedMemberEpoch, "m1", 1, owned={"t": [0]})
    answer = host.heartbeat("m1", 1, topics=["u"], timeout=60_000, owned={})
    assert (answer.member_epoch, host.assigned(answer)) == (2, {"u": [0, 1]})


@pytest.mark.promise(
    "consumer groups",
    "A member whose response was lost can ask for it again; old epochs are fenced, also in commits",
)
def test_a_heartbeat_that_comes_twice_is_answered_with_the_assignment_twice(host: ConsumerHost) -> None:
    host.settle("m1", topics=["t"])
    host.heartbeat("m1", 1, topics=["u"])
    for _ in range(2):
        answer = host.heartbeat("m1", 1, owned={})
        assert (answer.member_epoch, host.assigned(answer)) == (2, {"u": [0, 1]})


@pytest.mark.promise(
    "consumer groups",
    "A member whose response was lost can ask for it again; old epochs are fenced, also in commits",
)
def test_a_join_whose_answer_was_lost_can_be_sent_again(host: ConsumerHost) -> None:
    host.heartbeat("m1", 0, topics=["t"])
    again = host.heartbeat("m1", 0, topics=["t"])
    assert (again.member_epoch, host.assigned(again)) == (1, {"t": [0, 1, 2, 3]})


@pytest.mark.promise(
    "consumer groups",
    "A member whose response was lost can ask for it again; old epochs are fenced, also in commits",
)
def test_commits_and_fetches_of_offsets_need_the_epoch_of_the_member(host: ConsumerHost) -> None:
    host.settle("m1", topics=["t"])
    assert host.commit(7, member_id="m1", generation=1) == 0
    assert host.commit(8, member_id="m1", generation=2) == StaleMemberEpoch.code
    assert host.commit(8, member_id="m2", generation=1) == UnknownMemberId.code
    assert host.commit(8, member_id="m1", generation=1, version=8) == UnsupportedVersion.code
    assert host.commit(8) == UnknownMemberId.code
    assert host.committed() == 7
    fetch = Message(group_id="g", member_id="m1", member_epoch=0, topics=None)
    assert host.ask("offset_fetch", fetch).error_code == StaleMemberEpoch.code
    host.heartbeat("m1", -1)
    assert host.commit(9) == 0, "an administrator sets the offsets of an empty group"


# leaving, sessions, limits


def test_a_member_that_leaves_gives_up_everything_at_once(host: ConsumerHost) -> None:
    host.pair()
    answer = host.heartbeat("m1", -1)
    assert (answer.member_id, answer.member_epoch) == ("m1", -1)
    assert host.assigned(host.heartbeat("m2", 2)) == {"t": [0, 1, 2, 3]}
    host.heartbeat("m2", -1)
    assert host.group().state_name == "Empty"
    host.refused(UnknownMemberId, "m2", -1)


@pytest.mark.promise(
    "consumer groups",
    "A rolling restart loses nothing; after kill -9 of a member, the other members take over its partitions",
)
def test_a_silent_member_is_taken_out_when_its_session_ends(host: ConsumerHost) -> None:
    host.pair()
    host.tick(30_000)
    host.heartbeat("m2", 2)
    host.tick(20_000)
    host.refused(UnknownMemberId, "m1", 2)
    assert host.assigned(host.heartbeat("m2", 2)) == {"t": [0, 1, 2, 3]}


def test_members_whose_sessions_end_together_go_together(host: ConsumerHost) -> None:
    host.pair()
    epoch = host.group().epoch
    host.tick(45_000)
    assert (host.group().state_name, host.group().epoch) == ("Empty", epoch + 1)


@pytest.mark.promise(
    "consumer groups",
    "A partition moves only after its owner has revoked it; a member that does not revoke it in "
    "time is fenced",
)
def test_a_member_that_does_not_give_up_partitions_in_time_is_fenced(host: ConsumerHost) -> None:
    host.heartbeat("m1", 0, topics=["t"], timeout=10_000)
    host.heartbeat("m2", 0, topics=["t"])
    host.heartbeat("m1", 1)
    host.tick(9_000)
    host.heartbeat("m1", 1)
    host.tick(1_000)
    host.refused(UnknownMemberId, "m1", 1)
    assert host.assigned(host.heartbeat("m2", 2)) == {"t": [0, 1, 2, 3]}


def test_a_member_that_gave_up_in_time_is_not_fenced(host: ConsumerHost) -> None:
    host.heartbeat("m1", 0, topics=["t"], timeout=10_000)
    host.heartbeat("m2", 0, topics=["t"])
    host.heartbeat("m1", 1)
    host.heartbeat("m1", 1, owned={"t": [0, 1]})
    host.tick(20_000)
    assert host.heartbeat("m1", 2).error_code == 0


def test_a_group_has_room_for_so_many_and_no_more() -> None:
    host = ConsumerHost({"t": 1}, group_consumer_max_size=1)
    host.settle("m1", topics=["t"])
    host.refused(GroupMaxSizeReached, "m2", 0, topics=["t"])
    assert host.heartbeat("m1", 1).error_code == 0


def test_a_group_can_be_deleted_when_it_is_empty(host: ConsumerHost) -> None:
    host.heartbeat("m1", 0, topics=["t"], regex="u")
    assert host.ask("delete_groups", "g").error_code == NonEmptyGroup.code
    host.heartbeat("m1", -1)
    assert host.ask("delete_groups", "g").error_code == 0
    assert host.shard.groups == {}
    host.crash()
    assert host.shard.groups == {}


def test_offsets_of_subscribed_topics_neither_expire_nor_can_be_deleted(host: ConsumerHost) -> None:
    host.settle("m1", topics=["t"])
    host.commit(1, member_id="m1", generation=1)
    assert host.group().subscribes_to("t")
    assert not host.group().subscribes_to("u")


# static members


def test_a_static_member_that_left_for_a_while_finds_its_partitions_again(host: ConsumerHost) -> None:
    host.settle("m1", topics=["t"], instance="i")
    host.heartbeat("m2", 0, topics=["t"], instance="j")
    host.heartbeat("m1", 1)
    host.heartbeat("m1", 1, owned={"t": [0, 1]})
    host.heartbeat("m2", 2)
    epoch = host.group().epoch
    left = host.heartbeat("m1", -2, instance="i")
    assert left.member_epoch == -2
    assert host.heartbeat("m2", 2).assignment is None
    back = host.heartbeat("m1b", 0, topics=["t"], instance="i")
    assert (back.member_epoch, host.assigned(back)) == (2, {"t": [0, 1]})
    assert host.group().epoch == epoch
    assert sorted(host.group().members) == ["m1b", "m2"]


def test_a_static_member_that_does_not_come_back_is_taken_out(host: ConsumerHost) -> None:
    host.settle("m1", topics=["t"], instance="i")
    host.heartbeat("m1", -2, instance="i")
    host.tick(45_000)
    assert host.group().state_name == "Empty"


def test_a_static_member_can_leave_for_good(host: ConsumerHost) -> None:
    host.settle("m1", topics=["t"], instance="i")
    host.refused(FencedInstanceId, "m2", -1, instance="i")
    host.heartbeat("m1", -1, instance="i")
    assert host.group().state_name == "Empty"


def test_an_instance_in_use_is_not_released_to_another_process(host: ConsumerHost) -> None:
    host.settle("m1", topics=["t"], instance="i")
    host.refused(UnreleasedInstanceId, "m2", 0, topics=["t"], instance="i")
    assert host.heartbeat("m1", 1, instance="i").error_code == 0


@pytest.mark.promise(
    "consumer groups",
    "A static member gets its partitions back when it returns; a second process with the same "
    "`group.instance.id` is rejected",
)
def test_the_process_that_was_replaced_is_fenced(host: ConsumerHost) -> None:
    host.settle("m1", topics=["t"], instance="i")
    host.heartbeat("m1", -2, instance="i")
    host.heartbeat("m2", 0, topics=["t"], instance="i")
    host.refused(FencedInstanceId, "m1", 1, instance="i")
    host.refused(UnknownMemberId, "m1", 1)
    host.refused(UnknownMemberId, "m1", 1, instance="unknown")


# bad requests


@pytest.mark.promise(
    "consumer groups", "Invalid requests and hostile bytes get Kafka's errors, and the group continues"
)
@pytest.mark.parametrize(
    ("error", "fields"),
    [
        (InvalidRequest, {"group": "", "topics": ["t"]}),
        (InvalidRequest, {"group": " ", "topics": ["t"]}),
        (InvalidRequest, {"member": "", "topics": ["t"]}),
        (InvalidRequest, {"instance": "", "topics": ["t"]}),
        (InvalidRequest, {"rack": "", "topics": ["t"]}),
        (InvalidRequest, {"topics": ["t"], "timeout": -1}),
        (InvalidRequest, {"topics": ["t"], "owned": {"t": [0]}}),
        (InvalidRequest, {}),
        (InvalidRequest, {"epoch": -2}),
        (InvalidRequest, {"epoch": -3}),
        (InvalidRequest, {"member": "m" * 40_000, "topics": ["t"]}),
        (InvalidRequest, {"topics": [], "regex": "a" * 40_000}),
        (UnsupportedAssignor, {"topics": ["t"], "assignor": "sticky"}),
        (InvalidRegularExpression, {"regex": "[z-a]"}),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_no_trace(
    host: ConsumerHost, error: type[ApiError], fields: dict[str, Any]
) -> None:
    member, epoch = fields.pop("member", "m"), fields.pop("epoch", 0)
    host.refused(error, member, epoch, **fields)
    assert host.shard.groups == {}
    assert host.log == []


def test_the_coordinator_makes_the_member_id_for_version_0(host: ConsumerHost) -> None:
    answer = host.heartbeat("", 0, topics=["t"], version=0)
    assert UUID(answer.member_id)
    assert host.heartbeat(answer.member_id, 1, version=0).error_code == 0


@pytest.mark.promise(
    "consumer groups", "Invalid requests and hostile bytes get Kafka's errors, and the group continues"
)
def test_hostile_owned_partitions_change_nothing(host: ConsumerHost) -> None:
    host.settle("m1", topics=["t"])
    strange = [
        Message(topic_id=UUID(int=99), partitions=[-1, 2**31 - 1]),
        Message(topic_id=UUID(int=1), partitions=[]),
    ]
    answer = host.send_raw("m1", 1, topic_partitions=strange * 50)
    assert answer.member_epoch == 1


# describing and listing


def test_a_group_is_described_with_its_members_and_both_assignments(host: ConsumerHost) -> None:
    host.heartbeat("m1", 0, topics=["t"], instance="i", rack="r")
    host.heartbeat("m2", 0, regex="t")
    host.heartbeat("m2", 2)
    host.heartbeat("m1", 1)
    group = host.describe()
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Reconciling", 3, 3)
    assert group.assignor_name == "uniform"
    first, second = sorted(group.members, key=lambda member: member.member_id)
    assert (first.instance_id, first.rack_id, first.member_epoch, first.member_type) == ("i", "r", 1, 1)
    assert (first.client_id, first.client_host) == ("c", "/127.0.0.1")
    assert (second.subscribed_topic_names, second.subscribed_topic_regex) == ([], "t")
    (assigned,) = first.assignment.topic_partitions
    (target,) = second.target_assignment.topic_partitions
    assert (assigned.topic_name, assigned.partitions) == ("t", [0, 1])
    assert (target.topic_name, target.partitions) == ("t", [2, 3])


def test_other_groups_are_not_found_by_this_description(host: ConsumerHost) -> None:
    assert isinstance(host.ask("consumer_group_describe", "nobody"), GroupIdNotFound)
    host.commit(1, group="simple")
    assert isinstance(host.ask("consumer_group_describe", "simple"), GroupIdNotFound)


def test_groups_are_listed_with_type_and_state(host: ConsumerHost) -> None:
    host.settle("m1", topics=["t"])
    (row,) = host.shard.list_groups([], ["Consumer"])
    assert (row.group_id, row.group_type, row.group_state, row.protocol_type) == (
        "g", "consumer", "Stable", "consumer",
    )  # fmt: skip
    assert host.shard.list_groups(["empty"], []) == []
    assert host.ask("describe_groups", "g", 6).error_code == GroupIdNotFound.code


# the log


@pytest.mark.promise("consumer groups", "After kill -9 of the broker, the group continues in its epoch")
def test_a_coordinator_that_reads_the_log_goes_on_with_the_same_epochs(host: ConsumerHost) -> None:
    host.heartbeat("m1", 0, topics=["t"], instance="i")
    host.heartbeat("m2", 0, regex="t|u")
    host.heartbeat("m2", 2)
    host.heartbeat("m1", 1)
    before = host.group()
    host.crash()
    after = host.group()
    for name in ("epoch", "assignment_epoch", "metadata_hash", "members", "target", "owners", "regexes"):
        assert getattr(after, name) == getattr(before, name)
    assert host.heartbeat("m1", 1, owned={"t": [0, 1, 2]}).member_epoch == 3


def test_after_a_crash_sessions_and_revocations_are_timed_again(host: ConsumerHost) -> None:
    host.heartbeat("m1", 0, topics=["t"], timeout=10_000)
    host.heartbeat("m2", 0, topics=["t"])
    host.heartbeat("m1", 1)
    host.crash()
    host.tick(10_000)
    host.refused(UnknownMemberId, "m1", 1)
    host.tick(35_000)
    assert host.group().state_name == "Empty"


@pytest.mark.promise("consumer groups", "After kill -9 of the broker, the group continues in its epoch")
def test_the_log_can_be_compacted_at_any_point(host: ConsumerHost) -> None:
    host.pair()
    host.heartbeat("m3", 0, regex="t")
    host.heartbeat("m1", -1)
    host.heartbeat("m2", 2, owned={"t": [2, 3]})
    last = {entry[0].key: entry for entry in host.log if isinstance(entry[0], StateRecord)}
    live = host.group()
    host.log = [entry for entry in host.log if last[entry[0].key] is entry and entry[0].value is not None]
    host.crash()
    for name in ("epoch", "assignment_epoch", "members", "target", "owners", "regexes"):
        assert getattr(host.group(), name) == getattr(live, name)


def test_a_commit_before_the_group_does_not_make_it_a_classic_one(host: ConsumerHost) -> None:
    host.commit(3)
    host.settle("m1", topics=["t"])
    assert isinstance(host.shard.groups["g"], ConsumerGroup)
    assert host.committed() == 3
    host.crash()
    assert isinstance(host.shard.groups["g"], ConsumerGroup)
    assert host.commit(4, member_id="m1", generation=0) == StaleMemberEpoch.code


@pytest.mark.promise("consumer groups", "The group's records are byte for byte Kafka's")
def test_the_partition_metadata_of_an_older_kafka_is_read_and_deleted(host: ConsumerHost) -> None:
    host.settle("m1", topics=["t"])
    old = StateRecord(b"\0\x04\0\x01g", b"\0\0\x01\0")
    host.log.append((old, host.now, None))
    host.crash()
    assert host.group().has_partition_metadata
    host.heartbeat("m1", 1, topics=["u"])
    assert not host.group().has_partition_metadata
    assert (old.key, None) in [entry[0] for entry in host.log]


def test_a_member_of_the_new_protocol_is_none_of_the_classic_one(host: ConsumerHost) -> None:
    host.settle("m1", topics=["t"])
    assert Host.heartbeat(host, "m1", 1) == UnknownMemberId.code
    assert host.leave(("m1", None)) == [UnknownMemberId.code]


def test_a_group_of_fifty_settles_in_few_heartbeats() -> None:
    host = ConsumerHost({"t": 200})
    epochs = {
        f"m{number:02}": host.heartbeat(f"m{number:02}", 0, topics=["t"]).member_epoch for number in range(50)
    }
    owned: dict[str, dict[str, list[int]]] = {name: {} for name in epochs}
    for _ in range(4):
        for name in epochs:
            answer = host.heartbeat(name, epochs[name], topics=["t"], timeout=60_000, owned=owned[name])
            epochs[name] = answer.member_epoch
            owned[name] = host.assigned(answer)
    assert host.group().state_name == "Stable"
    assert all(len(mine["t"]) == 4 for mine in owned.values())


def test_partitions_of_an_image_are_what_is_assigned(host: ConsumerHost) -> None:
    made = TopicImage("w", UUID(int=50), tuple(PartitionImage(i, 1, 0, (1,), (1,)) for i in range(3)))
    host.image = host.image.with_topics([made])
    assert host.assigned(host.heartbeat("m1", 0, topics=["w"])) == {"w": [0, 1, 2]}
