"""The transaction coordinator's machine, promise by promise."""

from __future__ import annotations

import pytest

from penstock.errors import (
    ApiError,
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    ProducerFenced,
    TransactionAbortable,
    TransactionalIdNotFound,
)
from penstock.transactions.deadlines import Deadlines
from penstock.transactions.listing import Filters, described, listed
from penstock.transactions.settings import TransactionSettings
from penstock.transactions.shard import WriteMarkers
from penstock.transactions.state import LAST_CLIENT_EPOCH, State, Transaction
from tests.sim.txn_host import TxnHost

A, B = ("a", 0), ("b", 1)
V1, V2 = 4, 5  # versions of EndTxn: without and with an epoch for each transaction


@pytest.fixture
def host() -> TxnHost:
    return TxnHost([A, B])


def state(host: TxnHost, transactional_id: str = "t") -> State:
    return host.shard.transactions[transactional_id].state


def exhaust(host: TxnHost, epoch: int = LAST_CLIENT_EPOCH) -> tuple[int, int]:
    """A producer that has used up its epochs."""
    producer_id, _ = host.init("t")
    known = host.shard.transactions["t"]
    host.shard.transactions["t"] = known._replace(producer_epoch=epoch)
    return producer_id, epoch


def deferred() -> tuple[TxnHost, list[WriteMarkers]]:
    markers: list[WriteMarkers] = []
    return TxnHost([A, B], defer=markers.append), markers


# InitProducerId


def test_a_new_id_gets_a_producer_with_epoch_0_and_each_init_a_higher_one(host: TxnHost) -> None:
    first = host.init("t")
    assert first[1] == 0
    assert host.init("t") == (first[0], 1)
    assert host.init("u")[0] != first[0]


def test_what_was_answered_survives_the_coordinator(host: TxnHost) -> None:
    producer = host.init("t")
    host.add("t", producer, A)
    before = dict(host.shard.transactions)
    host.restart()
    assert host.shard.transactions == before


@pytest.mark.parametrize("timeout", [0, -1, 900_001])
def test_a_timeout_outside_the_limits_is_refused(host: TxnHost, timeout: int) -> None:
    with pytest.raises(InvalidTransactionTimeout):
        host.init("t", timeout)
    assert not host.log


@pytest.mark.parametrize("producer", [(5, -1), (-1, 5)])
def test_a_producer_id_without_epoch_is_refused(host: TxnHost, producer: tuple[int, int]) -> None:
    with pytest.raises(InvalidRequest):
        host.init("t", producer=producer)


def test_empty_ids_are_refused_everywhere(host: TxnHost) -> None:
    for attempt in (
        lambda: host.init(""),
        lambda: host.add("", (1, 0), A),
        lambda: host.end("", (1, 0), True),
        lambda: host.verify("", (1, 0), A),
    ):
        with pytest.raises(InvalidRequest):
            attempt()


@pytest.mark.promise("transactions", "Invalid requests get Kafka's errors")
def test_an_id_that_no_record_can_hold_is_refused(host: TxnHost) -> None:
    assert host.init("x" * 32767)[1] == 0
    with pytest.raises(InvalidRequest):
        host.init("ü" * 16384)


def test_without_a_producer_id_at_hand_the_client_is_told_to_try_again(host: TxnHost) -> None:
    host.ids_left = 0
    with pytest.raises(CoordinatorLoadInProgress):
        host.init("t")
    host.ids_left = 1
    assert host.init("t")[1] == 0


def test_a_producer_that_names_its_epoch_gets_the_next_one(host: TxnHost) -> None:
    producer = host.init("t")
    assert host.init("t", producer=producer) == (producer[0], 1)


@pytest.mark.promise(
    "transactions",
    "A producer that sends its current epoch gets the next one (KIP-360); when its epochs are used up, "
    "it gets a new producer id",
)
def test_a_retry_of_a_named_epoch_gets_the_same_answer(host: TxnHost) -> None:
    producer = host.init("t")
    again = host.init("t", producer=producer)
    assert host.init("t", producer=producer) == again


