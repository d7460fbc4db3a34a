"""What DescribeTransactions and ListTransactions return for the transactional ids of a shard (KIP-664)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from penstock.errors import TransactionalIdNotFound
from penstock.transactions.state import State, Transaction
from penstock.wire.message import Message


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of ListTransactions; an empty collection, a negative duration or no `matches` excludes
    nothing."""

    states: Collection[State] = ()
    producer_ids: Collection[int] = ()
    longer_than_ms: int = -1
    matches: Callable[[str], bool] | None = None

    def admit(self, transactional_id: str, transaction: Transaction, now_ms: int) -> bool:
        if self.states and transaction.state not in self.states:
            return False
        if self.producer_ids and transaction.producer_id not in self.producer_ids:
            return False
        if self.longer_than_ms >= 0 and now_ms - transaction.start_ms <= self.longer_than_ms:
            return False
        return self.matches is None or self.matches(transactional_id)


def listed(transactions: Mapping[str, Transaction], filters: Filters, now_ms: int) -> Iterator[Message]:
    for transactional_id, transaction in transactions.items():
        if filters.admit(transactional_id, transaction, now_ms):
            yield Message(
                transactional_id=transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.label,
            )


def described(transactions: Mapping[str, Transaction], transactional_id: str) -> Message:
    transaction = transactions.get(transactional_id)
    if transaction is None:
        raise TransactionalIdNotFound(f"{transactional_id} is not known")
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(partition)
    return Message(
        error_code=0,
        transactional_id=transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[Message(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )
