"""A coordinator without a broker: a log of records, partitions that know markers, and crashes on demand.

It keeps the promises of the real host: records are replayed when they are in the log, and only then is
anything answered. Partitions follow the rules of Kafka's log (KIP-98): epochs, sequences, markers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.coordinator import Outcome, Reply, StateRecord
from penstock.errors import (
    ApiError,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from penstock.transactions.records import decode_key, decode_value
from penstock.transactions.settings import TransactionSettings
from penstock.transactions.shard import TransactionShard, WriteMarkers
from penstock.transactions.state import TopicPartition, Transaction
from penstock.wire.message import Message


class Entry(NamedTuple):
    """A record or a marker in a partition."""

    kind: str  # "data", "commit" or "abort"
    producer_id: int
    epoch: int
    value: Any = None


@dataclass(slots=True)
class _Producer:
    epoch: int = -1
    sequence: int = -1
    coordinator_epoch: int = -1
    open: bool = False


@dataclass(slots=True)
class PartitionModel:
    """What a partition's log holds, and what it knows of its producers."""

    entries: list[Entry] = field(default_factory=list)
    producers: dict[int, _Producer] = field(default_factory=dict)

    def append(self, producer_id: int, epoch: int, sequence: int, value: Any) -> None:
        producer = self.producers.setdefault(producer_id, _Producer())
        if epoch < producer.epoch:
            raise InvalidProducerEpoch(f"{epoch} after {producer.epoch}")
        if epoch > producer.epoch:
            producer.epoch, producer.sequence = epoch, -1
        if sequence <= producer.sequence:
            return  # a duplicate
        if sequence != producer.sequence + 1:
            raise OutOfOrderSequenceNumber(f"{sequence} after {producer.sequence}")
        producer.sequence = sequence
        producer.open = True
        self.entries.append(Entry("data", producer_id, epoch, value))

    def has_open(self, producer_id: int, epoch: int) -> bool:
        producer = self.producers.get(producer_id)
        return producer is not None and producer.open and producer.epoch == epoch

    def mark(self, markers: WriteMarkers) -> None:
        producer = self.producers.setdefault(markers.producer_id, _Producer())
        if markers.producer_epoch < producer.epoch:
            raise InvalidProducerEpoch(f"{markers.producer_epoch} after {producer.epoch}")
        if markers.coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(f"{markers.coordinator_epoch}")
        if markers.producer_epoch > producer.epoch:
            producer.epoch, producer.sequence = markers.producer_epoch, -1
        producer.coordinator_epoch = markers.coordinator_epoch
        producer.open = False
        kind = "commit" if markers.commit else "abort"
        self.entries.append(Entry(kind, markers.producer_id, markers.producer_epoch))

    def committed(self) -> list[Any]:
        """What a reader with read_committed sees once nothing is open."""
        decided: dict[int, str] = {}
        seen: list[Any] = []
        for entry in reversed(self.entries):
            if entry.kind != "data":
                decided[entry.producer_id] = entry.kind
            elif decided.get(entry.producer_id) == "commit":
                seen.append(entry.value)
        return seen[::-1]


