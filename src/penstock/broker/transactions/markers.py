"""Transaction markers: written to the partitions that this broker leads, sent to the leaders of the others.

Promises: a transaction never has two markers in flight to the same partition; a duplicate or late marker ends
no transaction. With transaction version 2 the epoch of the marker identifies its transaction. Before that
version the producer keeps its epoch: so a marker is sent to another broker only if no earlier request can
still arrive, and requests of a replaced connection are not handled. If a partition cannot be reached, the
coordinator's shard retries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.broker.transactions.peer_batches import PeerBatches
from penstock.coordinator import Producer
from penstock.errors import (
    ApiError,
    InvalidProducerEpoch,
    PeerUnavailable,
    TransactionCoordinatorFenced,
    UnknownServerError,
    error_for_code,
)
from penstock.metadata.image import NO_LEADER
from penstock.metadata.store import StoreError
from penstock.replication.delayed import Key
from penstock.replication.partition import Partition
from penstock.replication.producing import ProduceWait
from penstock.transactions.shard import WriteMarkers
from penstock.transactions.state import TV_2
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.records import control_marker
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import (
        HasClock,
        HasController,
        HasDelayed,
        HasGroups,
        HasId,
        HasImage,
        HasLoop,
        HasPartitions,
        HasPeers,
    )

    class MarkersParts(
        HasClock,
        HasController,
        HasDelayed,
        HasGroups,
        HasId,
        HasImage,
        HasLoop,
        HasPartitions,
        HasPeers,
        Protocol,
    ): ...


CONSUMER_OFFSETS = "__consumer_offsets"
MARKERS_TIMEOUT_MS = 30_000
_WRITE_MARKERS_VERSION = 2
_PURPOSE = "markers"

log = logging.getLogger(__name__)


class Marker(NamedTuple):
    producer: Producer
    commit: bool
    coordinator_epoch: int
    transaction_version: int


def write_marker(broker: MarkersParts, partition: Partition, marker: Marker) -> int:
    """End the producer's transaction in this partition. Returns the offset that must be replicated before the
    marker is durable. Raises InvalidProducerEpoch if the partition already has a newer transaction, and
    TransactionCoordinatorFenced if another coordinator has replaced the sender.

    Revokes the verification guards of the transaction that ends, and no others.
    """
    partition.check_leader()
    producer_id, epoch = marker.producer
    producers = partition.log.producers
    entry = producers.producers.get(producer_id)
    if entry is not None:
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"the marker has coordinator epoch {marker.coordinator_epoch}, the last one"
                f" {entry.coordinator_epoch}"
            )
        if marker.transaction_version >= TV_2 and entry.txn_first_offset is not None and entry.epoch >= epoch:
            raise InvalidProducerEpoch(f"the transaction has epoch {entry.epoch}, the marker {epoch}")
    if producers.has_marker(producer_id, epoch, marker.coordinator_epoch):
        # A repeated request: the marker exists, but may not be replicated yet.
        last_offset = partition.log.log_end_offset - 1
    else:
        last_offset = _append_marker(broker, partition, marker)
    producers.stop_verifying(producer_id, epoch, marker.transaction_version)
    return last_offset


def _append_marker(broker: MarkersParts, partition: Partition, marker: Marker) -> int:
    batch = bytearray(
        control_marker(
            "commit" if marker.commit else "abort",
            marker.coordinator_epoch,
            *marker.producer,
            broker.clock.now_ms(),
        )
    )
    info = partition.append(batch, 0, len(batch), -1, origin="coordinator")
    topic, index = partition.key
    if topic == CONSUMER_OFFSETS:
        broker.groups.on_marker(index, marker.producer, marker.commit)
    return info.last_offset


class MarkerWriter:
    def __init__(self, broker: MarkersParts, report: Callable[[WriteMarkers, set[Key]], None]) -> None:
        """`report(markers, written)` is called when partitions have their marker, or do not need one."""
        self._broker = broker
        self._report = report
        self._under_way: set[tuple[str, Key]] = set()
        self._unanswered: dict[tuple[str, Key], int] = {}
        """The broker to which a request without a response was sent: the request may still arrive there."""
        self._requests: PeerBatches[Message, dict[Key, int]] = PeerBatches(broker.loop, self._send)
        self._tasks: set[asyncio.Task[None]] = set()

    def write(self, markers: WriteMarkers) -> None:
        broker = self._broker
        marker = _marker(markers)
        written: set[Key] = set()
        behind: dict[Key, tuple[Partition, int]] = {}
        elsewhere: dict[int, list[Key]] = {}
        unknown: list[Key] = []
        for key in markers.partitions:
            slot = (markers.transactional_id, key)
            if slot in self._under_way:
                continue
            leader = self._destination(slot, marker)
            if leader is None:
                unknown.append(key)
            elif leader != broker.id:
                if leader != NO_LEADER:
                    elsewhere.setdefault(leader, []).append(key)
            else:
                self._write_here(markers, key, marker, written, behind)
        if behind:
            self._under_way.update((markers.transactional_id, key) for key in behind)
            self._wait(markers, behind)
        for leader, keys in elsewhere.items():
            self._start(markers, keys, self._deliver(leader, markers, keys))
        if unknown:
            self._start(markers, unknown, self._look_up(markers, unknown))
        if written or not markers.partitions:
            self._report(markers, written)

    def _start(self, markers: WriteMarkers, keys: list[Key], work: Coroutine[Any, Any, None]) -> None:
        self._under_way.update((markers.transactional_id, key) for key in keys)
        task = self._broker.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_up(self, markers: WriteMarkers, keys: list[Key]) -> None:
        """Handles partitions that are missing in the image. Either the image is behind, or they were deleted
        and need no marker: the store, read after the decision, shows which. If it cannot be read, the shard
        retries."""
        try:
            deleted = await self._broker.controller.missing_partitions(keys)
        except StoreError as error:
            log.info("%s has no markers for unknown partitions yet: %s", markers.transactional_id, error)
            return
        finally:
            self._under_way.difference_update((markers.transactional_id, key) for key in keys)
        if deleted:
            self._report(markers, deleted)

    def _destination(self, slot: tuple[str, Key], marker: Marker) -> int | None:
        """The broker to send the marker to; None if the image does not have the partition."""
        broker = self._broker
        sent = self._unanswered.get(slot)
        if sent is not None:
            # A response of the same broker to a later request shows that the earlier one can no longer be
            # handled, even if the broker was restarted meanwhile: we do not know which process received the
            # earlier one.
            if marker.transaction_version < TV_2 and sent in broker.controller.image.brokers:
                return sent
            del self._unanswered[slot]
        key = slot[1]
        partition = broker.partitions.get(key)
        if partition is not None and partition.is_leader:
            return broker.id
        image = broker.image.partition(*key)
        if image is None:
            return None
        return NO_LEADER if image.leader == broker.id else image.leader

    def _write_here(
        self,
        markers: WriteMarkers,
        key: Key,
        marker: Marker,
        written: set[Key],
        behind: dict[Key, tuple[Partition, int]],
    ) -> None:
        partition = self._broker.partitions[key]
        try:
            offset = write_marker(self._broker, partition, marker)
        except InvalidProducerEpoch as error:
            # The partition has records of a newer epoch, so this transaction has ended there.
            log.warning(
                "%s-%d: skipped the transaction marker of %s: %s", *key, markers.transactional_id, error
            )
            written.add(key)
        except ApiError as error:
            log.warning(
                "%s-%d: transaction marker of %s is pending: %s", *key, markers.transactional_id, error
            )
        else:
            if partition.is_replicated(offset):
                written.add(key)
            else:
                behind[key] = (partition, offset)

    def _wait(self, markers: WriteMarkers, behind: dict[Key, tuple[Partition, int]]) -> None:
        """Report the local markers when they are replicated; the shard retries those that are late."""
        keys = list(behind)

        def replicated(missing: set[Key]) -> None:
            self._under_way.difference_update((markers.transactional_id, key) for key in keys)
            if written := set(keys) - missing:
                self._report(markers, written)

        self._broker.delayed.watch(ProduceWait(behind, replicated), keys, MARKERS_TIMEOUT_MS)

    async def _deliver(self, leader: int, markers: WriteMarkers, keys: list[Key]) -> None:
        """Send the markers to the leader of these partitions; the shard retries those that were not
        written."""
        slots = [(markers.transactional_id, key) for key in keys]
        try:
            codes = await self._requests.ask(leader, _request(markers, keys))
        except PeerUnavailable as error:
            log.info("%s: transaction markers are pending: %s", markers.transactional_id, error)
            if error.sent:
                self._unanswered.update(dict.fromkeys(slots, leader))
            return
        finally:
            self._under_way.difference_update(slots)
        written: set[Key] = set()
        for key in keys:
            self._unanswered.pop((markers.transactional_id, key), None)
            code = codes.get(key, UnknownServerError.code)
            # With InvalidProducerEpoch the partition has a newer epoch, so the transaction has ended there.
            if code in (0, InvalidProducerEpoch.code):
                written.add(key)
            else:
                name = error_for_code(code).__name__
                log.info(
                    "%s-%d: transaction marker of %s is pending: %s", *key, markers.transactional_id, name
                )
        if written:
            self._report(markers, written)

    async def _send(self, leader: int, markers: list[Message]) -> list[dict[Key, int]]:
        answer = await self._broker.peers.call(
            leader,
            ApiKey.WRITE_TXN_MARKERS,
            _WRITE_MARKERS_VERSION,
            Message(markers=markers),
            purpose=_PURPOSE,
            timeout_ms=MARKERS_TIMEOUT_MS + 5_000,
        )
        return [
            {
                (topic.name, result.partition_index): result.error_code
                for topic in one.topics
                for result in topic.partitions
            }
            for one in answer.markers
        ]

    def close(self) -> None:
        self._requests.close()
        for task in self._tasks:
            task.cancel()


def _marker(markers: WriteMarkers) -> Marker:
    return Marker(
        Producer(markers.producer_id, markers.producer_epoch),
        markers.commit,
        markers.coordinator_epoch,
        markers.transaction_version,
    )


def _request(markers: WriteMarkers, keys: list[Key]) -> Message:
    topics: dict[str, list[int]] = {}
    for name, index in keys:
        topics.setdefault(name, []).append(index)
    return Message(
        producer_id=markers.producer_id,
        producer_epoch=markers.producer_epoch,
        transaction_result=markers.commit,
        topics=[Message(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
        coordinator_epoch=markers.coordinator_epoch,
        transaction_version=markers.transaction_version,
    )
