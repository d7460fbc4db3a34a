"""What the transaction coordinator does to the world: markers into partitions, producer ids from blocks.

And what the rest of the broker asks it: whether a partition is in a producer's transaction (KIP-890).
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.broker.coordination import InternalTopic, ShardHost
from penstock.coordinator import Producer
from penstock.errors import (
    ApiError,
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    NotCoordinator,
    NotEnoughReplicas,
    ProducerFenced,
)
from penstock.log.partition_log import AppendInfo
from penstock.replication.delayed import Key
from penstock.replication.partition import Partition
from penstock.replication.producing import ProduceWait
from penstock.transactions.settings import TransactionSettings
from penstock.transactions.shard import TransactionShard, WriteMarkers
from penstock.transactions.state import TV_2
from penstock.wire.produce import ProduceRequest
from penstock.wire.records import HEADER_SIZE, control_marker

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

TRANSACTION_STATE = "__transaction_state"
CONSUMER_OFFSETS = "__consumer_offsets"

_PRODUCE_KNOWS_ABORTABLE, _PRODUCE_ADDS = 11, 12
_PRODUCER = struct.Struct(">qh")
_PRODUCER_AT = 43  # in the header of a batch
_IDS_AT_HAND = 32
_MARKERS_TIMEOUT_MS = 30_000
_NONE_REFUSED: Mapping[Key, ApiError] = {}

log = logging.getLogger(__name__)


class ReadyProducerIds:
    """Some producer ids at hand, for a machine that cannot wait for the next block."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ready: deque[int] = deque()
        self._filling: asyncio.Task[None] | None = None

    def take(self) -> int | None:
        if len(self._ready) <= _IDS_AT_HAND // 2:
            self._fill()
        return self._ready.popleft() if self._ready else None

    async def filled(self) -> None:
        """When this returns there is one at hand."""
        while not self._ready:
            await asyncio.shield(self._fill())

    def _fill(self) -> asyncio.Task[None]:
        if self._filling is None:
            self._filling = self._broker.loop.create_task(self._refill())
            self._filling.add_done_callback(self._filled)
        return self._filling

    async def _refill(self) -> None:
        while len(self._ready) < _IDS_AT_HAND:
            self._ready.append(await self._broker.producer_ids.next())

    def _filled(self, task: asyncio.Task[None]) -> None:
        self._filling = None
        if not task.cancelled() and task.exception() is not None:
            log.error("no producer ids: %s", task.exception())

    def close(self) -> None:
        if self._filling is not None:
            self._filling.cancel()


