"""Committed offsets: who may commit, what is fetched, transactions, expiry, deletion. The shard alone."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.coordinator import Producer
from penstock.errors import (
    FencedInstanceId,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidGroupId,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from penstock.wire.codec import decode_request, encode_data, encode_request
from penstock.wire.message import Message
from penstock.wire.primitives import ZERO_UUID
from tests.sim.group_host import START, Host, commit_request

DAY = 24 * 3600 * 1000


def subscription(*topics: str) -> bytes:
    body = Message(topics=list(topics), user_data=None, owned_partitions=[], generation_id=-1, rack_id=None)
    return b"\x00\x01" + encode_data("consumer_protocol_subscription", 1, body)


def test_a_simple_consumer_commits_without_a_group() -> None:
    host = Host()
    assert host.committed() == -1
    assert host.commit(42) == 0
    assert host.committed() == 42
    host.crash()
    assert host.committed() == 42
    assert host.state() == "Empty"


def test_a_member_commits_in_its_generation() -> None:
    host = Host()
    ids, generation = host.stable_group("a")
    assert host.commit(3, member_id=ids["a"], generation=generation) == 0
    assert host.committed() == 3
    assert host.commit(4, member_id=ids["a"], generation=generation - 1) == IllegalGeneration.code
    assert host.commit(4, member_id="nobody", generation=generation) == UnknownMemberId.code
    assert host.commit(4) == UnknownMemberId.code  # a simple consumer in a group that has members
    assert host.commit(4, member_id=ids["a"], generation=generation, instance="i") == UnknownMemberId.code
    assert host.committed() == 3


def test_a_commit_between_join_and_sync_waits_for_the_rebalance() -> None:
    host = Host()
    token, member = host.join_new()
    host.tick()
    assert host.commit(1, member_id=member, generation=1) == RebalanceInProgress.code


def test_a_member_may_commit_while_the_others_rejoin() -> None:
    host = Host()
    ids, generation = host.stable_group("a")
    host.join_new()
    assert host.commit(1, member_id=ids["a"], generation=generation) == 0


def test_a_commit_counts_as_a_heartbeat() -> None:
    host = Host()
    ids, generation = host.stable_group("a")
    for _ in range(3):
        host.tick(8_000)
        assert host.commit(1, member_id=ids["a"], generation=generation) == 0
    assert host.heartbeat(ids["a"], generation) == 0


def test_a_generation_of_an_unknown_group_is_not_found_since_version_9() -> None:
    host = Host()
    assert host.commit(1, member_id="m", generation=1, version=8) == IllegalGeneration.code
    assert host.commit(1, member_id="m", generation=1, version=9) == GroupIdNotFound.code
    assert host.shard.groups == {}


@pytest.mark.promise(
    "groups",
    "Invalid requests (unknown members, old generations, long metadata, empty and very long ids, hostile "
    "subscriptions) get Kafka's errors and do not affect the group",
)
def test_bad_items_do_not_spoil_the_good_ones() -> None:
    host = Host()
    request = commit_request("g", {("t", 0): 1, ("nowhere", 0): 2, ("t", 99): 3, ("t", -1): 4, ("u", 1): 5})
    answer = host.ask("offset_commit", request)
    unknown = UnknownTopicOrPartition.code
    assert [topic.partitions[0].error_code for topic in answer.topics] == [0, unknown, unknown, unknown, 0]
    assert (host.committed("t", 0), host.committed("u", 1)) == (1, 5)


@pytest.mark.promise(
    "groups",
    "Invalid requests (unknown members, old generations, long metadata, empty and very long ids, hostile "
    "subscriptions) get Kafka's errors and do not affect the group",
)
def test_metadata_has_a_limit_and_null_is_empty() -> None:
    host = Host(offset_metadata_max_bytes=10)
    assert host.commit(1, metadata="x" * 11) == OffsetMetadataTooLarge.code
    assert host.commit(2, metadata="x" * 10) == 0
    assert host.commit(3, partition=1, metadata=None) == 0
    found = host.shard.offsets.get("g", "t", 1)
    assert found is not None
    assert (found.offset, found.metadata, found.commit_timestamp) == (3, "", START)
    wide = Host(offset_metadata_max_bytes=2**31 - 1)
    assert wide.commit(1, metadata="名" * 20_000) == OffsetMetadataTooLarge.code


@pytest.mark.promise(
    "groups",
    "Invalid requests (unknown members, old generations, long metadata, empty and very long ids, hostile "
    "subscriptions) get Kafka's errors and do not affect the group",
)
def test_a_group_id_may_be_empty_but_not_longer_than_a_record_can_say() -> None:
    host = Host()
    assert host.commit(1, group="") == 0
    assert host.committed(group="") == 1
    assert host.commit(1, group="g" * 32767) == 0
    assert host.commit(1, group="g" * 32768) == InvalidGroupId.code


@pytest.mark.promise(
    "groups", "Offsets can be committed by topic name or topic id, and fetched for many groups at once"
)
def test_offsets_are_committed_and_fetched_by_topic_id() -> None:
    host = Host()
    topic_id = host.image.topics["t"].id
    request = commit_request("g", {("t", 1): 9})
    wire = encode_request(8, 10, _with_ids(request, {"t": topic_id}))
    answer = host.ask("offset_commit", decode_request(8, 10, wire), 10)
    assert answer.topics[0].topic_id == topic_id
    assert answer.topics[0].partitions[0].error_code == 0
    wrong = decode_request(8, 10, encode_request(8, 10, _with_ids(request, {"t": ZERO_UUID})))
    code = host.ask("offset_commit", wrong, 10).topics[0].partitions[0].error_code
    assert code == UnknownTopicId.code

    asked = Message(
        group_id="g",
        member_id=None,
        member_epoch=-1,
        topics=[
            Message(topic_id=topic_id, partition_indexes=[0, 1]),
            Message(topic_id=ZERO_UUID, partition_indexes=[0]),
        ],
    )
    known, unknown = host.ask("offset_fetch", asked, 10).topics
    assert [item.committed_offset for item in known.partitions] == [-1, 9]
    assert unknown.partitions[0].error_code == UnknownTopicId.code
    everything = Message(group_id="g", member_id=None, member_epoch=-1, topics=None)
    (topic,) = host.ask("offset_fetch", everything, 10).topics
    assert (topic.topic_id, topic.partitions[0].committed_offset) == (topic_id, 9)


def _with_ids(request: Message, ids: dict[str, Any]) -> Message:
    topics = [Message(topic_id=ids[item.name], partitions=item.partitions) for item in request.topics]
    return Message(**{**request.__dict__, "topics": topics})


@pytest.mark.promise(
    "groups", "Offsets can be committed by topic name or topic id, and fetched for many groups at once"
)
def test_all_offsets_of_a_group_are_fetched_without_a_list() -> None:
    host = Host()
    host.ask("offset_commit", commit_request("g", {("t", 0): 1, ("t", 2): 2, ("u", 1): 3}))
    everything = Message(group_id="g", member_id=None, member_epoch=-1, topics=None)
    answer = host.ask("offset_fetch", everything, 9)
    found = {
        (topic.name, item.partition_index): item.committed_offset
        for topic in answer.topics
        for item in topic.partitions
    }
    assert found == {("t", 0): 1, ("t", 2): 2, ("u", 1): 3}
    nobody = Message(group_id="x", member_id=None, member_epoch=-1, topics=None)
    assert host.ask("offset_fetch", nobody, 9).topics == []


# transactions


def txn_commit(host: Host, producer: Producer, offset: int, partition: int = 0, **fields: Any) -> int:
    request = Message(
        transactional_id="x",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id=fields.pop("generation", -1),
        **{
            name: value
            for name, value in commit_request("g", {("t", partition): offset}, **fields).__dict__.items()
            if name != "generation_id_or_member_epoch"
        },
    )
    code: int = host.ask("txn_offset_commit", request, 3).topics[0].partitions[0].error_code
    return code


@pytest.mark.promise(
    "transactions",
    "Offsets sent in a transaction take effect when it commits (KIP-447), and are rejected from a member "
    "that the group does not know",
)
def test_an_offset_in_a_transaction_counts_when_it_commits() -> None:
    host = Host()
    host.commit(1)
    producer = Producer(7, 0)
    assert txn_commit(host, producer, 5) == 0
    assert host.committed() == 1
    assert host.committed(stable=True) == (UnstableOffsetCommit.code,)
    assert host.committed(partition=1, stable=True) == -1
    host.crash()
    assert host.committed(stable=True) == (UnstableOffsetCommit.code,)
    host.end_transaction(producer, committed=True)
    assert host.committed(stable=True) == 5
    host.crash()
    assert host.committed() == 5


@pytest.mark.promise(
    "transactions",
    "Offsets sent in a transaction take effect when it commits (KIP-447), and are rejected from a member "
    "that the group does not know",
)
def test_an_aborted_offset_is_forgotten() -> None:
    host = Host()
    producer = Producer(7, 0)
    txn_commit(host, producer, 5)
    host.end_transaction(producer, committed=False)
    assert host.committed(stable=True) == -1
    assert host.shard.offsets.pending == {}


@pytest.mark.parametrize("first_ends_first", [True, False])
@pytest.mark.parametrize(("first", "second", "left"), [(1, 1, 20), (1, 0, 10), (0, 1, 20), (0, 0, -1)])
def test_of_two_transactions_the_later_in_the_log_counts_whichever_ends_later(
    first_ends_first: bool, first: int, second: int, left: int
) -> None:
    host = Host()
    older, newer = Producer(7, 0), Producer(8, 0)
    txn_commit(host, older, 10)
    txn_commit(host, newer, 20)
    ends = [(older, first), (newer, second)]
    for producer, committed in ends if first_ends_first else reversed(ends):
        host.end_transaction(producer, committed=bool(committed))
    assert host.committed(stable=True) == left
    host.crash()
    assert host.committed(stable=True) == left


def test_of_a_plain_and_a_transactional_commit_the_later_in_the_log_counts() -> None:
    host = Host()
    producer = Producer(7, 0)
    txn_commit(host, producer, 5)
    host.commit(6)
    host.end_transaction(producer, committed=True)
    assert host.committed() == 6
    txn_commit(host, producer, 7)
    host.commit(8)
    txn_commit(host, producer, 9)
    host.end_transaction(producer, committed=True)
    assert host.committed() == 9
    host.crash()
    assert host.committed() == 9


def test_transactional_commits_check_the_member_where_one_is_named() -> None:
    host = Host()
    ids, generation = host.stable_group("a")
    producer = Producer(7, 0)
    assert txn_commit(host, producer, 1) == 0  # before KIP-447 producers named none
    assert txn_commit(host, producer, 1, member_id=ids["a"], generation=generation) == 0
    assert txn_commit(host, producer, 1, member_id=ids["a"], generation=9) == IllegalGeneration.code
    assert txn_commit(host, producer, 1, member_id="x", generation=generation) == UnknownMemberId.code
    assert host.committed(group="g", stable=True) == (UnstableOffsetCommit.code,)


def test_a_deleted_offset_is_deleted_from_open_transactions_too() -> None:
    host = Host()
    producer = Producer(7, 0)
    txn_commit(host, producer, 5)
    assert host.ask("delete_groups", "g").error_code == 0
    host.end_transaction(producer, committed=True)
    assert host.committed() == -1


# expiry


def expiring(**settings: Any) -> Host:
    return Host(offsets_retention_ms=7 * DAY, offsets_retention_check_interval_ms=DAY, **settings)


@pytest.mark.promise("groups", "Committed offsets expire as in Kafka, and are deleted with their topic")
def test_offsets_of_a_simple_group_expire_by_commit_time() -> None:
    host = expiring()
    host.commit(1)
    host.tick(4 * DAY)
    host.commit(2, partition=1)
    host.tick(4 * DAY)
    assert (host.committed(), host.committed(partition=1)) == (-1, 2)
    host.tick(4 * DAY)
    assert host.committed(partition=1) == -1
    assert host.shard.groups == {}
    host.crash()
    assert host.shard.groups == {}


@pytest.mark.promise("groups", "Committed offsets expire as in Kafka, and are deleted with their topic")
def test_offsets_of_a_group_expire_when_it_has_been_empty_long_enough() -> None:
    host = expiring()
    ids, generation = host.stable_group("a", session_ms=1_800_000)
    host.commit(1, member_id=ids["a"], generation=generation)
    while host.now - START < 10 * DAY:
        host.tick(1_700_000)
        assert host.heartbeat(ids["a"], generation) == 0
    assert host.committed() == 1  # its topics cannot be known, and it has members
    host.leave((ids["a"], None))
    host.tick(6 * DAY)
    assert host.committed() == 1
    host.tick(2 * DAY)
    assert host.committed() == -1


@pytest.mark.promise("groups", "Committed offsets expire as in Kafka, and are deleted with their topic")
def test_a_group_with_members_loses_only_offsets_of_topics_it_no_longer_reads() -> None:
    host = expiring()
    ids, generation = host.stable_group("a", session_ms=1_800_000, protocols={"range": subscription("t")})
    request = commit_request("g", {("t", 0): 1, ("u", 0): 2}, ids["a"], generation)
    host.ask("offset_commit", request)
    while host.now - START < 9 * DAY:
        host.tick(1_700_000)
        assert host.heartbeat(ids["a"], generation) == 0
    assert (host.committed("t"), host.committed("u")) == (1, -1)


def test_a_retention_time_in_the_request_is_honoured() -> None:
    host = expiring()
    host.commit(1, version=4, retention_time_ms=DAY)
    host.tick(2 * DAY)
    assert host.committed() == -1


def test_offsets_in_an_open_transaction_do_not_expire() -> None:
    host = expiring()
    host.commit(1)
    txn_commit(host, Producer(7, 0), 5)
    host.tick(20 * DAY)
    assert host.committed() == 1
    assert "g" in host.shard.groups


def test_expiry_of_very_many_offsets_goes_in_steps() -> None:
    host = Host({"t": 100}, offsets_retention_ms=DAY, offsets_retention_check_interval_ms=DAY)
    for number in range(100):
        host.ask("offset_commit", commit_request(f"g{number}", {("t", p): 1 for p in range(100)}))
    host.now += 2 * DAY
    outcome = host.shard.on_time(host.now)
    assert 0 < len(outcome.records) < 5_000
    host.apply(outcome)
    host.tick(1_000)
    assert host.shard.groups == {}


# deletion


@pytest.mark.promise(
    "groups", "Administrators can list (by state and type), describe, alter and delete groups"
)
def test_offset_delete_spares_what_the_group_reads() -> None:
    host = Host()
    ids, generation = host.stable_group("a", protocols={"range": subscription("t")})
    host.ask("offset_commit", commit_request("g", {("t", 0): 1, ("u", 0): 2}, ids["a"], generation))
    assert delete(host, {"t": [0], "u": [0, 1, 7], "nowhere": [0]}) == {
        ("t", 0): GroupSubscribedToTopic.code,
        ("u", 0): 0,
        ("u", 1): 0,
        ("u", 7): UnknownTopicOrPartition.code,
        ("nowhere", 0): UnknownTopicOrPartition.code,
    }
    assert (host.committed("t"), host.committed("u")) == (1, -1)


def test_offset_delete_is_refused_as_a_whole_for_other_protocols_and_unknown_groups() -> None:
    host = Host()
    host.stable_group("a", protocol_type="connect", group="connect")
    assert delete(host, {"t": [0]}, "connect") == NonEmptyGroup.code
    assert delete(host, {"t": [0]}, "nobody") == GroupIdNotFound.code
    assert delete(host, {"t": [0]}, "") == InvalidGroupId.code


def delete(host: Host, partitions: dict[str, list[int]], group: str = "g") -> Any:
    request = Message(
        group_id=group,
        topics=[
            Message(name=name, partitions=[Message(partition_index=index) for index in indexes])
            for name, indexes in partitions.items()
        ],
    )
    answer = host.ask("offset_delete", request, 0)
    if answer.error_code:
        return answer.error_code
    return {
        (topic.name, item.partition_index): item.error_code
        for topic in answer.topics
        for item in topic.partitions
    }


@pytest.mark.promise("groups", "Committed offsets expire as in Kafka, and are deleted with their topic")
def test_offsets_of_a_deleted_topic_are_deleted_in_every_group() -> None:
    host = Host()
    for group in ("g", "h"):
        host.ask("offset_commit", commit_request(group, {("t", 0): 1, ("u", 0): 2}))
    host.apply(host.shard.deleted_topics.deleted({host.shard.topics().topics["t"].id}))
    assert [host.committed("t", group=g) for g in "gh"] == [-1, -1]
    assert [host.committed("u", group=g) for g in "gh"] == [2, 2]


def test_retention_asks_for_the_committed_offset_alone() -> None:
    host = Host()
    host.commit(17, metadata="note")
    assert host.shard.committed_offset("g", "t", 0) == 17
    assert host.shard.committed_offset("g", "t", 1) is None
    assert host.shard.committed_offset("nobody", "t", 0) is None


@pytest.mark.parametrize("instance", ["i", ""])
def test_a_commit_names_the_right_static_member(instance: str) -> None:
    host = Host()
    token = host.join("", instance="i")
    host.tick()
    member = host.answers[token].member_id
    host.sync(member, 1, {}, instance="i")
    expected = 0 if instance == "i" else UnknownMemberId.code
    assert host.commit(1, member_id=member, generation=1, instance=instance) == expected
    assert host.commit(1, member_id="old", generation=1, instance="i") == FencedInstanceId.code
