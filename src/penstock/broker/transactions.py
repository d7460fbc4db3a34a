"""What the transaction coordinator does to the world: markers into partitions, producer ids from blocks.

And what the rest of the broker asks it: whether a partition is in a producer's transaction (KIP-890).
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.broker.coordination import InternalTopic, ShardHost
from penstock.broker.peers import PeerUnavailable
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
    TransactionAbortable,
    error_for_code,
)
from penstock.log.partition_log import AppendInfo
from penstock.metadata.image import NO_LEADER
from penstock.replication.delayed import Key
from penstock.replication.partition import Partition
from penstock.replication.producing import ProduceWait
from penstock.transactions.settings import TransactionSettings
from penstock.transactions.shard import TransactionShard, WriteMarkers
from penstock.transactions.state import TV_2
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from penstock.wire.produce import ProduceRequest
from penstock.wire.records import HEADER_SIZE, control_marker

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

TRANSACTION_STATE = "__transaction_state"
CONSUMER_OFFSETS = "__consumer_offsets"

_PRODUCE_KNOWS_ABORTABLE, _PRODUCE_ADDS = 11, 12
_ADD_PARTITIONS_VERSION = 5
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
        self._sending: set[asyncio.Task[None]] = set()
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
        for task in self._sending:
            task.cancel()
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
        elsewhere: dict[int, list[Key]] = {}
        for key in markers.partitions:
            partition = broker.partitions.get(key)
            if partition is None or not partition.is_leader:
                image = broker.image.partition(*key)
                if image is None:
                    written.add(key)  # deleted: nothing is left to be marked
                elif image.leader not in (NO_LEADER, broker.id):
                    elsewhere.setdefault(image.leader, []).append(key)
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
        for leader, keys in elsewhere.items():
            task = broker.loop.create_task(self._send_markers(leader, markers, keys))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send_markers(self, leader: int, markers: WriteMarkers, keys: list[Key]) -> None:
        """To the broker that leads these partitions; what it did not write, the shard asks for again."""
        try:
            written = await write_markers_at(self._broker, leader, markers, keys)
        except PeerUnavailable as error:
            log.info("%s has no markers on it yet: %s", markers.transactional_id, error)
            return
        if written:
            self._report(markers, written)

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


class Verification(NamedTuple):
    """What a produce or a commit in a transaction has to ask the coordinator before anything is written."""

    transactional_id: str
    producer: Producer
    partitions: list[Key]
    add: bool
    abortable: bool


def needed_verification(
    broker: Broker, request: ProduceRequest, buf: bytearray, version: int
) -> Verification | Mapping[Key, ApiError]:
    """For a produce with a transactional id: what is to be verified, or what is refused at once."""
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
    add, abortable = version >= _PRODUCE_ADDS, version >= _PRODUCE_KNOWS_ABORTABLE
    asked = Verification(request.transactional_id or "", producers.pop(), keys, add, abortable)
    return unverified(broker, asked)


def unverified(broker: Broker, asked: Verification) -> Verification | Mapping[Key, ApiError]:
    """Without the partitions that have records of the transaction already."""
    unknown = [key for key in asked.partitions if not _has_open(broker.partitions.get(key), asked.producer)]
    if not unknown or not (asked.add or broker.config.transaction_partition_verification_enable):
        return _NONE_REFUSED
    return asked._replace(partitions=unknown)


def is_transactional(buf: bytearray, start: int, stop: int) -> bool:
    """Whether the bytes are a batch of format 2 with the bit for transactions."""
    return stop - start >= HEADER_SIZE and buf[start + 16] == 2 and buf[start + 22] & 0x10 != 0


def verify(
    broker: Broker, asked: Verification
) -> Mapping[Key, ApiError] | Coroutine[Any, Any, Mapping[Key, ApiError]]:
    """Which of these partitions the producer may not write to in a transaction, and why.

    With `add` (transaction version 2) they become part of the transaction; otherwise they must be part of it.
    A client that knows TRANSACTION_ABORTABLE (`abortable`) is told so where they are not. Where another
    broker coordinates the transaction, that one is asked (KIP-890).
    """
    host = broker.transactions
    transactional_id, producer = asked.transactional_id, asked.producer
    try:
        coordinator = host.leader_of(transactional_id)
        if coordinator != broker.id:
            return _verify_elsewhere(broker, coordinator, asked)
        if not asked.add:
            shard = host.shard_for(transactional_id)
            refused = shard.verify_partitions(transactional_id, *producer, asked.partitions)
            return _as_told(refused, asked)
        answer = host.call(
            transactional_id,
            lambda shard, token, now: shard.add_partitions(
                transactional_id, *producer, frozenset(asked.partitions), TV_2, token, now
            ),
        )
    except ApiError as error:
        return _all_refused(asked, error)
    if isinstance(answer, asyncio.Future):
        return _added(asked, answer)
    return _NONE_REFUSED


async def _added(asked: Verification, answer: asyncio.Future[Message]) -> Mapping[Key, ApiError]:
    try:
        await answer
    except ApiError as error:
        return _all_refused(asked, error)
    return _NONE_REFUSED


async def _verify_elsewhere(broker: Broker, coordinator: int, asked: Verification) -> Mapping[Key, ApiError]:
    topics: dict[str, list[int]] = {}
    for name, index in asked.partitions:
        topics.setdefault(name, []).append(index)
    request = Message(
        transactions=[
            Message(
                transactional_id=asked.transactional_id,
                producer_id=asked.producer.producer_id,
                producer_epoch=asked.producer.epoch,
                verify_only=not asked.add,
                topics=[Message(name=name, partitions=indexes) for name, indexes in topics.items()],
            )
        ]
    )
    try:
        answer = await broker.peers.call(
            coordinator, ApiKey.ADD_PARTITIONS_TO_TXN, _ADD_PARTITIONS_VERSION, request
        )
    except PeerUnavailable as error:
        return _all_refused(asked, CoordinatorNotAvailable(str(error)))
    if answer.error_code:
        return _all_refused(asked, error_for_code(answer.error_code)())
    refused: dict[Key, ApiError] = {}
    for topic in answer.results_by_transaction[0].topic_results:
        for result in topic.results_by_partition:
            if result.partition_error_code:
                found = error_for_code(result.partition_error_code)()
                refused[topic.name, result.partition_index] = _for_producers(found, asked.add)
    return refused if asked.add else _as_told(refused, asked)


def _as_told(refused: Mapping[Key, ApiError], asked: Verification) -> Mapping[Key, ApiError]:
    if asked.abortable:
        return refused
    return {
        key: InvalidTxnState(error.message) if isinstance(error, TransactionAbortable) else error
        for key, error in refused.items()
    }


def _all_refused(asked: Verification, error: ApiError) -> Mapping[Key, ApiError]:
    return dict.fromkeys(asked.partitions, _for_producers(error, asked.add))


async def write_markers_at(
    broker: Broker, leader: int, markers: WriteMarkers, keys: Iterable[Key]
) -> set[Key]:
    """The partitions that have the marker now, or need none."""
    topics: dict[str, list[int]] = {}
    for name, index in keys:
        topics.setdefault(name, []).append(index)
    request = Message(
        markers=[
            Message(
                producer_id=markers.producer_id,
                producer_epoch=markers.producer_epoch,
                transaction_result=markers.commit,
                topics=[Message(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
                coordinator_epoch=markers.coordinator_epoch,
                transaction_version=0,
            )
        ]
    )
    answer = await broker.peers.call(
        leader, ApiKey.WRITE_TXN_MARKERS, 1, request, timeout_ms=_MARKERS_TIMEOUT_MS + 5_000
    )
    return {
        (topic.name, result.partition_index)
        for topic in answer.markers[0].topics
        for result in topic.partitions
        # Records of a newer epoch: the transaction has ended there.
        if result.error_code in (0, InvalidProducerEpoch.code)
    }


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