def test_a_fenced_producer_that_names_its_epoch_stays_fenced(host: TxnHost) -> None:
    producer = host.init("t")
    host.init("t")  # by another instance
    with pytest.raises(ProducerFenced):
        host.init("t", producer=producer)
    with pytest.raises(ProducerFenced):
        host.init("t", producer=(producer[0] + 99, 0))


@pytest.mark.promise("transactions", "A newer producer fences the older one")
def test_an_old_producer_cannot_abort_the_transaction_of_a_newer_one(host: TxnHost) -> None:
    old = host.init("t")
    new = host.init("t")
    host.add("t", new, A)
    with pytest.raises(ProducerFenced):
        host.init("t", producer=old)
    assert state(host) == State.ONGOING


def test_init_aborts_an_open_transaction_and_asks_to_come_back(host: TxnHost) -> None:
    old = host.init("t")
    host.add("t", old, A)
    host.produce("t", old, A, 0, "x")
    with pytest.raises(ConcurrentTransactions):
        host.init("t")
    assert state(host) == State.COMPLETE_ABORT
    assert host.init("t") == (old[0], 2)  # one for the fence, one for the new producer
    assert host.partitions[A].committed() == []
    for version in (V1, V2):
        for commit in (True, False):
            with pytest.raises(ProducerFenced):
                host.end("t", old, commit, version)


def test_while_a_transaction_ends_everybody_waits() -> None:
    host, markers = deferred()
    producer = host.init("t")
    host.add("t", producer, A)
    host.end("t", producer, True)
    assert state(host) == State.PREPARE_COMMIT
    for attempt in (
        lambda: host.init("t"),
        lambda: host.add("t", producer, B),
        lambda: host.verify("t", producer, A),
        lambda: host.end("t", producer, True),
        lambda: host.end("t", producer, False),
    ):
        with pytest.raises(ConcurrentTransactions):
            attempt()
    host.write(markers[0], [A])
    assert state(host) == State.COMPLETE_COMMIT
    with pytest.raises(InvalidTxnState):
        host.end("t", producer, False)


@pytest.mark.promise(
    "transactions",
    "A client's next transaction waits while the previous one is ending; it is never fenced or aborted "
    "because of that, even if the producer id changes",
)
@pytest.mark.parametrize("commit", [True, False])
def test_with_version_2_the_next_transaction_waits_for_the_end_of_the_last(commit: bool) -> None:
    host, markers = deferred()
    producer = host.init("t")
    host.add("t", producer, A, client_version=2)
    following = host.end("t", producer, True, V2)
    for attempt in (
        lambda: host.add("t", following, B, client_version=2),
        lambda: host.end("t", following, commit, V2),
        lambda: host.end("t", producer, not commit, V2),
    ):
        with pytest.raises(ConcurrentTransactions):
            attempt()
    host.write(markers[0], [A])
    host.add("t", following, B, client_version=2)
    host.end("t", following, commit, V2)


@pytest.mark.promise(
    "transactions",
    "A client's next transaction waits while the previous one is ending; it is never fenced or aborted "
    "because of that, even if the producer id changes",
)
def test_the_first_transaction_of_a_new_producer_id_waits_for_the_last_of_the_old() -> None:
    host, markers = deferred()
    producer = exhaust(host)
    host.produce("t", producer, A, 0, "x", client_version=2)
    following = host.end("t", producer, True, V2)
    assert following[0] != producer[0]
    for attempt in (
        lambda: host.add("t", following, B, client_version=2),
        lambda: host.end("t", following, False, V2),
    ):
        with pytest.raises(ConcurrentTransactions):
            attempt()
    host.write(markers[-1], [A])
    host.add("t", following, B, client_version=2)