class TxnHost:
    """A TransactionShard over a list of records. Markers are written at once, unless `defer` takes them."""

    def __init__(
        self,
        partitions: Iterable[TopicPartition] = (),
        settings: TransactionSettings | None = None,
        defer: Callable[[WriteMarkers], None] | None = None,
    ) -> None:
        self.settings = settings or TransactionSettings()
        self.partitions = {partition: PartitionModel() for partition in partitions}
        self.log: list[StateRecord] = []
        self.defer = defer
        self.now = 1_000_000
        self.next_id = 0
        self.ids_left = 1 << 30
        self.epoch = -1
        self.fail_appends = 0
        self.on_append: Callable[[str, Transaction | None], None] = lambda key, value: None
        self.restart()

    def _take(self) -> int | None:
        if self.ids_left <= 0:
            return None
        self.ids_left -= 1
        self.next_id += 1
        return self.next_id

    def restart(self) -> None:
        """Another broker takes over: only what is in the log is known."""
        self.epoch += 1
        self.shard = TransactionShard(self.settings, self.epoch, self._take)
        for record in self.log:
            self.shard.replay(record, timestamp=self.now, producer=None)
        self.apply(self.shard.on_time(self.now))

    def advance(self, ms: int) -> None:
        self.now += ms
        self.tick()

    def tick(self) -> None:
        deadline = self.shard.next_deadline()
        while deadline is not None and deadline <= self.now:
            self.apply(self.shard.on_time(self.now))
            deadline = self.shard.next_deadline()

    def call(self, step: Callable[[TransactionShard, Any, int], Outcome]) -> Message:
        """The answer; raises the error. Everything here answers at once."""
        token = object()
        replies = self.apply(step(self.shard, token, self.now))
        [answer] = [reply.response for reply in replies if reply.token is token]
        if isinstance(answer, ApiError):
            raise answer
        return answer

    def apply(self, outcome: Outcome) -> list[Reply]:
        replies = outcome.replies
        if outcome.records and self.fail_appends > 0:
            self.fail_appends -= 1
            replies = [Reply(reply.token, CoordinatorNotAvailable()) for reply in replies]
        else:
            for record in outcome.records:
                self.log.append(record)
                key = decode_key(record.key)
                assert key is not None
                self.on_append(key, None if record.value is None else decode_value(record.value))
                self.shard.replay(record, timestamp=self.now, producer=None)
        for action in outcome.actions:
            if self.defer is not None:
                self.defer(action)
            else:
                self.write(action, action.partitions)
        return replies

    def write(self, markers: WriteMarkers, partitions: Iterable[TopicPartition]) -> None:
        """As the real host: only what the log has decided is written, and then reported."""
        if not self.shard.wants(markers):
            return
        written = []
        for partition in partitions:
            if partition in self.partitions:
                self.partitions[partition].mark(markers)
            written.append(partition)
        self.apply(self.shard.markers_written(markers, written, self.now))

    # requests, as the handlers send them

    def init(
        self, transactional_id: str, timeout_ms: int = 60_000, producer: tuple[int, int] = (-1, -1)
    ) -> tuple[int, int]:
        request = Message(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
        )
        answer = self.call(lambda shard, token, now: shard.init_producer_id(request, token, now))
        return answer.producer_id, answer.producer_epoch

    def add(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        *partitions: TopicPartition,
        client_version: int = 0,
    ) -> None:
        self.call(
            lambda shard, token, now: shard.add_partitions(
                transactional_id, *producer, frozenset(partitions), client_version, token, now
            )
        )

    def end(
        self, transactional_id: str, producer: tuple[int, int], commit: bool, version: int = 4
    ) -> tuple[int, int]:
        request = Message(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commit,
        )
        answer = self.call(lambda shard, token, now: shard.end_txn(request, version, token, now))
        return answer.producer_id, answer.producer_epoch

    def verify(
        self, transactional_id: str, producer: tuple[int, int], *partitions: TopicPartition
    ) -> dict[TopicPartition, ApiError]:
        refused: dict[TopicPartition, ApiError] = self.call(
            lambda shard, token, now: shard.verify_partitions(transactional_id, *producer, partitions, token)
        ).refused
        return refused

    def produce(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partition: TopicPartition,
        sequence: int,
        value: Any,
        client_version: int = 0,
    ) -> None:
        """A produce as the broker treats it: the partition must be in the transaction, or is added to it."""
        model = self.partitions[partition]
        if not model.has_open(*producer):
            if client_version >= 2:
                self.add(transactional_id, producer, partition, client_version=client_version)
            else:
                refused = self.verify(transactional_id, producer, partition)
                if refused:
                    raise refused[partition]
        model.append(*producer, sequence, value)
