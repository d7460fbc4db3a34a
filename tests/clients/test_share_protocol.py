"""Share groups on the wire: queues with acknowledgement of each record, against a real broker process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from penstock.testing import PenstockBroker, WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from tests.clients.raw import batch_of, produce
from tests.clients.share_member import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    ShareMember,
    alter_group,
    offsets,
)

SETTINGS = {
    "group.share.min.record.lock.duration.ms": 1000,
    "group.share.record.lock.duration.ms": 15000,
    "group.share.partition.max.record.locks": 100,
    "group.share.max.share.sessions": 8,
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 2,
}


@pytest.fixture(scope="module")
def shared() -> Iterator[PenstockBroker]:
    with PenstockBroker(SETTINGS) as broker:
        yield broker


@pytest.fixture
def queue(shared: PenstockBroker, topic_name: Callable[[], str]) -> str:
    """A topic of its own, which is also the name of its share group, that reads it from the beginning."""
    name = topic_name()
    shared.create_topic(name)
    with WireClient(shared.port) as wire:
        alter_group(wire, name, share_auto_offset_reset="earliest")
    return name


def _until(reached: Callable[[], bool]) -> None:
    """For what the broker does beside the requests; fails by the timeout of the test."""
    while not reached():
        time.sleep(0.01)


@pytest.mark.promise(
    "share groups",
    "A record is delivered to one member at a time, and is not delivered again after it was accepted",
)
def test_a_record_goes_to_one_member_and_once_accepted_to_nobody(shared: PenstockBroker, queue: str) -> None:
    shared.produce(queue, ["a", "b", "c"])
    with ShareMember(shared, queue, queue) as one, ShareMember(shared, queue, queue) as two:
        assert one.fetch() == [(0, "a", 1), (1, "b", 1), (2, "c", 1)]
        assert two.fetch() == []
        assert one.fetch((0, 1, [ACCEPT]), (2, 2, [RELEASE])) == [(2, "c", 2)]
        answer = one.acknowledge((2, 2, [RELEASE]))
        assert answer.responses[0].partitions[0].error_code == 0
        assert two.fetch() == [(2, "c", 3)]
        assert offsets(two.wire, queue) == {0: (2, 1)}
        assert two.fetch((2, 2, [ACCEPT])) == []
        assert offsets(two.wire, queue) == {0: (3, 0)}


@pytest.mark.promise(
    "share groups",
    "A new share group starts at the log end unless its settings say otherwise; its settings survive "
    "restarts",
)
def test_a_new_group_begins_at_the_end_unless_it_says_otherwise(
    shared: PenstockBroker, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    shared.create_topic(name)
    shared.produce(name, ["old"])
    with ShareMember(shared, name, name) as member:
        assert member.fetch() == []
        shared.produce(name, ["new"])
        assert member.fetch() == [(1, "new", 1)]


@pytest.mark.promise(
    "share groups",
    "A fetch waits for new and for released records; it returns whole batches, or exactly as many "
    "records as were asked for",
)
def test_a_waiting_fetch_is_woken_by_new_records_and_by_released_ones(
    shared: PenstockBroker, queue: str
) -> None:
    with ShareMember(shared, queue, queue) as one, ShareMember(shared, queue, queue) as two:
        before = shared.requests.get("SHARE_FETCH", 0)
        waiting = one.begin_fetch()
        shared.wait_for_requests("SHARE_FETCH", before + 1)
        shared.produce(queue, ["a"])
        assert one.end_fetch(waiting) == [(0, "a", 1)]
        waiting = two.begin_fetch()
        one.acknowledge((0, 0, [RELEASE]))
        assert two.end_fetch(waiting) == [(0, "a", 2)]


@pytest.mark.promise(
    "share groups",
    "A record lock expires after its duration, or later if it is renewed; a member that closes, dies or "
    "is silent releases its records",
)
def test_a_lock_ends_with_its_time_and_a_renewed_one_later(shared: PenstockBroker, queue: str) -> None:
    shared.produce(queue, ["a", "b"])
    with ShareMember(shared, queue, queue) as one, ShareMember(shared, queue, queue) as two:
        assert len(one.fetch()) == 2
        waiting = two.begin_fetch(max_wait_ms=60_000)
        shared.clock.advance(10)
        answer = one.acknowledge((1, 1, [RENEW]), is_renew_ack=True)
        assert answer.responses[0].partitions[0].error_code == 0
        assert answer.acquisition_lock_timeout_ms == 15_000
        shared.clock.advance(6)
        assert two.end_fetch(waiting) == [(0, "a", 2)]
        shared.clock.advance(10)
        assert two.fetch() == [(1, "b", 2)]
        late = one.acknowledge((0, 1, [ACCEPT]))
        assert late.responses[0].partitions[0].error_code == 121  # INVALID_RECORD_STATE


@pytest.mark.promise(
    "share groups",
    "A record lock expires after its duration, or later if it is renewed; a member that closes, dies or "
    "is silent releases its records",
)
def test_who_goes_away_gives_back_what_it_has(shared: PenstockBroker, queue: str) -> None:
    shared.produce(queue, ["a"])
    with ShareMember(shared, queue, queue) as two:
        with ShareMember(shared, queue, queue) as one:
            assert one.fetch() == [(0, "a", 1)]
            assert one.close_session().error_code == 0
            assert one.share_fetch().error_code == 122  # SHARE_SESSION_NOT_FOUND
        # A session that was closed in order did not get to it: that delivery does not count.
        assert two.fetch() == [(0, "a", 1)]
        two.acknowledge((0, 0, [RELEASE]))
        waiting = two.begin_fetch()
        assert two.end_fetch(waiting) == [(0, "a", 2)]
        two.wire.close()
    with ShareMember(shared, queue, queue) as three:
        # The connection is gone, and with it the session: at once, not when the locks end.
        waiting = three.begin_fetch(max_wait_ms=10_000)
        assert three.end_fetch(waiting) == [(0, "a", 3)]


@pytest.mark.promise(
    "share groups",
    "A record lock expires after its duration, or later if it is renewed; a member that closes, dies or "
    "is silent releases its records",
)
def test_a_member_that_is_silent_is_taken_out_and_its_records_come_back(
    shared: PenstockBroker, queue: str
) -> None:
    with WireClient(shared.port) as wire:
        alter_group(wire, queue, share_record_lock_duration_ms="60000")
    shared.produce(queue, ["a"])
    with ShareMember(shared, queue, queue) as one:
        one.fetch()
        shared.clock.advance(46)
        with ShareMember(shared, queue, queue) as two:
            assert two.fetch() == [(0, "a", 2)]
            assert one.share_fetch().error_code == 122
            assert one.heartbeat(1).error_code == 25  # UNKNOWN_MEMBER_ID


@pytest.mark.promise("share groups", "Invalid requests get Kafka's errors and change nothing")
def test_sessions_are_checked(shared: PenstockBroker, queue: str) -> None:
    with ShareMember(shared, queue, queue) as one:
        assert one.acknowledge((0, 0, [ACCEPT])).error_code == 123  # epoch 0 is for ShareFetch
        assert one.share_fetch((0, 0, [ACCEPT])).error_code == 42
        assert one.share_fetch(share_session_epoch=5).error_code == 122
        assert one.share_fetch(share_session_epoch=-1).error_code == 122
        one.fetch()
        assert one.share_fetch(share_session_epoch=5).error_code == 123
        assert one.acknowledge(share_session_epoch=7).error_code == 123
        assert one.share_fetch(member_id="").error_code == 42
        one.fetch()


@pytest.mark.promise(
    "share groups", "The records in flight, the sessions and the size of the state topic are limited"
)
def test_no_more_sessions_than_there_may_be(shared: PenstockBroker, queue: str) -> None:
    members = [ShareMember(shared, queue, queue) for _ in range(9)]
    try:
        codes = [member.share_fetch().error_code for member in members]
        assert codes == [0] * 8 + [133]  # SHARE_SESSION_LIMIT_REACHED
        members[0].close_session()
        assert members[8].share_fetch().error_code == 0
    finally:
        for member in members:
            member.wire.close()


@pytest.mark.promise("share groups", "Invalid requests get Kafka's errors and change nothing")
@pytest.mark.parametrize(
    ("acknowledged", "code"),
    [
        ((5, 4, [ACCEPT]), 42),
        ((0, 1, []), 42),
        ((0, 2, [ACCEPT, ACCEPT]), 42),
        ((0, 0, [9]), 42),
        ((0, 0, [RENEW]), 42),
        ((0, 100, [ACCEPT]), 42),
        ((100, 100, [ACCEPT]), 121),
    ],
)
def test_acknowledgements_that_make_no_sense_are_refused_and_change_nothing(
    shared: PenstockBroker, queue: str, acknowledged: tuple[int, int, list[int]], code: int
) -> None:
    shared.produce(queue, ["a", "b", "c"])
    with ShareMember(shared, queue, queue) as member:
        assert len(member.fetch()) == 3
        refused = member.acknowledge(acknowledged)
        assert refused.responses[0].partitions[0].error_code == code
        answer = member.share_fetch(acknowledged)
        assert answer.responses[0].partitions[0].acknowledge_error_code == code
        assert member.acknowledge((0, 2, [ACCEPT])).responses[0].partitions[0].error_code == 0


@pytest.mark.promise(
    "share groups",
    "A record is delivered to one member at a time, and is not delivered again after it was accepted",
)
def test_another_members_records_cannot_be_acknowledged(shared: PenstockBroker, queue: str) -> None:
    shared.produce(queue, ["a"])
    with ShareMember(shared, queue, queue) as one, ShareMember(shared, queue, queue) as two:
        one.fetch()
        two.fetch()
        assert two.acknowledge((0, 0, [ACCEPT])).responses[0].partitions[0].error_code == 121


@pytest.mark.promise("share groups", "Invalid requests get Kafka's errors and change nothing")
def test_topics_partitions_and_groups_that_are_not_there(shared: PenstockBroker, queue: str) -> None:
    with ShareMember(shared, queue, queue) as member:
        answer = member.share_fetch(partition=7)
        assert answer.responses[0].partitions[0].error_code == 3
    with ShareMember(shared, queue, queue) as member:
        member.topic_id = member.topic_id.__class__(int=12345)
        assert member.share_fetch().responses[0].partitions[0].error_code == 100
    with ShareMember(shared, queue, queue) as member:
        answer = member.share_fetch(group_id="nobody")
        assert answer.responses[0].partitions[0].error_code == 69


@pytest.mark.promise(
    "share groups", "The records in flight, the sessions and the size of the state topic are limited"
)
def test_no_more_records_are_in_flight_than_may_be(shared: PenstockBroker, queue: str) -> None:
    shared.produce(queue, [str(i) for i in range(150)])
    with ShareMember(shared, queue, queue) as member:
        assert len(member.fetch(max_records=1000)) == 100
        assert member.fetch() == []
        assert len(member.fetch((0, 49, [ACCEPT]))) == 50


@pytest.mark.promise(
    "share groups",
    "A fetch waits for new and for released records; it returns whole batches, or exactly as many "
    "records as were asked for",
)
def test_records_come_in_whole_batches_or_exactly_as_many_as_asked_for(
    shared: PenstockBroker, queue: str
) -> None:
    for _ in range(3):
        shared.produce(queue, [str(i) for i in range(10)])
    with ShareMember(shared, queue, queue) as member:
        assert len(member.fetch(max_records=11)) == 20
        assert len(member.fetch(max_records=3, share_acquire_mode=1)) == 3
        assert len(member.fetch(max_records=3)) == 7


@pytest.mark.promise("share groups", "Aborted records, deleted records and gaps are skipped")
def test_deleted_records_are_not_waited_for(shared: PenstockBroker, queue: str) -> None:
    shared.produce(queue, ["a", "b", "c"])
    with ShareMember(shared, queue, queue) as member:
        assert len(member.fetch()) == 3
        partition = Message(partition_index=0, offset=2)
        delete = Message(topics=[Message(name=queue, partitions=[partition])], timeout_ms=1000)
        member.wire.request(ApiKey.DELETE_RECORDS, 2, delete)
        answer = member.acknowledge((0, 0, [ACCEPT]), (2, 2, [ACCEPT]))
        assert answer.responses[0].partitions[0].error_code == 0
        assert offsets(member.wire, queue) == {0: (3, 0)}


@pytest.mark.promise("share groups", "Aborted records, deleted records and gaps are skipped")
def test_compacted_offsets_are_gaps_that_the_member_acknowledges(
    shared: PenstockBroker, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    shared.create_topic(
        name,
        config={
            "cleanup.policy": "compact",
            "segment.ms": 1,
            "min.cleanable.dirty.ratio": 0,
            "delete.retention.ms": 0,
        },
    )
    with WireClient(shared.port) as wire:
        alter_group(wire, name, share_auto_offset_reset="earliest")
    for value in ("a", "b", "c"):
        shared.produce(name, [("key", value)])
        shared.clock.advance(1)
    shared.produce(name, [("other", "d")])
    for _ in range(20):
        shared.clock.advance(15)
        if len(shared.consume(name)) == 2:
            break
    kept = [(record.offset, (record.value or b"").decode(), 1) for record in shared.consume(name)]
    with ShareMember(shared, name, name) as member:
        assert member.fetch() == kept
        for offset, _, _ in kept:
            member.acknowledge((offset, offset, [ACCEPT]))
        # What lay between batches was passed over by the broker itself.
        assert offsets(member.wire, name) == {0: (4, 0)}


@pytest.mark.promise("share groups", "Aborted records, deleted records and gaps are skipped")
def test_aborted_records_are_not_delivered_where_the_group_reads_committed_ones(
    shared: PenstockBroker, queue: str
) -> None:
    from confluent_kafka import Producer

    with WireClient(shared.port) as wire:
        alter_group(wire, queue, share_isolation_level="read_committed")
    producer = Producer({"bootstrap.servers": shared.bootstrap, "transactional.id": queue})
    producer.init_transactions()
    for value, commit in (("aborted", False), ("committed", True)):
        producer.begin_transaction()
        producer.produce(queue, value)
        producer.flush()
        producer.commit_transaction() if commit else producer.abort_transaction()
    producer.begin_transaction()
    producer.produce(queue, "open")
    producer.flush()
    with ShareMember(shared, queue, queue) as member:
        assert member.fetch() == [(2, "committed", 1)]
        waiting = member.begin_fetch()
        producer.commit_transaction()
        assert member.end_fetch(waiting) == [(4, "open", 1)]
        member.acknowledge((2, 2, [ACCEPT]), (4, 4, [ACCEPT]))
        assert member.fetch() == []
        assert offsets(member.wire, queue) == {0: (6, 0)}


@pytest.mark.promise(
    "share groups",
    "Records that are rejected, or that reach the limit of deliveries, go to the dead-letter topic of "
    "the group with the reason in headers",
)
def test_what_is_rejected_or_spent_goes_to_the_dead_letter_topic(shared: PenstockBroker, queue: str) -> None:
    dead = f"{queue}-dead"
    with WireClient(shared.port) as wire:
        alter_group(wire, queue, penstock_share_dead_letter_topic=dead)
    shared.produce(queue, [{"key": b"k", "value": b"bad", "headers": [("h", b"1")]}, "poison", "good"])
    with ShareMember(shared, queue, queue) as member:
        assert len(member.fetch()) == 3
        released = member.fetch((0, 0, [REJECT]), (1, 1, [RELEASE]), (2, 2, [ACCEPT]))
        for count in range(2, 6):
            assert released == [(1, "poison", count)]
            released = member.fetch((1, 1, [RELEASE]))
        assert released == []
        _until(lambda: offsets(member.wire, queue) == {0: (3, 0)})
        letters = shared.consume(dead, 2)
    told = {
        letter.value: {name: (value or b"").decode() for name, value in letter.headers} for letter in letters
    }
    assert letters[0].key == b"k" and told[b"bad"]["h"] == "1"
    expected = {"penstock.share.group": queue, "penstock.share.topic": queue, "penstock.share.partition": "0"}
    assert expected.items() <= told[b"bad"].items()
    story = [f"penstock.share.{name}" for name in ("offset", "reason", "delivery.count")]
    assert [told[b"bad"][name] for name in story] == ["0", "rejected", "1"]
    assert [told[b"poison"][name] for name in story] == ["1", "delivery count spent", "5"]


@pytest.mark.promise(
    "share groups", "AlterShareGroupOffsets creates the group and returns a result for each partition"
)
def test_altering_offsets_creates_the_group_and_answers_for_each_partition(
    shared: PenstockBroker, queue: str
) -> None:
    shared.produce(queue, ["a", "b", "c"])
    group = f"{queue}-new"
    with WireClient(shared.port) as wire:
        asked = [
            Message(
                topic_name=queue, partitions=[Message(partition_index=i, start_offset=1) for i in (0, 9)]
            ),
            Message(topic_name="absent", partitions=[Message(partition_index=0, start_offset=1)]),
        ]
        describe = Message(group_ids=[group], include_authorized_operations=False)
        # with nothing that could be altered there is no group
        request = Message(group_id=group, topics=asked[1:])
        assert wire.request(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, request).error_code == 0
        assert wire.request(ApiKey.SHARE_GROUP_DESCRIBE, 1, describe).groups[0].error_code == 69
        answer = wire.request(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, Message(group_id=group, topics=asked))
        codes = {
            (t.topic_name, p.partition_index): p.error_code for t in answer.responses for p in t.partitions
        }
        assert (answer.error_code, codes) == (0, {(queue, 0): 0, (queue, 9): 3, ("absent", 0): 3})
        (described,) = wire.request(ApiKey.SHARE_GROUP_DESCRIBE, 1, describe).groups
        assert (described.error_code, described.group_state) == (0, "Empty")
        assert offsets(wire, group) == {0: (1, 2)}
        nobody = Message(group_id="", topics=asked)
        assert wire.request(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, nobody).error_code == 24
    with ShareMember(shared, group, queue) as member:
        assert member.fetch() == [(1, "b", 1), (2, "c", 1)]


@pytest.mark.promise(
    "share groups",
    "ShareFetch acquires the same batches as in Kafka: `batch_size`, and `max_records` for all "
    "partitions together",
)
def test_what_is_acquired_is_answered_in_batches_of_the_asked_size(
    shared: PenstockBroker, queue: str
) -> None:
    for _ in range(4):
        shared.produce(queue, ["v"] * 7)
    expected = {
        5: [(0, 6), (7, 13), (14, 20), (21, 27)],
        8: [(0, 13), (14, 27)],
        500: [(0, 27)],
        0: [(0, 27)],
    }
    for size, batches in expected.items():
        with ShareMember(shared, queue, queue) as member:
            (topic,) = member.share_fetch(batch_size=size).responses
            acquired = [(one.first_offset, one.last_offset) for one in topic.partitions[0].acquired_records]
            assert acquired == batches, size
            member.close_session()


@pytest.mark.promise("share groups", "Kafka's console share consumer and `kafka-share-groups` work")
def test_offsets_can_be_altered_and_deleted_and_a_group_with_all_it_has(
    shared: PenstockBroker, queue: str
) -> None:
    shared.produce(queue, ["a", "b", "c"])
    with ShareMember(shared, queue, queue) as member:
        assert len(member.fetch()) == 3
        wire = member.wire

        def alter(offset: int) -> Message:
            partition = Message(partition_index=0, start_offset=offset)
            topics = [Message(topic_name=queue, partitions=[partition])]
            request = Message(group_id=queue, topics=topics)
            return wire.request(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, request)

        delete = Message(group_id=queue, topics=[Message(topic_name=queue)])
        assert alter(1).error_code == 68  # NON_EMPTY_GROUP
        assert wire.request(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, delete).error_code == 68
        assert (
            wire.request(ApiKey.DELETE_GROUPS, 2, Message(groups_names=[queue])).results[0].error_code == 68
        )
        member.close_session()
        assert member.heartbeat(-1).member_epoch == -1
        assert alter(-1).responses[0].partitions[0].error_code == 42
        assert alter(1).responses[0].partitions[0].error_code == 0
        assert offsets(wire, queue) == {0: (1, 2)}
        with ShareMember(shared, queue, queue) as again:
            assert again.fetch() == [(1, "b", 1), (2, "c", 1)]
            again.close_session()
            again.heartbeat(-1)
        assert wire.request(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, delete).responses[0].error_code == 0
        with ShareMember(shared, queue, queue) as again:
            assert len(again.fetch()) == 3
            again.close_session()
            again.heartbeat(-1)
        assert wire.request(ApiKey.DELETE_GROUPS, 2, Message(groups_names=[queue])).results[0].error_code == 0
        request = Message(group_ids=[queue], include_authorized_operations=False)
        assert wire.request(ApiKey.SHARE_GROUP_DESCRIBE, 1, request).groups[0].error_code == 69
        with ShareMember(shared, queue, queue) as again:
            assert again.fetch() == [(0, "a", 1), (1, "b", 1), (2, "c", 1)]


@pytest.mark.promise("share groups", "Kafka's console share consumer and `kafka-share-groups` work")
def test_share_groups_are_listed_described_and_their_settings_told(
    shared: PenstockBroker, queue: str
) -> None:
    with ShareMember(shared, queue, queue) as member:
        wire = member.wire
        rows = wire.request(ApiKey.LIST_GROUPS, 5, Message(states_filter=[], types_filter=["share"])).groups
        assert (queue, "share", "Stable") in [(one.group_id, one.group_type, one.group_state) for one in rows]
        request = Message(group_ids=[queue], include_authorized_operations=True)
        [group] = wire.request(ApiKey.SHARE_GROUP_DESCRIBE, 1, request).groups
        assert group.members[0].assignment.topic_partitions[0].topic_name == queue
        resource = Message(resource_type=32, resource_name=queue, configuration_keys=None)
        request = Message(resources=[resource], include_synonyms=False, include_documentation=False)
        configs = wire.request(ApiKey.DESCRIBE_CONFIGS, 4, request).results[0].configs
        told = {one.name: (one.value, one.config_source) for one in configs}
        assert told["share.auto.offset.reset"] == ("earliest", 8)
        assert told["share.record.lock.duration.ms"] == ("15000", 5)  # as Kafka: the broker's is the default
        listed = wire.request(ApiKey.LIST_CONFIG_RESOURCES, 1, Message(resource_types=[32])).config_resources
        assert queue in [one.resource_name for one in listed]


def test_the_feature_is_told() -> None:
    with PenstockBroker() as broker, WireClient(broker.port) as wire:
        answer = wire.request(
            ApiKey.API_VERSIONS, 4, Message(client_software_name="t", client_software_version="1")
        )
        features = {one.name: one.max_version_level for one in answer.finalized_features}
        assert features["share.version"] == 1


@pytest.mark.promise("share groups", "kill -9 of the broker loses no acknowledgement and no delivery count")
def test_kill_9_forgets_no_acknowledgement_and_no_delivery() -> None:
    with PenstockBroker(SETTINGS) as broker:
        broker.create_topic("t")
        with WireClient(broker.port) as wire:
            alter_group(wire, "g", share_auto_offset_reset="earliest")
            for value in (b"a", b"b", b"c", b"d"):
                produce(wire, "t", batch_of([value]))
        with ShareMember(broker, "g", "t") as member:
            assert len(member.fetch()) == 4
            member.fetch((0, 0, [ACCEPT]), (1, 1, [RELEASE]), (2, 2, [ACCEPT]))
            broker.kill()
        broker.start()
        with ShareMember(broker, "g", "t") as member:
            # 1 was released and acquired again, 3 acquired once: no lock outlives the broker.
            assert member.fetch() == [(1, "b", 3), (3, "d", 2)]
            member.fetch((1, 1, [ACCEPT]), (3, 3, [ACCEPT]))
            assert offsets(member.wire, "g") == {0: (4, 0)}


@pytest.mark.promise(
    "share groups", "The records in flight, the sessions and the size of the state topic are limited"
)
def test_the_state_topic_does_not_grow_for_ever() -> None:
    settings = {**SETTINGS, "share.coordinator.state.topic.num.partitions": 1}
    with PenstockBroker(settings) as broker:
        broker.create_topic("t")
        with ShareMember(broker, "t", "t") as member:
            member.fetch()
            for i in range(1100):
                if i % 100 == 0:
                    broker.produce("t", [str(n) for n in range(100)])
                    assert len(member.fetch()) == 100
                member.acknowledge((i, i, [ACCEPT]))
            before = offsets(member.wire, "t")
            broker.clock.advance(301)
            asked = Message(partition_index=0, current_leader_epoch=-1, timestamp=-2)
            topics = [Message(name="__share_group_state", partitions=[asked])]
            earliest = Message(replica_id=-1, isolation_level=0, timeout_ms=1000, topics=topics)
            answer = member.wire.request(ApiKey.LIST_OFFSETS, 7, earliest)
            assert answer.topics[0].partitions[0].offset > 500
            assert offsets(member.wire, "t") == before
        broker.restart()
        with WireClient(broker.port) as wire:
            assert offsets(wire, "t") == before


@pytest.mark.parametrize(
    ("key", "code"),
    [("g:AAAAAAAAAAAAAAAAAAAABw:3", 0), ("g", 42), ("", 42), ("g:short:3", 42), ("g:" + "A" * 22 + ":x", 42)],
)
def test_the_key_of_a_share_partition_has_three_parts(shared: PenstockBroker, key: str, code: int) -> None:
    with WireClient(shared.port) as wire:
        found = wire.request(ApiKey.FIND_COORDINATOR, 6, Message(key_type=2, coordinator_keys=[key]))
    assert found.coordinators[0].error_code == code
