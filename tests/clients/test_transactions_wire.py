"""Transactions on the wire: what clients hide, promise by promise, in both versions of the protocol."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.testing import PenstockBroker, WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import Record, build_batch
from penstock.wire.codec import Message
from tests.clients.txn_wire import (
    WireProducer,
    committed,
    committed_offset,
    described,
    fetch_partition,
    find_coordinator,
)

INVALID_REQUEST = 42
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
INVALID_TRANSACTION_TIMEOUT = 50
CONCURRENT_TRANSACTIONS = 51
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
OPERATION_NOT_ATTEMPTED = 55
UNKNOWN_TOPIC_OR_PARTITION = 3
UNKNOWN_MEMBER_ID = 25
ILLEGAL_GENERATION = 22
UNSTABLE_OFFSET_COMMIT = 88
PRODUCER_FENCED = 90
TRANSACTIONAL_ID_NOT_FOUND = 105
TRANSACTION_ABORTABLE = 120
INVALID_REGULAR_EXPRESSION = 128
GROUP = 0


@pytest.fixture(params=[0, 2], ids=["version 0", "version 2"])
def producer(request: pytest.FixtureRequest, wire: WireClient, topic: str) -> WireProducer:
    """A transactional producer with an epoch, in each of the two ways to do transactions."""
    one = WireProducer(wire, f"tx-{topic}", request.param)
    assert one.init() == 0
    return one


def write(producer: WireProducer, topic: str, value: bytes, partition: int = 0) -> None:
    if producer.version == 0:
        assert producer.add(topic, partition) == [0]
    assert producer.produce(topic, value, partition) == 0


@pytest.mark.promise(
    "transactions",
    "A `read_committed` consumer sees all records of a committed transaction and none of an aborted one",
)
def test_committed_records_are_read_and_aborted_ones_are_not(producer: WireProducer, topic: str) -> None:
    for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
        write(producer, topic, value)
        assert producer.end(commit) == 0
    assert committed(producer.wire, topic) == [b"a", b"c"]


@pytest.mark.promise("transactions", "The last stable offset does not pass the start of an open transaction")
def test_an_open_transaction_holds_the_last_stable_offset(producer: WireProducer, topic: str) -> None:
    write(producer, topic, b"a")
    producer.end(True)
    write(producer, topic, b"b")
    found = fetch_partition(producer.wire, topic, 1)
    assert (found.last_stable_offset, found.high_watermark) == (2, 3)
    assert committed(producer.wire, topic) == [b"a"]
    producer.end(True)
    found = fetch_partition(producer.wire, topic, 1)
    assert found.last_stable_offset == found.high_watermark == 4


@pytest.mark.promise(
    "transactions",
    "A transaction over several partitions ends on all of them, no matter how often the coordinator dies",
)
def test_a_transaction_over_partitions_ends_on_all_of_them(
    broker: PenstockBroker, producer: WireProducer, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    broker.create_topic(topic, partitions=3)
    for partition in range(3):
        write(producer, topic, b"x", partition)
    told = described(producer.wire, producer.transactional_id)
    assert told.transaction_state == "Ongoing"
    assert [(one.topic, one.partitions) for one in told.topics] == [(topic, [0, 1, 2])]
    producer.end(True)
    assert [committed(producer.wire, topic, partition) for partition in range(3)] == [[b"x"]] * 3
    assert described(producer.wire, producer.transactional_id).transaction_state == "CompleteCommit"


@pytest.mark.promise(
    "transactions",
    "Transaction version 2: each transaction has its own epoch, and a late produce request has no effect",
)
def test_each_end_has_an_epoch_of_its_own_with_version_2_only(producer: WireProducer, topic: str) -> None:
    epochs = []
    for commit in (True, False, True):
        epochs.append(producer.epoch)
        write(producer, topic, b"x")
        assert producer.end(commit) == 0
    assert epochs == ([0, 1, 2] if producer.version == 2 else [0, 0, 0])


@pytest.mark.promise("transactions", "A commit whose response was lost can be retried, with the same result")
def test_a_retry_of_the_end_is_answered_as_the_first(producer: WireProducer, topic: str) -> None:
    write(producer, topic, b"x")
    before = producer.producer_id, producer.epoch
    assert producer.end(True) == 0
    after = producer.producer_id, producer.epoch
    producer.producer_id, producer.epoch = before
    assert producer.end(False) == INVALID_TXN_STATE
    assert producer.end(True) == 0
    assert (producer.producer_id, producer.epoch) == after
    assert committed(producer.wire, topic) == [b"x"]


@pytest.mark.promise("transactions", "A newer producer fences the older one")
def test_a_second_producer_fences_the_first(producer: WireProducer, topic: str) -> None:
    write(producer, topic, b"lost")
    second = WireProducer(producer.wire, producer.transactional_id, producer.version)
    assert second.init() == CONCURRENT_TRANSACTIONS
    assert second.init() == 0
    assert second.epoch == producer.epoch + 2
    assert producer.add(topic, 0) == [PRODUCER_FENCED]
    assert producer.produce(topic, b"zombie") == INVALID_PRODUCER_EPOCH
    for commit in (True, False):
        assert producer.end(commit) == PRODUCER_FENCED
    assert producer.init(producer=(producer.producer_id, producer.epoch)) == PRODUCER_FENCED
    write(second, topic, b"kept")
    assert second.end(True) == 0
    assert committed(producer.wire, topic) == [b"kept"]


@pytest.mark.promise("transactions", "A newer producer fences the older one")
def test_older_versions_are_told_invalid_producer_epoch(wire: WireClient, topic: str) -> None:
    old = WireProducer(wire, f"tx-{topic}")
    old.init()
    WireProducer(wire, f"tx-{topic}").init()
    assert old.add(topic, 0, version=1) == [INVALID_PRODUCER_EPOCH]
    assert old.add(topic, 0, version=2) == [PRODUCER_FENCED]
    assert old.add_offsets("g", version=1) == INVALID_PRODUCER_EPOCH
    assert old.add_offsets("g", version=2) == PRODUCER_FENCED
    assert old.end(True, version=1) == INVALID_PRODUCER_EPOCH
    assert old.end(True, version=2) == PRODUCER_FENCED
    name = (old.producer_id, old.epoch)
    assert old.init(producer=name, version=3) == INVALID_PRODUCER_EPOCH
    assert old.init(producer=name, version=4) == PRODUCER_FENCED


@pytest.mark.promise(
    "transactions",
    "A producer that sends its current epoch gets the next one (KIP-360); when its epochs are used up, "
    "it gets a new producer id",
)
def test_a_producer_that_names_its_epoch_gets_the_next(producer: WireProducer) -> None:
    named = producer.producer_id, producer.epoch
    assert producer.init(producer=named) == 0
    assert (producer.producer_id, producer.epoch) == (named[0], named[1] + 1)
    assert producer.init(producer=named) == 0  # a retry
    assert producer.epoch == named[1] + 1


@pytest.mark.promise(
    "transactions",
    "Transaction version 2: each transaction has its own epoch, and a late produce request has no effect",
)
def test_a_produce_outside_the_transaction_is_refused_or_adds_its_partition(
    wire: WireClient, topic: str
) -> None:
    one = WireProducer(wire, f"tx-{topic}")
    one.init()
    assert one.produce(topic, b"x", version=10) == INVALID_TXN_STATE
    assert one.produce(topic, b"x", version=11) == TRANSACTION_ABORTABLE
    assert described(wire, one.transactional_id).transaction_state == "Empty"
    assert one.produce(topic, b"x", version=12) == 0
    assert described(wire, one.transactional_id).transaction_state == "Ongoing"
    one.version = 2
    assert one.end(True) == 0
    assert committed(wire, topic) == [b"x"]


@pytest.mark.promise(
    "transactions",
    "Transaction version 2: each transaction has its own epoch, and a late produce request has no effect",
)
def test_a_produce_that_comes_after_the_end_leaves_nothing_behind(producer: WireProducer, topic: str) -> None:
    """Before KIP-890 such a record was a transaction that hung forever."""
    write(producer, topic, b"x")
    late = producer.producer_id, producer.epoch
    producer.end(True)
    producer.producer_id, producer.epoch = late
    producer.sequences[topic, 0] = 1
    assert producer.produce(topic, b"late") in (INVALID_TXN_STATE, INVALID_PRODUCER_EPOCH)
    found = fetch_partition(producer.wire, topic, 1)
    assert found.last_stable_offset == found.high_watermark == 2


@pytest.mark.promise("transactions", "Invalid requests get Kafka's errors")
def test_a_transactional_batch_needs_a_transactional_id(wire: WireClient, topic: str) -> None:
    one = WireProducer(wire, f"tx-{topic}")
    one.init()
    batch = build_batch(
        [Record(0, 0, None, b"x")],
        producer_id=one.producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    data = Message(name=topic, partition_data=[Message(index=0, records=batch)])
    request = Message(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=[data])
    answer = wire.request(ApiKey.PRODUCE, 9, request)
    assert answer.responses[0].partition_responses[0].error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_verification_tells_which_partitions_are_in_the_transaction(
    broker: PenstockBroker, wire: WireClient, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    broker.create_topic(topic, partitions=2)
    one = WireProducer(wire, f"tx-{topic}")
    one.init()
    one.add(topic, 0)
    assert one.verify(topic, 0, 1) == [0, TRANSACTION_ABORTABLE]


def test_all_partitions_are_added_or_none(wire: WireClient, topic: str) -> None:
    one = WireProducer(wire, f"tx-{topic}")
    one.init()
    assert one.add(topic, 0, 99) == [OPERATION_NOT_ATTEMPTED, UNKNOWN_TOPIC_OR_PARTITION]
    assert described(wire, one.transactional_id).transaction_state == "Empty"


@pytest.mark.promise("transactions", "Invalid requests get Kafka's errors")
def test_who_is_not_known_is_told_so(wire: WireClient, topic: str) -> None:
    stranger = WireProducer(wire, f"tx-{topic}")
    stranger.producer_id, stranger.epoch = 987654321, 0
    assert stranger.add(topic, 0) == [INVALID_PRODUCER_ID_MAPPING]
    assert stranger.end(True) == INVALID_PRODUCER_ID_MAPPING
    assert stranger.add_offsets("g") == INVALID_PRODUCER_ID_MAPPING
    assert stranger.produce(topic, b"x", version=10) == INVALID_PRODUCER_ID_MAPPING
    assert stranger.produce(topic, b"x", version=12) == INVALID_PRODUCER_ID_MAPPING
    assert described(wire, stranger.transactional_id).error_code == TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.promise("transactions", "Invalid requests get Kafka's errors")
def test_bad_requests_get_the_error_that_kafka_gives(wire: WireClient, topic: str) -> None:
    one = WireProducer(wire, f"tx-{topic}")
    assert one.init(timeout_ms=900_001) == INVALID_TRANSACTION_TIMEOUT
    assert one.init(timeout_ms=0) == INVALID_TRANSACTION_TIMEOUT
    assert one.init(producer=(5, -1)) == INVALID_REQUEST
    assert described(wire, "").error_code == INVALID_REQUEST
    one.transactional_id = ""
    assert one.init() == INVALID_REQUEST
    one.transactional_id = f"tx-{topic}"
    assert one.init() == 0
    assert one.end(True) == INVALID_TXN_STATE
    assert one.end(False) == INVALID_TXN_STATE


def test_two_phase_commit_is_refused(wire: WireClient, topic: str) -> None:
    find_coordinator(wire, topic)
    request = Message(transactional_id=topic, transaction_timeout_ms=1000, enable2_pc=True)
    answer = wire.request(ApiKey.INIT_PRODUCER_ID, 6, request)
    assert answer.error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_very_long_transactional_ids_work(wire: WireClient, topic: str) -> None:
    one = WireProducer(wire, "x" * 30_000)
    assert one.init() == 0
    assert one.add(topic, 0) == [0]
    assert one.end(True) == 0


# offsets in a transaction


@pytest.mark.promise(
    "transactions",
    "Offsets sent in a transaction take effect when it commits (KIP-447), and are rejected from a member "
    "that the group does not know",
)
def test_offsets_count_when_the_transaction_commits(producer: WireProducer, topic: str) -> None:
    wire, group = producer.wire, f"g-{topic}"
    find_coordinator(wire, group, GROUP)
    for offset, commit, expected in ((5, False, -1), (7, True, 7), (9, False, 7)):
        if producer.version == 0:
            assert producer.add_offsets(group) == 0
        assert producer.commit_offset(group, topic, offset) == 0
        assert producer.commit_offset(group, topic, offset) == 0  # twice in one transaction
        before = committed_offset(wire, group, topic)[0]
        assert before != offset
        assert committed_offset(wire, group, topic, stable=True)[1] == UNSTABLE_OFFSET_COMMIT
        assert producer.end(commit) == 0
        assert committed_offset(wire, group, topic, stable=True) == (expected, 0)


def test_offsets_outside_a_transaction_are_refused(wire: WireClient, topic: str) -> None:
    one, group = WireProducer(wire, f"tx-{topic}"), f"g-{topic}"
    find_coordinator(wire, group, GROUP)
    one.init()
    assert one.commit_offset(group, topic, 5, version=3) == INVALID_TXN_STATE
    assert one.commit_offset(group, topic, 5, version=4) == TRANSACTION_ABORTABLE
    WireProducer(wire, f"tx-{topic}").init()
    for version in (3, 4, 5):
        assert one.commit_offset(group, topic, 5, version=version) == INVALID_PRODUCER_EPOCH
    assert committed_offset(wire, group, topic) == (-1, 0)


@pytest.mark.promise(
    "transactions",
    "Offsets sent in a transaction take effect when it commits (KIP-447), and are rejected from a member "
    "that the group does not know",
)
def test_offsets_of_a_member_that_the_group_does_not_know_are_refused(
    producer: WireProducer, topic: str
) -> None:
    """KIP-447: a consumer that was replaced cannot commit through a producer that was not."""
    group = f"g-{topic}"
    find_coordinator(producer.wire, group, GROUP)
    if producer.version == 0:
        producer.add_offsets(group)
    refused = producer.commit_offset(group, topic, 5, member="stranger", generation=3)
    assert refused in (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION)
    assert producer.end(False) == 0


# finding and ending what hangs


def listed(wire: WireClient, version: int = 2, **filters: object) -> Message:
    wanted = {
        "state_filters": [],
        "producer_id_filters": [],
        "duration_filter": -1,
        "transactional_id_pattern": None,
    }
    return wire.request(ApiKey.LIST_TRANSACTIONS, version, Message(**(wanted | filters)))


@pytest.mark.promise(
    "transactions",
    "Transactions can be listed and described (KIP-664), and a hanging one can be ended with a marker",
)
def test_transactions_are_listed_by_state_producer_duration_and_pattern(
    producer: WireProducer, topic: str
) -> None:
    wire, name = producer.wire, producer.transactional_id
    write(producer, topic, b"x")

    def found(**filters: object) -> set[str]:
        return {one.transactional_id for one in listed(wire, **filters).transaction_states}

    assert name in found()
    assert name in found(state_filters=["Ongoing"])
    assert name not in found(state_filters=["Empty", "CompleteCommit"])
    assert found(producer_id_filters=[producer.producer_id]) == {name}
    assert name not in found(duration_filter=3_600_000)
    assert found(transactional_id_pattern=name[:-1] + ".") == {name}
    assert listed(wire, transactional_id_pattern="(").error_code == INVALID_REGULAR_EXPRESSION
    answer = listed(wire, state_filters=["Sleeping"])
    assert (answer.unknown_state_filters, answer.transaction_states) == (["Sleeping"], [])
    producer.end(False)


@pytest.mark.promise(
    "transactions",
    "Transactions can be listed and described (KIP-664), and a hanging one can be ended with a marker",
)
def test_a_hanging_transaction_is_ended_by_a_marker(wire: WireClient, topic: str) -> None:
    """As an operator does it (KIP-664): found by DescribeProducers, aborted by WriteTxnMarkers."""
    one = WireProducer(wire, f"tx-{topic}")
    one.init()
    write(one, topic, b"x")
    request = Message(topics=[Message(name=topic, partition_indexes=[0])])
    answer = wire.request(ApiKey.DESCRIBE_PRODUCERS, 0, request)
    [hanging] = answer.topics[0].partitions[0].active_producers
    assert hanging.current_txn_start_offset == 0
    marker = Message(
        producer_id=hanging.producer_id,
        producer_epoch=hanging.producer_epoch,
        transaction_result=False,
        coordinator_epoch=max(hanging.coordinator_epoch, 0),
        topics=[Message(name=topic, partition_indexes=[0, 99])],
    )
    answer = wire.request(ApiKey.WRITE_TXN_MARKERS, 1, Message(markers=[marker]))
    [told] = answer.markers[0].topics
    assert [one.error_code for one in told.partitions] == [0, UNKNOWN_TOPIC_OR_PARTITION]
    found = fetch_partition(wire, topic, 1)
    assert found.last_stable_offset == found.high_watermark == 2
    assert committed(wire, topic) == []


@pytest.mark.promise(
    "transactions",
    "Transaction version 2: each transaction has its own epoch, and a late produce request has no effect",
)
def test_a_marker_of_version_2_must_be_newer_than_the_records(wire: WireClient, topic: str) -> None:
    one = WireProducer(wire, f"tx-{topic}", 2)
    one.init()
    write(one, topic, b"x")

    def mark(epoch: int) -> int:
        marker = Message(
            producer_id=one.producer_id,
            producer_epoch=epoch,
            transaction_result=False,
            coordinator_epoch=0,
            transaction_version=2,
            topics=[Message(name=topic, partition_indexes=[0])],
        )
        answer = wire.request(ApiKey.WRITE_TXN_MARKERS, 2, Message(markers=[marker]))
        return int(answer.markers[0].topics[0].partitions[0].error_code)

    assert mark(one.epoch) == INVALID_PRODUCER_EPOCH
    assert mark(one.epoch + 1) == 0


@pytest.mark.promise(
    "transactions",
    "Transaction version 2: each transaction has its own epoch, and a late produce request has no effect",
)
def test_the_features_in_force_are_told(wire: WireClient) -> None:
    answer = wire.request(
        ApiKey.API_VERSIONS, 4, Message(client_software_name="t", client_software_version="1")
    )
    in_force = {one.name: one.max_version_level for one in answer.finalized_features}
    assert in_force["transaction.version"] == 2
    assert in_force["group.version"] == 1
    assert answer.finalized_features_epoch >= 0
    supported = {one.name: (one.min_version, one.max_version) for one in answer.supported_features}
    assert supported["transaction.version"] == (0, 2)
    older = wire.request(
        ApiKey.API_VERSIONS, 3, Message(client_software_name="t", client_software_version="1")
    )
    assert all(one.min_version == 1 for one in older.supported_features)


# time and crashes


@pytest.mark.promise(
    "transactions",
    "A transaction that its producer does not end is aborted after its timeout (KIP-588), also if the "
    "coordinator was down in between",
)
def test_a_transaction_that_nobody_ends_is_aborted_in_time(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    with WireClient(penstock.port) as wire:
        old, new = WireProducer(wire, "old"), WireProducer(wire, "new", 2)
        for one in (old, new):
            assert one.init(timeout_ms=30_000) == 0
            write(one, "t", b"x")
        penstock.clock.advance(seconds=29)
        assert described(wire, "old").transaction_state == "Ongoing"
        penstock.clock.advance(seconds=2)
        assert described(wire, "old").transaction_state == "CompleteAbort"
        assert committed(wire, "t") == []
        found = fetch_partition(wire, "t", 1)
        assert found.last_stable_offset == found.high_watermark
        assert old.end(True) == PRODUCER_FENCED
        # A client of version 2 aborts, and goes on.
        assert new.produce("t", b"y") == INVALID_PRODUCER_EPOCH
        assert new.end(False) == 0
        write(new, "t", b"z")
        assert new.end(True) == 0
        assert committed(wire, "t") == [b"z"]


@pytest.mark.promise("transactions", "Unused transactional ids expire")
@pytest.mark.penstock(settings={"transactional.id.expiration.ms": 60_000})
def test_ids_that_are_not_used_expire(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    with WireClient(penstock.port) as wire:
        one = WireProducer(wire, "idle")
        one.init()
        penstock.clock.advance(seconds=61)
        assert described(wire, "idle").error_code == TRANSACTIONAL_ID_NOT_FOUND
        assert one.end(True) == INVALID_PRODUCER_ID_MAPPING
        before = one.producer_id
        assert one.init() == 0
        assert one.producer_id != before


@pytest.mark.promise(
    "transactions",
    "kill -9 of the broker leaves no transaction partly committed; an open transaction can continue after it",
)
@pytest.mark.parametrize("version", [0, 2])
def test_an_open_transaction_outlives_a_killed_broker(penstock: PenstockBroker, version: int) -> None:
    penstock.create_topic("t")
    with WireClient(penstock.port) as wire:
        one = WireProducer(wire, "x", version)
        one.init()
        write(one, "t", b"before")
    penstock.kill()
    penstock.restart()
    with WireClient(penstock.port) as wire:
        one.wire = wire
        assert described(wire, "x").transaction_state == "Ongoing"
        assert committed(wire, "t") == []
        assert one.produce("t", b"after") == 0
        assert one.end(True) == 0
        assert committed(wire, "t") == [b"before", b"after"]


@pytest.mark.promise(
    "transactions",
    "kill -9 of the broker leaves no transaction partly committed; an open transaction can continue after it",
)
def test_offsets_of_a_transaction_outlive_a_killed_broker(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    with WireClient(penstock.port) as wire:
        one, other = WireProducer(wire, "x", 2), WireProducer(wire, "y", 2)
        find_coordinator(wire, "g", GROUP)
        for producer, group, offset in ((one, "g", 5), (other, "h", 6)):
            producer.init()
            assert producer.commit_offset(group, "t", offset) == 0
    penstock.kill()
    penstock.restart()
    with WireClient(penstock.port) as wire:
        assert committed_offset(wire, "g", "t", stable=True)[1] == UNSTABLE_OFFSET_COMMIT
        one.wire = other.wire = wire
        assert one.end(True) == 0
        assert other.end(False) == 0
        assert committed_offset(wire, "g", "t", stable=True) == (5, 0)
        assert committed_offset(wire, "h", "t", stable=True) == (-1, 0)
    penstock.kill()
    penstock.restart()
    with WireClient(penstock.port) as wire:
        assert committed_offset(wire, "g", "t", stable=True) == (5, 0)
        assert committed_offset(wire, "h", "t", stable=True) == (-1, 0)


def test_a_transaction_whose_topic_is_deleted_ends(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    penstock.create_topic("gone")
    with WireClient(penstock.port) as wire:
        one = WireProducer(wire, "x")
        one.init()
        write(one, "t", b"kept")
        write(one, "gone", b"lost")
        penstock.delete_topic("gone")
        assert one.end(True) == 0
        assert described(wire, "x").transaction_state == "CompleteCommit"
        assert committed(wire, "t") == [b"kept"]
