"""The state of a transactional id, and the transitions between states.

    Empty ──> Ongoing ──> PrepareCommit ──> CompleteCommit ──> Ongoing | Empty
                  └─────> PrepareAbort  ──> CompleteAbort  ──> Ongoing | Empty

A transition is a function from a `Transaction` to the next one; it takes effect when its record is replayed.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

TopicPartition = tuple[str, int]

NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1
MAX_EPOCH = 0x7FFF
LAST_CLIENT_EPOCH = MAX_EPOCH - 1
"""The highest epoch for clients: the coordinator needs one more to fence them."""

TV_0, TV_2 = 0, 2
"""The transaction version of a client: with version 2 each transaction has its own epoch (KIP-890)."""


class State(IntEnum):
    """The numbers are those in the log. Dead (being expired) and PrepareEpochFence (being fenced) are never
    visible, because they last only for one step here, but ListTransactions accepts their names as filters."""

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
"""No transaction is open: the next one can begin, a producer can get a new epoch, the id can expire."""


class Transaction(NamedTuple):
    """The state of a transactional id, as in the log."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    last_update_ms: int = NO_TIMESTAMP
    start_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID  # if the end of this transaction exhausts the epochs
    client_version: int = TV_0

    @property
    def exhausted(self) -> bool:
        """Whether the client has the last usable epoch of this producer id."""
        return self.producer_epoch >= LAST_CLIENT_EPOCH

    @property
    def committing(self) -> bool:
        return self.state == State.PREPARE_COMMIT

    @property
    def successor(self) -> tuple[int, int]:
        """The producer id and epoch of the client after the end of this transaction."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch


def initialized(transaction: Transaction, epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
    """The producer has a new epoch and no open transaction."""
    return Transaction(
        transaction.producer_id,
        epoch,
        timeout_ms,
        last_update_ms=now_ms,
        previous_producer_id=transaction.previous_producer_id,
    )


def rotated(transaction: Transaction, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """The producer has a new producer id, because the epochs of the old one are exhausted."""
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
    """The commit or abort is decided; the markers have the epoch of this state."""
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