@pytest.mark.promise(
    "transactions",
    "A commit that arrives before the transaction's first batch (Java's client does that) gets a "
    "retriable error, once",
)
def test_a_commit_that_overtakes_its_batch_is_asked_to_try_again_once(host: TxnHost) -> None:
    producer = host.init("t")
    for _ in range(2):  # once for each transaction
        with pytest.raises(ConcurrentTransactions):
            host.end("t", producer, True, V2)
        host.produce("t", producer, A, 0, "x", client_version=2)
        producer = host.end("t", producer, True, V2)
    with pytest.raises(ConcurrentTransactions):
        host.end("t", producer, True, V2)
    with pytest.raises(InvalidTxnState):
        host.end("t", producer, True, V2)


@pytest.mark.promise(
    "transactions",
    "A producer that sends its current epoch gets the next one (KIP-360); when its epochs are used up, "
    "it gets a new producer id",
)
def test_when_the_epochs_are_used_up_there_is_a_new_producer_id(host: TxnHost) -> None:
    producer = exhaust(host)
    rotated = host.init("t")
    assert rotated[0] != producer[0]
    assert rotated[1] == 0
    assert host.shard.transactions["t"].previous_producer_id == producer[0]


def test_a_retry_of_the_change_to_a_new_producer_id_gets_the_same_answer(host: TxnHost) -> None:
    producer = exhaust(host)
    rotated = host.init("t", producer=producer)
    assert rotated[0] != producer[0]
    assert host.init("t", producer=producer) == rotated
    with pytest.raises(ProducerFenced):
        host.init("t", producer=(producer[0], 5))


# AddPartitionsToTxn


def test_adding_begins_the_transaction_and_adding_again_writes_nothing(host: TxnHost) -> None:
    producer = host.init("t")
    host.add("t", producer, A)
    written = len(host.log)
    host.advance(50)
    host.add("t", producer, A)
    assert len(host.log) == written
    host.add("t", producer, B)
    known = host.shard.transactions["t"]
    assert known.partitions == {A, B}
    assert known.start_ms == host.now - 50


def test_adding_needs_the_id_the_producer_and_the_epoch(host: TxnHost) -> None:
    producer_id, epoch = host.init("t")
    with pytest.raises(InvalidProducerIdMapping):
        host.add("unknown", (producer_id, epoch), A)
    with pytest.raises(InvalidProducerIdMapping):
        host.add("t", (producer_id + 1, epoch), A)
    for other in (epoch - 1, epoch + 1):
        with pytest.raises(ProducerFenced):
            host.add("t", (producer_id, other), A)


def test_verification_names_the_partitions_that_are_not_in_the_transaction(host: TxnHost) -> None:
    producer = host.init("t")
    host.add("t", producer, A)
    refused = host.verify("t", producer, A, B)
    assert {partition: type(error) for partition, error in refused.items()} == {B: TransactionAbortable}
    host.end("t", producer, True)
    assert set(host.verify("t", producer, A)) == {A}


