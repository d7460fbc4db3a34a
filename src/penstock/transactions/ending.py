"""The rules of EndTxn: whether a client may end its transaction, and the resulting state.

With transaction version 2 (KIP-890) every end increments the epoch. So a retry can be told apart from the end
of the next transaction, and a late marker cannot end a transaction to which it does not belong.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.coordinator import Producer
from penstock.errors import (
    ApiError,
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
)
from penstock.transactions.state import (
    COMPLETE,
    LAST_CLIENT_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    TV_0,
    TV_2,
    State,
    Transaction,
    completed,
    prepared,
)


def end_v0(known: Transaction, client: Producer, commit: bool, now_ms: int) -> Transaction:
    """The transaction after EndTxn; `known` itself if it has already ended that way."""
    if known.producer_id != client.producer_id:
        raise InvalidProducerIdMapping(f"the producer is {known.producer_id}, not {client.producer_id}")
    if known.producer_epoch != client.epoch:
        raise fenced(known, client.epoch)
    if known.state == State.ONGOING:
        return prepared(known, commit, bump=False, client_version=TV_0, now_ms=now_ms)
    if known.state == _done(commit):
        return known
    raise _cannot_end(known, client, commit)


def end_v2(
    known: Transaction, client: Producer, commit: bool, new_producer_id: Callable[[], int], now_ms: int
) -> Transaction:
    """Like `end_v0`, for transaction version 2. A client that does not know whether any of its records
    arrived may abort without an open transaction: it gets a new epoch, and the abort completes without
    markers."""
    check_not_ending(known, client)
    retry = _is_retry(known, client)
    if known.producer_id != client.producer_id and not retry:
        raise InvalidProducerIdMapping(f"the producer is {known.producer_id}, not {client.producer_id}")
    if retry:
        if known.state == _done(commit):
            return known
        raise _cannot_end(known, client, commit)
    if known.producer_epoch != client.epoch:
        raise fenced(known, client.epoch)
    ongoing = known.state == State.ONGOING
    if commit and not ongoing:
        raise _cannot_end(known, client, commit)
    following = new_producer_id() if known.exhausted else NO_PRODUCER_ID
    new = prepared(known, commit, bump=True, client_version=TV_2, now_ms=now_ms, next_producer_id=following)
    return new if ongoing else completed(new._replace(start_ms=now_ms, partitions=frozenset()), now_ms)


def _is_retry(known: Transaction, client: Producer) -> bool:
    """Whether the client repeats an EndTxn request that has already incremented its epoch."""
    if known.client_version < TV_2 or known.state not in PREPARED | COMPLETE:
        return False
    if client == (known.producer_id, known.producer_epoch - 1):
        return True
    return (
        known.state in COMPLETE
        and known.producer_epoch == 0
        and client == (known.previous_producer_id, LAST_CLIENT_EPOCH)
    )


def _done(commit: bool) -> State:
    return State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT


def check_not_ending(known: Transaction, client: Producer) -> None:
    """Reject a client's next transaction while the markers of its last one are being written.

    With version 2 the client gets its next epoch or producer id with the EndTxn response, before the last
    transaction is complete. The error is retriable; any other error would be fatal for the client
    (KAFKA-18464, KAFKA-18660).
    """
    if known.state in PREPARED and client == known.successor:
        raise ConcurrentTransactions("the last transaction is still ending")


def _cannot_end(known: Transaction, client: Producer, commit: bool) -> ApiError:
    if known.state in PREPARED:  # also for the opposite end, which is rejected when this one is complete
        return ConcurrentTransactions("the transaction is ending already")
    return InvalidTxnState(
        f"cannot {'commit' if commit else 'abort'} in state {known.state.label}: the transaction has producer"
        f" {known.producer_id} epoch {known.producer_epoch}, the client {client.producer_id} epoch"
        f" {client.epoch}; transaction version {known.client_version}"
    )


def fenced(known: Transaction, epoch: int) -> ProducerFenced:
    return ProducerFenced(f"producer {known.producer_id} has epoch {known.producer_epoch}, not {epoch}")
