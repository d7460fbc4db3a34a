"""Whether a client may end its transaction, and what follows: the rules of EndTxn.

With transaction version 2 (KIP-890) the epoch grows with every end. So it separates a retry from the end of
the next transaction, and a marker that comes late cannot end a transaction that it was not meant for.
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
    """What the transaction becomes; `known` itself where it has ended that way already."""
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
    """As `end_v0`. An abort without a transaction is what a client sends that does not know whether any of
    its records arrived: it needs the new epoch, and is complete without markers."""
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
    """Whether the epoch of this client grew by the end that it asks for again."""
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
    """Refuse the next transaction of a client while the markers of its last one are being written.

    With version 2 the client has its next epoch, or its next producer id, from the answer to EndTxn, before
    the last transaction is complete. It is to try again; any other error would be fatal for it
    (KAFKA-18464, KAFKA-18660).
    """
    if known.state in PREPARED and client == known.successor:
        raise ConcurrentTransactions("the last transaction is still ending")


def _cannot_end(known: Transaction, client: Producer, commit: bool) -> ApiError:
    if known.state in PREPARED:  # also for the opposite end, which is refused when this one is complete
        return ConcurrentTransactions("the transaction is ending already")
    return InvalidTxnState(
        f"cannot {'commit' if commit else 'abort'} in state {known.state.label}: the transaction has producer"
        f" {known.producer_id} epoch {known.producer_epoch}, the client {client.producer_id} epoch"
        f" {client.epoch}; transaction version {known.client_version}"
    )


def fenced(known: Transaction, epoch: int) -> ProducerFenced:
    return ProducerFenced(f"producer {known.producer_id} has epoch {known.producer_epoch}, not {epoch}")