# EndTxn


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_is_marked_on_every_partition(host: TxnHost, commit: bool) -> None:
    producer = host.init("t")
    host.add("t", producer, A, B)
    host.produce("t", producer, A, 0, "x")
    host.produce("t", producer, B, 0, "y")
    assert host.end("t", producer, commit) == producer
    assert state(host) == (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    kind = "commit" if commit else "abort"
    assert [model.entries[-1].kind for model in host.partitions.values()] == [kind, kind]


@pytest.mark.promise("transactions", "A commit whose response was lost can be retried, with the same result")
def test_a_retry_of_the_end_is_answered_and_the_opposite_is_refused(host: TxnHost) -> None:
    producer = host.init("t")
    host.add("t", producer, A)
    host.end("t", producer, True)
    host.end("t", producer, True)
    with pytest.raises(InvalidTxnState):
        host.end("t", producer, False)
    assert [entry.kind for entry in host.partitions[A].entries] == ["commit"]


def test_a_commit_without_a_transaction_is_refused(host: TxnHost) -> None:
    producer = host.init("t")
    with pytest.raises(ConcurrentTransactions):
        host.end("t", producer, True, V2)  # its first batch may be on the way
    for version in (V1, V2):
        with pytest.raises(InvalidTxnState):
            host.end("t", producer, True, version)
    with pytest.raises(InvalidTxnState):
        host.end("t", producer, False, V1)
    with pytest.raises(InvalidProducerIdMapping):
        host.end("unknown", producer, True)


def test_with_version_2_each_transaction_has_an_epoch_of_its_own(host: TxnHost) -> None:
    producer = host.init("t")
    host.produce("t", producer, A, 0, "x", client_version=2)
    following = host.end("t", producer, True, V2)
    assert following == (producer[0], 1)
    assert host.partitions[A].entries[-1] == ("commit", producer[0], 1, None)
    assert host.end("t", producer, True, V2) == following  # a retry
    with pytest.raises(InvalidTxnState):
        host.end("t", producer, False, V2)
    for error in (ConcurrentTransactions, InvalidTxnState):
        with pytest.raises(error):  # not a retry: the next transaction, of which nothing is there
            host.end("t", following, True, V2)
    assert host.end("t", following, False, V2) == (producer[0], 2)


def test_a_retry_with_version_2_is_known_to_the_next_coordinator(host: TxnHost) -> None:
    producer = host.init("t")
    host.produce("t", producer, A, 0, "x", client_version=2)
    following = host.end("t", producer, True, V2)
    host.restart()
    assert host.end("t", producer, True, V2) == following


def test_an_abort_without_a_transaction_gives_a_new_epoch_with_version_2(host: TxnHost) -> None:
    producer = host.init("t")
    following = host.end("t", producer, False, V2)
    assert following == (producer[0], 1)
    assert host.end("t", producer, False, V2) == following
    assert state(host) == State.COMPLETE_ABORT


@pytest.mark.promise(
    "transactions",
    "A producer that sends its current epoch gets the next one (KIP-360); when its epochs are used up, "
    "it gets a new producer id",
)
def test_the_last_epoch_ends_in_a_new_producer_id_with_version_2() -> None:
    host, markers = deferred()
    producer = exhaust(host)
    host.produce("t", producer, A, 0, "x", client_version=2)
    following = host.end("t", producer, True, V2)
    assert following[0] != producer[0]
    assert following[1] == 0
    with pytest.raises(ConcurrentTransactions):
        host.end("t", producer, True, V2)
    host.restart()
    host.write(markers[-1], [A])
    assert markers[-1].producer_epoch == LAST_CLIENT_EPOCH + 1
    assert host.end("t", producer, True, V2) == following
    host.add("t", following, A, client_version=2)


def test_without_a_producer_id_at_hand_the_last_epoch_is_ended_later(host: TxnHost) -> None:
    producer = exhaust(host)
    host.produce("t", producer, A, 0, "x", client_version=2)
    host.ids_left = 0
    with pytest.raises(CoordinatorLoadInProgress):
        host.end("t", producer, True, V2)
    assert state(host) == State.ONGOING
    host.ids_left = 1
    host.end("t", producer, True, V2)
    assert host.partitions[A].committed() == ["x"]


# markers


@pytest.mark.promise(
    "transactions",
    "A transaction over several partitions ends on all of them, no matter how often the coordinator dies",
)
def test_markers_are_sent_again_until_every_partition_has_one() -> None:
    host, markers = deferred()
    producer = host.init("t")
    host.add("t", producer, A, B)
    host.end("t", producer, True)
    host.write(markers[0], [A])
    assert state(host) == State.PREPARE_COMMIT
    host.advance(host.settings.retry_ms)
    assert [one.partitions for one in markers] == [{A, B}, {B}]
    host.write(markers[1], [B])
    assert state(host) == State.COMPLETE_COMMIT


@pytest.mark.promise(
    "transactions",
    "A transaction over several partitions ends on all of them, no matter how often the coordinator dies",
)
def test_a_new_coordinator_sends_all_markers_at_once_and_in_its_own_epoch() -> None:
    host, markers = deferred()
    producer = host.init("t")
    host.add("t", producer, A, B)
    host.end("t", producer, False)
    host.write(markers[0], [A])
    host.restart()
    assert len(markers) == 2
    assert markers[1].coordinator_epoch == markers[0].coordinator_epoch + 1
    assert markers[1].partitions == {A, B}
    assert not markers[1].commit


@pytest.mark.promise(
    "transactions", "The decision to commit or abort a transaction counts only once it is written"
)
def test_a_decision_that_was_not_written_is_no_decision() -> None:
    host = TxnHost([A, B])
    producer = host.init("t")
    host.add("t", producer, A)
    host.produce("t", producer, A, 0, "x")
    host.fail_appends = 1
    with pytest.raises(CoordinatorNotAvailable):
        host.end("t", producer, True)
    assert state(host) == State.ONGOING
    assert [entry.kind for entry in host.partitions[A].entries] == ["data"]
    host.end("t", producer, False)
    assert [entry.kind for entry in host.partitions[A].entries] == ["data", "abort"]


def test_a_report_that_comes_late_changes_nothing() -> None:
    host, markers = deferred()
    producer = host.init("t")
    host.add("t", producer, A)
    host.end("t", producer, True)
    host.write(markers[0], [A])
    host.add("t", producer, A)
    host.write(markers[0], [A])
    assert state(host) == State.ONGOING


# time


def test_a_transaction_that_nobody_ends_is_aborted_and_its_producer_fenced(host: TxnHost) -> None:
    producer = host.init("t", timeout_ms=1_000)
    host.add("t", producer, A)
    host.produce("t", producer, A, 0, "x")
    host.advance(1_000)
    assert state(host) == State.ONGOING
    host.advance(1)
    assert state(host) == State.COMPLETE_ABORT
    with pytest.raises(ProducerFenced):
        host.end("t", producer, True)
    with pytest.raises(ApiError):
        host.produce("t", producer, A, 1, "y")
    assert host.init("t") == (producer[0], 2)


@pytest.mark.promise(
    "transactions",
    "A transaction that its producer does not end is aborted after its timeout (KIP-588), also if the "
    "coordinator was down in between",
)
def test_the_time_goes_on_while_no_coordinator_is_there(host: TxnHost) -> None:
    producer = host.init("t", timeout_ms=1_000)
    host.add("t", producer, A)
    host.now += 5_000
    host.restart()
    assert state(host) == State.COMPLETE_ABORT


def test_a_client_of_version_2_whose_transaction_timed_out_aborts_and_goes_on(host: TxnHost) -> None:
    producer = host.init("t", timeout_ms=1_000)
    host.produce("t", producer, A, 0, "x", client_version=2)
    host.advance(1_001)
    with pytest.raises(ProducerFenced):
        host.produce("t", producer, B, 0, "y", client_version=2)
    with pytest.raises(InvalidTxnState):
        host.end("t", producer, True, V2)
    following = host.end("t", producer, False, V2)
    assert following == (producer[0], 1)
    host.produce("t", following, A, 0, "z", client_version=2)
    host.end("t", following, True, V2)
    assert host.partitions[A].committed() == ["z"]


@pytest.mark.parametrize("ids_left", [0, 1])
def test_a_timeout_in_the_last_epoch_leaves_no_client_with_the_highest(host: TxnHost, ids_left: int) -> None:
    producer = exhaust(host)
    host.produce("t", producer, A, 0, "x", client_version=2)
    host.ids_left = ids_left
    host.advance(60_001)
    host.ids_left = 5
    assert state(host) == State.COMPLETE_ABORT
    if ids_left:
        assert host.end("t", producer, False, V2)[1] == 0
    else:
        with pytest.raises(ProducerFenced):
            host.end("t", producer, False, V2)
        assert host.init("t")[1] == 0


def test_a_transaction_that_ended_in_time_is_left_alone(host: TxnHost) -> None:
    producer = host.init("t", timeout_ms=1_000)
    host.add("t", producer, A)
    host.end("t", producer, True)
    host.advance(10_000)
    assert state(host) == State.COMPLETE_COMMIT


@pytest.mark.promise("transactions", "Unused transactional ids expire")
def test_ids_expire_when_they_are_at_rest() -> None:
    host = TxnHost([A], TransactionSettings(transactional_id_expiration_ms=5_000))
    idle = host.init("idle")
    busy = host.init("busy", timeout_ms=900_000)
    host.advance(4_000)
    host.add("busy", busy, A)
    host.advance(1_000)
    assert set(host.shard.transactions) == {"busy"}
    assert host.log[-1].value is None
    with pytest.raises(InvalidProducerIdMapping):
        host.end("idle", idle, True)
    host.advance(4_000)
    assert set(host.shard.transactions) == {"busy"}
    host.restart()
    assert set(host.shard.transactions) == {"busy"}


def test_what_could_not_be_written_is_tried_again_later(host: TxnHost) -> None:
    producer = host.init("t", timeout_ms=1_000)
    host.add("t", producer, A)
    host.fail_appends = 1
    host.advance(1_001)
    assert state(host) == State.ONGOING
    host.advance(host.settings.retry_ms)
    assert state(host) == State.COMPLETE_ABORT


def test_the_heap_of_deadlines_stays_small(host: TxnHost) -> None:
    producer = host.init("t")
    for _ in range(2_000):
        host.add("t", producer, A)
        host.end("t", producer, True)
        host.advance(700)
    assert len(host.shard._deadlines._heap) < 100


def test_deadlines_come_up_once_and_at_their_earliest() -> None:
    deadlines = Deadlines()
    deadlines.set("a", 50)
    deadlines.set("a", 20)
    deadlines.set("a", 90)
    deadlines.set("b", 30)
    assert deadlines.next() == 20
    assert list(deadlines.due(60)) == ["a", "b"]
    assert deadlines.next() is None


# DescribeTransactions, ListTransactions


@pytest.mark.promise(
    "transactions",
    "Transactions can be listed and described (KIP-664), and a hanging one can be ended with a marker",
)
def test_a_transaction_is_described(host: TxnHost) -> None:
    producer = host.init("t", timeout_ms=5_000)
    host.add("t", producer, B, A, ("a", 3))
    told = described(host.shard.transactions, "t")
    assert (told.transaction_state, told.transaction_timeout_ms, told.producer_id) == ("Ongoing", 5_000, 1)
    assert told.transaction_start_time_ms == host.now
    assert [(topic.topic, topic.partitions) for topic in told.topics] == [("a", [0, 3]), ("b", [1])]
    with pytest.raises(TransactionalIdNotFound):
        described(host.shard.transactions, "unknown")


def test_lists_are_filtered() -> None:
    transactions = {
        "one": Transaction(1, 0, 9, State.ONGOING, start_ms=100),
        "two": Transaction(2, 0, 9, State.ONGOING, start_ms=150),
        "three": Transaction(3, 0, 9, State.COMPLETE_COMMIT, start_ms=50),
    }

    def names(filters: Filters) -> set[str]:
        return {told.transactional_id for told in listed(transactions, filters, 200)}

    assert names(Filters()) == {"one", "two", "three"}
    assert names(Filters(states={State.ONGOING})) == {"one", "two"}
    assert names(Filters(producer_ids={2, 3})) == {"two", "three"}
    assert names(Filters(longer_than_ms=50)) == {"one", "three"}
    assert names(Filters(longer_than_ms=0, matches=lambda name: name.startswith("t"))) == {"two", "three"}


def test_states_have_kafkas_names() -> None:
    assert [one.label for one in State] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