class TransactionHost(ShardHost[TransactionShard]):
    """The shards of `__transaction_state` that this broker leads, and the writing of their markers."""

    def __init__(self, broker: Broker) -> None:
        config = broker.config
        self.producer_ids = ReadyProducerIds(broker)
        topic = InternalTopic(
            TRANSACTION_STATE,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
        super().__init__(broker, topic, self._make, self._write_markers)

    def _make(self, index: int, leader_epoch: int) -> TransactionShard:
        settings = TransactionSettings.of(self._broker.config)
        return TransactionShard(settings, leader_epoch, self.producer_ids.take)

    def close(self) -> None:
        self.producer_ids.close()
        super().close()

    def _write_markers(self, shard: TransactionShard, markers: WriteMarkers) -> None:
        """Where a partition cannot be reached now, the shard asks again."""
        if not shard.wants(markers):
            return  # the decision could not be written
        broker = self._broker
        producer = Producer(markers.producer_id, markers.producer_epoch)
        batch = marker_batch(broker, producer, markers.commit, markers.coordinator_epoch)
        written: set[Key] = set()
        behind: dict[Key, tuple[Partition, int]] = {}
        for key in markers.partitions:
            partition = broker.partitions.get(key)
            if partition is None:
                if not _exists(broker, key):
                    written.add(key)  # deleted: nothing is left to be marked
                continue
            try:
                info = append_marker(broker, partition, batch, producer, markers.commit)
            except InvalidProducerEpoch as error:
                # The partition has records of a newer epoch: this transaction has ended there.
                log.warning("%s-%d needs no marker of %s: %s", *key, markers.transactional_id, error)
                written.add(key)
            except ApiError as error:
                log.warning("%s-%d has no marker of %s yet: %s", *key, markers.transactional_id, error)
            else:
                if partition.is_replicated(info.last_offset):
                    written.add(key)
                else:
                    behind[key] = (partition, info.last_offset)
        if written or not markers.partitions:
            self._report(markers, written)
        if behind:
            sent = set(behind)
            wait = ProduceWait(behind, lambda missing: self._report(markers, sent - missing))
            broker.delayed.watch(wait, list(behind), _MARKERS_TIMEOUT_MS)

    def _report(self, markers: WriteMarkers, written: set[Key]) -> None:
        try:
            answer = self.call(
                markers.transactional_id,
                lambda shard, token, now: shard.markers_written(markers, written, token, now),
            )
        except ApiError as error:
            log.info("%s: %s", markers.transactional_id, error)
            return
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(_read)


def _read(future: asyncio.Future[Any]) -> None:
    """Nobody waits for this answer; a failure has been logged where it happened."""
    if not future.cancelled():
        future.exception()


def _exists(broker: Broker, key: Key) -> bool:
    topic = broker.image.topics.get(key[0])
    return topic is not None and key[1] < len(topic.partitions)


def marker_batch(broker: Broker, producer: Producer, commit: bool, coordinator_epoch: int) -> bytearray:
    now = broker.clock.now_ms()
    return bytearray(control_marker("commit" if commit else "abort", coordinator_epoch, *producer, now))


def append_marker(
    broker: Broker, partition: Partition, batch: bytearray, producer: Producer, commit: bool
) -> AppendInfo:
    """End the producer's transaction in this partition. The batch can be used for the next one too."""
    info = partition.append(batch, 0, len(batch), -1, origin="coordinator")
    topic, index = partition.key
    if topic == CONSUMER_OFFSETS:
        broker.groups.on_marker(index, producer, commit)
    return info


def refused_partitions(
    broker: Broker, request: ProduceRequest, buf: bytearray, version: int
) -> Mapping[Key, ApiError]:
    """The partitions of a produce with a transactional id that are refused before anything is written."""
    producers: set[Producer] = set()
    keys: list[Key] = []
    for name, topic_id, partitions in request.topics:
        if topic_id is not None:
            topic = broker.image.topics_by_id.get(topic_id)
            name = None if topic is None else topic.name
        for index, start, stop in partitions:
            if name is None or not is_transactional(buf, start, stop):
                continue
            partition = broker.partitions.get((name, index))
            if partition is not None and partition.is_leader:
                keys.append(partition.key)
                producers.add(Producer(*_PRODUCER.unpack_from(buf, start + _PRODUCER_AT)))
    if not keys:
        return _NONE_REFUSED
    if len(producers) > 1:
        return dict.fromkeys(keys, InvalidProducerIdMapping("one transaction, but more than one producer id"))
    return verify_or_add(
        broker,
        request.transactional_id or "",
        producers.pop(),
        keys,
        add=version >= _PRODUCE_ADDS,
        abortable=version >= _PRODUCE_KNOWS_ABORTABLE,
    )


def is_transactional(buf: bytearray, start: int, stop: int) -> bool:
    """Whether the bytes are a batch of format 2 with the bit for transactions."""
    return stop - start >= HEADER_SIZE and buf[start + 16] == 2 and buf[start + 22] & 0x10 != 0


def verify_or_add(
    broker: Broker,
    transactional_id: str,
    producer: Producer,
    partitions: Iterable[Key],
    *,
    add: bool,
    abortable: bool,
) -> Mapping[Key, ApiError]:
    """Which of these partitions the producer may not write to in a transaction, and why.

    With `add` (transaction version 2) they become part of the transaction; otherwise they must be part of it.
    A client that knows TRANSACTION_ABORTABLE (`abortable`) is told so where they are not.
    """
    unknown = [key for key in partitions if not _has_open(broker.partitions.get(key), producer)]
    if not unknown or not (add or broker.config.transaction_partition_verification_enable):
        return _NONE_REFUSED
    try:
        host = broker.transactions
        if not add:
            refused = host.shard_for(transactional_id).verify_partitions(transactional_id, *producer, unknown)
            if abortable:
                return refused
            return {key: InvalidTxnState(error.message) for key, error in refused.items()}
        answer = host.call(
            transactional_id,
            lambda shard, token, now: shard.add_partitions(
                transactional_id, *producer, frozenset(unknown), TV_2, token, now
            ),
        )
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(_read)
            raise CoordinatorLoadInProgress("the transaction is not replicated yet")
    except ApiError as error:
        failure = _for_producers(error, add)
        return dict.fromkeys(unknown, failure)
    return _NONE_REFUSED


def _has_open(partition: Partition | None, producer: Producer) -> bool:
    """Whether the partition has records of the producer's transaction already."""
    if partition is None:
        return False
    entry = partition.log.producers.producers.get(producer.producer_id)
    return entry is not None and entry.txn_first_offset is not None and entry.epoch == producer.epoch


def _for_producers(error: ApiError, knows_concurrent: bool) -> ApiError:
    """The coordinator's error as the one that producers expect from a partition."""
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(error.message)
    if isinstance(error, ConcurrentTransactions) and knows_concurrent:
        return error
    if isinstance(
        error, ConcurrentTransactions | CoordinatorLoadInProgress | CoordinatorNotAvailable | NotCoordinator
    ):
        # Kafka's choice: old clients try again without asking for metadata first.
        return NotEnoughReplicas(f"the transaction cannot be verified now: {error}")
    return error
