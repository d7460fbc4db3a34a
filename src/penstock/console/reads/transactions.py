"""Transactions: the list, one with its partitions, hanging ones, and ending them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.admin import transactions as admin
from penstock.admin.cluster import Cluster
from penstock.admin.transactions import (
    UNDER_WAY,
    DescribedTransaction,
    ListedTransaction,
    OpenTransaction,
    describe_transaction,
    find_transaction,
    list_transactions,
)
from penstock.admin.wire_client import WireCluster, failure
from penstock.errors import ApiError, TransactionalIdNotFound

MOST_DESCRIBED = 200
"""The maximum number of open transactions whose age and partitions the list requests: each costs a
request.
"""


@dataclass(frozen=True, slots=True)
class TransactionRow:
    id: str
    state: str
    producer_id: int
    coordinator: str
    seconds: float | None
    """How long it has been open; None if it is not open."""
    partitions: int | None


@dataclass(frozen=True, slots=True)
class TransactionPage:
    rows: list[TransactionRow]
    total: int


def page_of_transactions(
    cluster: Cluster,
    *,
    text: str = "",
    sort: str = "seconds",
    descending: bool = True,
    first: int = 0,
    count: int = 50,
    now: Callable[[], float] = time.time,
) -> TransactionPage:
    """Transactional ids that contain `text`; by age, the longest open come first."""
    with WireCluster(cluster) as wire:
        try:
            listed = [
                each for each in list_transactions(wire) if text.lower() in each.transactional_id.lower()
            ]
            opened = [each.transactional_id for each in listed if each.state in UNDER_WAY]
            described = {id: _describe(wire, id) for id in opened[:MOST_DESCRIBED]}
        except ApiError as error:
            raise failure(error, "cannot list transactions") from error
    rows = [_row(each, described.get(each.transactional_id), now()) for each in listed]
    rows.sort(key=lambda row: row.id)
    rows.sort(key=lambda row: _sort_key(row, sort), reverse=descending)
    return TransactionPage(rows[first : first + count], len(rows))


def _describe(wire: WireCluster, transactional_id: str) -> DescribedTransaction | None:
    try:
        return describe_transaction(wire, transactional_id)
    except TransactionalIdNotFound:
        return None  # it has expired in the meantime


def _row(listed: ListedTransaction, found: DescribedTransaction | None, now: float) -> TransactionRow:
    return TransactionRow(
        listed.transactional_id,
        listed.state,
        listed.producer_id,
        listed.coordinator,
        None if found is None else age_of(found, now),
        None if found is None else len(found.partitions),
    )


def _sort_key(row: TransactionRow, sort: str) -> tuple[float | str, ...]:
    if sort == "seconds":
        return (-1.0 if row.seconds is None else row.seconds,)
    if sort == "partitions":
        return (row.partitions or 0,)
    if sort == "producer_id":
        return (row.producer_id,)
    return (row.state if sort == "state" else row.coordinator if sort == "coordinator" else row.id,)


def age_of(transaction: DescribedTransaction, now: float) -> float | None:
    """Seconds since the transaction began; None if none is open."""
    if not transaction.under_way or transaction.start_ms < 0:
        return None
    return max(0.0, now - transaction.start_ms / 1000)


def transaction_of(cluster: Cluster, transactional_id: str) -> DescribedTransaction:
    """Raises CommandFailed if the id does not exist."""
    with WireCluster(cluster) as wire:
        return find_transaction(wire, transactional_id)


def hanging(
    cluster: Cluster, older_seconds: float, now: Callable[[], float] = time.time
) -> list[OpenTransaction]:
    """Transactions that are open in a partition although no coordinator will end them; with the age of the
    last record.
    """
    with WireCluster(cluster) as wire:
        return admin.find_hanging(wire, None, int((now() - older_seconds) * 1000))


def abort(cluster: Cluster, transactional_id: str) -> None:
    """Fences the producer."""
    with WireCluster(cluster) as wire:
        admin.abort_transaction(wire, transactional_id)


def abort_hanging(cluster: Cluster, which: OpenTransaction) -> None:
    with WireCluster(cluster) as wire:
        admin.abort_hanging(wire, which.topic, which.partition, start_offset=which.start_offset)
