"""What is known of a transactional id, and the steps from one state to the next.

    Empty ──> Ongoing ──> PrepareCommit ──> CompleteCommit ──> Ongoing | Empty
                  └─────> PrepareAbort  ──> CompleteAbort  ──> Ongoing | Empty

A step is a function from a `Transaction` to the next one; it is in force when its record was replayed.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

TopicPartition = tuple[str, int]

NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1
MAX_EPOCH = 0x7FFF
LAST_CLIENT_EPOCH = MAX_EPOCH - 1
"""Clients never get the highest epoch: the coordinator needs one more to fence them."""

TV_0, TV_2 = 0, 2
"""How a client does transactions: with version 2 each of them has an epoch of its own (KIP-890)."""


class State(IntEnum):
    """With the numbers of the log. Dead (being expired) and PrepareEpochFence (being fenced) pass within one
    step here: they are never seen, but have their names in ListTransactions' filters."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Kafka's name."""
        return _LABELS[self]


_LABELS = {state: state.name.title().replace("_", "") for state in State}
STATE_OF_LABEL = {label: state for state, label in _LABELS.items()}

PREPARED = frozenset((State.PREPARE_COMMIT, State.PREPARE_ABORT))
COMPLETE = frozenset((State.COMPLETE_COMMIT, State.COMPLETE_ABORT))
AT_REST = frozenset((State.EMPTY, *COMPLETE))
"""No transaction is open: the next one can begin, a producer can be given an epoch, the id can expire."""


class Transaction(NamedTuple):
    """A transactional id as it is in the log."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    last_update_ms: int = NO_TIMESTAMP
    start_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID  # where ending this transaction uses up the epochs
    client_version: int = TV_0

    @property
    def exhausted(self) -> bool:
        """Whether the client has the last epoch of this producer id."""
        return self.producer_epoch >= LAST_CLIENT_EPOCH

    @property
    def committing(self) -> bool:
        return self.state == State.PREPARE_COMMIT

    @property
    def successor(self) -> tuple[int, int]:
        """The producer id and epoch with which the client continues when this transaction has ended."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch


def initialized(transaction: Transaction, epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
    """The producer has an epoch, and no transaction."""
    return Transaction(
        transaction.producer_id,
        epoch,
        timeout_ms,
        last_update_ms=now_ms,
        previous_producer_id=transaction.previous_producer_id,
    )


def rotated(transaction: Transaction, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """A new producer id, where the old one has no epochs left."""
    return Transaction(
        producer_id, 0, timeout_ms, last_update_ms=now_ms, previous_producer_id=transaction.producer_id
    )


def with_partitions(
    transaction: Transaction, added: frozenset[TopicPartition], client_version: int, now_ms: int
) -> Transaction:
    ongoing = transaction.state == State.ONGOING
    return transaction._replace(
        state=State.ONGOING,
        partitions=transaction.partitions | added if ongoing else added,
        start_ms=transaction.start_ms if ongoing else now_ms,
        last_update_ms=now_ms,
        client_version=client_version,
    )


def prepared(
    transaction: Transaction,
    commit: bool,
    *,
    bump: bool,
    client_version: int,
    now_ms: int,
    next_producer_id: int = NO_PRODUCER_ID,
) -> Transaction:
    """It is decided how the transaction ends; the markers carry the epoch that it has from here on."""
    return transaction._replace(
        state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
        producer_epoch=transaction.producer_epoch + bump,
        next_producer_id=next_producer_id,
        last_update_ms=now_ms,
        client_version=client_version,
    )


def completed(transaction: Transaction, now_ms: int) -> Transaction:
    """All markers are written."""
    producer_id, producer_epoch = transaction.successor
    return transaction._replace(
        state=State.COMPLETE_COMMIT if transaction.committing else State.COMPLETE_ABORT,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        last_update_ms=now_ms,
    )
