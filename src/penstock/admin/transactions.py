"""The transactions of a cluster: as their coordinators know them, and as partitions hold them open.

A transaction hangs if a partition holds it open and no coordinator knows about it: nothing will ever end it,
and `read_committed` consumers wait at its first offset (KIP-664).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial

from penstock.admin.failure import CommandFailed, UnknownTopic
from penstock.admin.wire_client import TRANSACTION, CommandConnection, WireCluster, check, failure
from penstock.errors import ApiError, TransactionalIdNotFound, UnknownTopicOrPartition, UnsupportedVersion
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
UNDER_WAY = frozenset(("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"))


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """One entry of ListTransactions, with the broker that coordinates it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: str


@dataclass(frozen=True, slots=True)
class DescribedTransaction:
    """A transactional id as its coordinator knows it; `start_ms` is -1 when no transaction is open."""

    transactional_id: str
    state: str
    timeout_ms: int
    start_ms: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[tuple[str, int], ...]
    coordinator: str

    @property
    def under_way(self) -> bool:
        return self.state in UNDER_WAY


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that a partition holds open, as reported by its leader."""

    topic: str
    partition: int
    leader: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp: int


def list_transactions(
    wire: WireCluster,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    longer_than_ms: int | None = None,
) -> list[ListedTransaction]:
    """From all brokers, sorted by transactional id."""
    request = Message(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=-1 if longer_than_ms is None else longer_than_ms,
    )

    def ask(broker: CommandConnection) -> Message:
        if longer_than_ms is not None and broker.version(ApiKey.LIST_TRANSACTIONS) < 1:
            raise UnsupportedVersion(f"the broker at {broker.address} cannot filter by duration")
        answer = broker.request(ApiKey.LIST_TRANSACTIONS, request)
        check(answer.error_code)
        return answer

    found = [
        ListedTransaction(each.transactional_id, each.producer_id, each.transaction_state, broker.address)
        for broker in wire.brokers()
        for each in wire.retry(partial(ask, broker)).transaction_states
    ]
    return sorted(found, key=lambda each: each.transactional_id)


def describe_transaction(wire: WireCluster, transactional_id: str) -> DescribedTransaction:
    """Raises TransactionalIdNotFound."""

    def ask() -> DescribedTransaction:
        coordinator = wire.coordinator(transactional_id, TRANSACTION)
        request = Message(transactional_ids=[transactional_id])
        (found,) = coordinator.request(ApiKey.DESCRIBE_TRANSACTIONS, request).transaction_states
        check(found.error_code)
        return DescribedTransaction(
            transactional_id,
            found.transaction_state,
            found.transaction_timeout_ms,
            found.transaction_start_time_ms,
            found.producer_id,
            found.producer_epoch,
            tuple((topic.topic, index) for topic in found.topics for index in sorted(topic.partitions)),
            coordinator.address,
        )

    return wire.retry(ask)


def open_transactions(
    wire: WireCluster, topics: Collection[str] | None = None, partition: int | None = None
) -> list[OpenTransaction]:
    """The open transactions that the leaders of `topics` (None: all) report."""
    return wire.retry(lambda: _open_transactions(wire, topics, partition))


def _open_transactions(
    wire: WireCluster, topics: Collection[str] | None, partition: int | None
) -> list[OpenTransaction]:
    by_leader: dict[int, dict[str, list[int]]] = {}
    for topic in wire.metadata(topics).topics:
        if topic.error_code == UnknownTopicOrPartition.code:
            raise UnknownTopic(topic.name, [each.name for each in wire.metadata(None).topics])
        check(topic.error_code)
        indexes = [each.partition_index for each in topic.partitions]
        if partition is not None and partition not in indexes:
            raise CommandFailed(f"topic '{topic.name}' has no partition {partition}.")
        for each in topic.partitions:
            if each.leader_id >= 0 and partition in (None, each.partition_index):
                by_leader.setdefault(each.leader_id, {}).setdefault(topic.name, []).append(
                    each.partition_index
                )
    found: list[OpenTransaction] = []
    for leader, wanted in by_leader.items():
        request = Message(
            topics=[Message(name=name, partition_indexes=sorted(indexes)) for name, indexes in wanted.items()]
        )
        answer = wire.broker(leader).request(ApiKey.DESCRIBE_PRODUCERS, request)
        for topic in answer.topics:
            for each in topic.partitions:
                check(each.error_code, each.error_message)
                found += _held_open(topic.name, each, leader)
    return sorted(found, key=lambda each: (each.topic, each.partition, each.start_offset))


def _held_open(topic: str, partition: Message, leader: int) -> list[OpenTransaction]:
    return [
        OpenTransaction(
            topic,
            partition.partition_index,
            leader,
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch,
            producer.current_txn_start_offset,
            producer.last_timestamp,
        )
        for producer in partition.active_producers
        if producer.current_txn_start_offset >= 0
    ]


def owners(wire: WireCluster, candidates: Iterable[OpenTransaction]) -> dict[OpenTransaction, str | None]:
    """The transactional id whose coordinator will end each of these transactions; None: it hangs."""
    candidates = list(candidates)
    if not candidates:
        return {}
    producer_ids = sorted({each.producer_id for each in candidates})
    known: dict[tuple[int, str, int], str] = {}
    for listed in list_transactions(wire, producer_ids=producer_ids):
        try:
            described = describe_transaction(wire, listed.transactional_id)
        except TransactionalIdNotFound:
            continue
        if described.under_way:
            for topic, partition in described.partitions:
                known[described.producer_id, topic, partition] = described.transactional_id
    return {each: known.get((each.producer_id, each.topic, each.partition)) for each in candidates}


def fence(wire: WireCluster, transaction: DescribedTransaction) -> None:
    """End the transaction by fencing its producer: the coordinator aborts it before it assigns a new
    epoch.
    """
    request = Message(
        transactional_id=transaction.transactional_id,
        transaction_timeout_ms=transaction.timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
    )

    def ask() -> None:
        coordinator = wire.coordinator(transaction.transactional_id, TRANSACTION)
        check(coordinator.request(ApiKey.INIT_PRODUCER_ID, request).error_code)

    wire.retry(ask)


def write_abort_marker(wire: WireCluster, transaction: OpenTransaction) -> None:
    """End a transaction in one partition that no coordinator will end."""
    marker = Message(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_result=False,
        topics=[Message(name=transaction.topic, partition_indexes=[transaction.partition])],
        # -1 if the producer never ended a transaction here; 0 is the lowest epoch that a leader accepts.
        coordinator_epoch=max(0, transaction.coordinator_epoch),
    )

    def ask() -> None:
        leader = wire.broker(transaction.leader)
        answer = leader.request(ApiKey.WRITE_TXN_MARKERS, Message(markers=[marker]))
        for result in answer.markers:
            for topic in result.topics:
                for partition in topic.partitions:
                    check(partition.error_code)

    wire.retry(ask)


# As commands and pages use it: what fails is a CommandFailed that says what to do


def find_transaction(wire: WireCluster, transactional_id: str) -> DescribedTransaction:
    try:
        return describe_transaction(wire, transactional_id)
    except TransactionalIdNotFound as error:
        raise CommandFailed(
            f"no transactional id '{transactional_id}' in this cluster: see `penstock transactions list`."
        ) from error
    except ApiError as error:
        raise failure(error, f"cannot describe '{transactional_id}'") from error


def find_hanging(wire: WireCluster, topics: Collection[str] | None, oldest_ms: int) -> list[OpenTransaction]:
    """The hanging transactions in `topics` (None: all) whose last record is from `oldest_ms` or before."""
    try:
        candidates = [each for each in open_transactions(wire, topics) if each.last_timestamp <= oldest_ms]
        return [each for each, owner in owners(wire, candidates).items() if owner is None]
    except ApiError as error:
        raise failure(error, "cannot look for hanging transactions") from error


def abort_transaction(wire: WireCluster, transactional_id: str) -> DescribedTransaction:
    """Returns the transaction as it was before."""
    found = find_transaction(wire, transactional_id)
    if not found.under_way:
        raise CommandFailed(f"'{transactional_id}' has no open transaction: its state is {found.state}.")
    try:
        fence(wire, found)
    except ApiError as error:
        raise failure(error, f"cannot abort the transaction of '{transactional_id}'") from error
    return found


def abort_hanging(
    wire: WireCluster,
    topic: str,
    partition: int,
    start_offset: int | None = None,
    producer_id: int | None = None,
) -> OpenTransaction:
    """Identified by its first offset in the partition, or by its producer. Returns the transaction as it was
    before.
    """
    try:
        held = open_transactions(wire, [topic], partition)
        chosen = _choose(held, f"{topic}-{partition}", start_offset, producer_id)
        owner = owners(wire, [chosen])[chosen]
        if owner is not None:
            # A marker without the coordinator's knowledge could leave half of the transaction committed.
            raise CommandFailed(
                f"this transaction does not hang: it belongs to '{owner}', whose coordinator "
                f"will end it. To abort it now: `penstock transactions abort {owner}`."
            )
        write_abort_marker(wire, chosen)
    except ApiError as error:
        raise failure(error, f"cannot abort in {topic}-{partition}") from error
    return chosen


def _choose(
    held: list[OpenTransaction], where: str, start_offset: int | None, producer_id: int | None
) -> OpenTransaction:
    for each in held:
        if each.start_offset == start_offset or each.producer_id == producer_id:
            return each
    there = ", ".join(f"offset {each.start_offset} (producer {each.producer_id})" for each in held[:4])
    wanted = f"offset {start_offset}" if start_offset is not None else f"producer {producer_id}"
    raise CommandFailed(f"no open transaction of {wanted} in {where}: it holds {there or 'none'} open.")
