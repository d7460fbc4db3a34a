"""The markers of transactions that end: written to the partitions here, sent to the brokers that lead others.

Promises: of one transaction there are never two markers under way to a partition; a marker that comes twice,
or late, ends nothing. With transaction version 2 its epoch says which transaction it ends. Before that
version, the same epoch goes on: there, a marker is sent to another broker only when it is certain that an
earlier request can no longer arrive, and requests of a connection that was replaced are not handled.
Where a partition cannot be reached, the coordinator's shard asks again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.cluster.peers import PeerUnavailable
from penstock.broker.transactions.peer_batches import PeerBatches
from penstock.coordinator import Producer
from penstock.errors import ApiError, InvalidProducerEpoch, UnknownServerError, error_for_code
from penstock.metadata.image import NO_LEADER
from penstock.replication.delayed import Key
from penstock.replication.partition import Partition
from penstock.replication.producing import ProduceWait
from penstock.transactions.shard import WriteMarkers
from penstock.transactions.state import TV_2
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from penstock.wire.records import control_marker

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

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


def write_marker(broker: Broker, partition: Partition, marker: Marker) -> int:
    """End the producer's transaction in this partition. Returns the offset that must be replicated before it
    has ended for good. Raises InvalidProducerEpoch where the partition is past this transaction."""
    partition.check_leader()
    producer_id, epoch = marker.producer
    producers = partition.log.producers
    entry = producers.producers.get(producer_id)
    if marker.transaction_version >= TV_2 and entry is not None:
        if entry.txn_first_offset is not None and entry.epoch >= epoch:
            raise InvalidProducerEpoch(f"the transaction has epoch {entry.epoch}, the marker {epoch}")
    producers.stop_verifying(producer_id)
    if producers.has_marker(producer_id, epoch, marker.coordinator_epoch):
        return partition.log.log_end_offset - 1  # a repeated request: what it wrote may not be replicated yet
    now = broker.clock.now_ms()
    batch = bytearray(
        control_marker(
            "commit" if marker.commit else "abort", marker.coordinator_epoch, producer_id, epoch, now
        )
    )
    info = partition.append(batch, 0, len(batch), -1, origin="coordinator")
    topic, index = partition.key
    if topic == CONSUMER_OFFSETS:
        broker.groups.on_marker(index, marker.producer, marker.commit)
    return info.last_offset


class _Sent(NamedTuple):
    """Where a request went that was not answered: it may still arrive there."""

    broker_id: int
    broker_epoch: int


class MarkerWriter:
    def __init__(self, broker: Broker, report: Callable[[WriteMarkers, set[Key]], None]) -> None:
        """`report(markers, written)` is called when partitions have their marker, or need none."""
        self._broker = broker
        self._report = report
        self._under_way: set[tuple[str, Key]] = set()
        self._unanswered: dict[tuple[str, Key], _Sent] = {}
        self._requests: PeerBatches[Message, dict[Key, int]] = PeerBatches(broker.loop, self._send)
        self._tasks: set[asyncio.Task[None]] = set()

    def write(self, markers: WriteMarkers) -> None:
        broker = self._broker
        marker = _marker(markers)
        written: set[Key] = set()
        behind: dict[Key, tuple[Partition, int]] = {}
        elsewhere: dict[int, list[Key]] = {}
        for key in markers.partitions:
            slot = (markers.transactional_id, key)
            if slot in self._under_way:
                continue
            leader = self._destination(slot, marker)
            if leader is None:
                written.add(key)  # deleted: nothing is left to be marked
            elif leader != broker.id:
                if leader != NO_LEADER:
                    elsewhere.setdefault(leader, []).append(key)
            else:
                self._write_here(markers, key, marker, written, behind)
        if behind:
            self._under_way.update((markers.transactional_id, key) for key in behind)
            self._wait(markers, behind)
        for leader, keys in elsewhere.items():
            self._under_way.update((markers.transactional_id, key) for key in keys)
            task = broker.loop.create_task(self._deliver(leader, markers, keys))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if written or not markers.partitions:
            self._report(markers, written)

    def _destination(self, slot: tuple[str, Key], marker: Marker) -> int | None:
        """The broker to send to; None where the partition is gone."""
        broker = self._broker
        sent = self._unanswered.get(slot)
        if sent is not None:
            info = broker.controller.image.brokers.get(sent.broker_id)
            if marker.transaction_version < TV_2 and info is not None and info.epoch == sent.broker_epoch:
                return sent.broker_id  # its answer to a later request says that the earlier one is past
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
            # The partition has records of a newer epoch: this transaction has ended there.
            log.warning("%s-%d needs no marker of %s: %s", *key, markers.transactional_id, error)
            written.add(key)
        except ApiError as error:
            log.warning("%s-%d has no marker of %s yet: %s", *key, markers.transactional_id, error)
        else:
            if partition.is_replicated(offset):
                written.add(key)
            else:
                behind[key] = (partition, offset)

    def _wait(self, markers: WriteMarkers, behind: dict[Key, tuple[Partition, int]]) -> None:
        """Report the markers here when they are replicated; the shard asks again for those that are late."""
        keys = list(behind)

        def replicated(missing: set[Key]) -> None:
            self._under_way.difference_update((markers.transactional_id, key) for key in keys)
            if written := set(keys) - missing:
                self._report(markers, written)

        self._broker.delayed.watch(ProduceWait(behind, replicated), keys, MARKERS_TIMEOUT_MS)

    async def _deliver(self, leader: int, markers: WriteMarkers, keys: list[Key]) -> None:
        """To the broker that leads these partitions; what it did not write, the shard asks for again."""
        slots = [(markers.transactional_id, key) for key in keys]
        info = self._broker.controller.image.brokers.get(leader)
        sent = _Sent(leader, -1 if info is None else info.epoch)
        try:
            codes = await self._requests.ask(leader, _request(markers, keys))
        except PeerUnavailable as error:
            log.info("%s has no markers on it yet: %s", markers.transactional_id, error)
            if error.sent:
                self._unanswered.update(dict.fromkeys(slots, sent))
            return
        finally:
            self._under_way.difference_update(slots)
        written: set[Key] = set()
        for key in keys:
            self._unanswered.pop((markers.transactional_id, key), None)
            code = codes.get(key, UnknownServerError.code)
            # Records of a newer epoch: the transaction has ended there.
            if code in (0, InvalidProducerEpoch.code):
                written.add(key)
            else:
                name = error_for_code(code).__name__
                log.info("%s-%d has no marker of %s yet: %s", *key, markers.transactional_id, name)
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
