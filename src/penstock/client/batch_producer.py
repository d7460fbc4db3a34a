"""Produces whole record batches unchanged: the records' bytes stay as they are, compressed or not.

The header of a batch gets this producer's id, epoch, sequence, transactional bit and CRC, so that the broker
recognises a repeated batch and a transaction covers it. With a transactional id, everything written between
two ends is one transaction, and `start` fences an earlier producer with that id.

After an error nothing more can be written until `start` is called again. It aborts the transaction in
progress; everything written since the last `commit` must be written again.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from penstock.client.brokers import check
from penstock.client.cluster import Cluster, TopicPartition
from penstock.client.connection import Connection
from penstock.client.errors import ConnectionFailed
from penstock.client.settings import ClientSettings
from penstock.errors import InvalidTxnState, WireError
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches.batch import read_header, set_producer
from penstock.wire.codec import Message, decode_response, encode_request
from penstock.wire.frame import response_start
from penstock.wire.primitives import Buffer

PRODUCE = "produce"  # the purpose of a connection
_ALL_REPLICAS = -1
_BACKOFF_MS = 20  # the end of a transaction takes some milliseconds to reach the partitions
_IN_FLIGHT = 5  # a broker remembers this many batches of a producer
_REQUEST_BYTES = 4 << 20
_SEQUENCES = 1 << 31
# Up to these versions a client adds partitions and ends transactions itself, and its epoch stays (before
# KIP-890).
_PRODUCE_AT_MOST, _ADD_AT_MOST, _INIT_AT_MOST = 11, 3, 5


class NewBatch(NamedTuple):
    """One batch of format 2 for a partition, with one record for each of its offsets."""

    topic: str
    partition: int
    data: Buffer


class SentBatch:
    """A batch in flight; `base_offset` is -1 until the broker has appended it."""

    __slots__ = ("base_offset", "data", "partition", "topic")

    def __init__(self, topic: str, partition: int, data: bytearray) -> None:
        self.topic = topic
        self.partition = partition
        self.data = data
        self.base_offset = -1


class _Lane:
    """The queue for one leader: waiting batches by partition, and requests in flight."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.queues: dict[TopicPartition, deque[SentBatch]] = {}
        self.in_flight: deque[tuple[int, int, list[SentBatch]]] = deque()


class BatchProducer:
    """For one thread. A context manager that closes its connections."""

    def __init__(
        self,
        settings: ClientSettings,
        transactional_id: str | None = None,
        *,
        transaction_timeout_ms: int = 60_000,
    ) -> None:
        self.cluster = Cluster(dataclasses.replace(settings, retry_backoff_ms=_BACKOFF_MS))
        self._brokers = self.cluster._brokers
        self._transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._producer_id, self._epoch = -1, -1
        self._sequences: dict[TopicPartition, int] = {}
        self._in_transaction: set[TopicPartition] = set()
        self._lanes: dict[int, _Lane] = {}

    def __enter__(self) -> BatchProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.cluster.close()

    def start(self) -> None:
        """Get a producer id and epoch, at the beginning and after an error. Raises ProducerFenced if a newer
        producer exists.
        """
        for lane in self._lanes.values():
            lane.connection.close()  # anything still in flight there belongs to the previous epoch
        self._lanes.clear()
        self._sequences.clear()
        self._in_transaction.clear()
        named = self._transactional_id is not None
        if named and self._producer_id != -1:
            self._abort_own()
        request = Message(
            transactional_id=self._transactional_id,
            transaction_timeout_ms=self._transaction_timeout_ms,
            # KIP-360: sending our previous epoch shows that we are not an earlier run that came back.
            producer_id=self._producer_id if named else -1,
            producer_epoch=self._epoch if named else -1,
        )

        def ask() -> tuple[int, int]:
            brokers, name = self._brokers, self._transactional_id
            connection = brokers.any() if name is None else brokers.coordinator(name, transactional=True)
            answer = connection.request(ApiKey.INIT_PRODUCER_ID, request, at_most=_INIT_AT_MOST)
            check(answer.error_code, f"transactional id {name}" if name else None)
            return answer.producer_id, answer.producer_epoch

        self._producer_id, self._epoch = self._brokers.retry("getting a producer id", ask)

    def _abort_own(self) -> None:
        """Abort our own transaction that may be open. The abort by InitProducerId would fence the epoch in
        the request, which is ours: KIP-360 expects a client to end its transaction first.
        """
        assert self._transactional_id is not None
        try:
            self.cluster.end_transaction(self._transactional_id, self._producer_id, self._epoch, commit=False)
        except InvalidTxnState:
            pass  # nothing is open: no partition was added, or the commit with the lost response succeeded

    # Writing

    def write(self, batches: Sequence[NewBatch]) -> list[SentBatch]:
        """Send batches, those of a partition in this order. `flush` or `commit` waits for their offsets."""
        if self._transactional_id is not None:
            self._add_to_transaction({(each.topic, each.partition) for each in batches})
        sent = [self._queue(each) for each in batches]
        for lane in self._lanes.values():
            while lane.queues:
                while len(lane.in_flight) >= _IN_FLIGHT:
                    self._receive(lane)
                self._send(lane)
        return sent

    def flush(self) -> None:
        """Wait until every batch has its offset."""
        for lane in self._lanes.values():
            while lane.in_flight:
                self._receive(lane)

    def _queue(self, batch: NewBatch) -> SentBatch:
        place = (batch.topic, batch.partition)
        data = bytearray(batch.data)
        sequence = self._sequences.get(place, 0)
        set_producer(
            data,
            0,
            self._producer_id,
            self._epoch,
            sequence,
            transactional=self._transactional_id is not None,
        )
        self._sequences[place] = (sequence + read_header(data).count) % _SEQUENCES
        _, leader = self._brokers.leader(*place)
        lane = self._lanes.get(leader)
        if lane is None:
            lane = self._lanes[leader] = _Lane(self._brokers.broker(leader, PRODUCE))
        sent = SentBatch(batch.topic, batch.partition, data)
        lane.queues.setdefault(place, deque()).append(sent)
        return sent

    def _send(self, lane: _Lane) -> None:
        """One request. Kafka accepts one batch per partition and request."""
        batches: list[SentBatch] = []
        size = 0
        for place, queue in list(lane.queues.items()):
            if batches and size + len(queue[0].data) > _REQUEST_BYTES:
                break
            batch = queue.popleft()
            size += len(batch.data)
            batches.append(batch)
            if not queue:
                del lane.queues[place]
        topics: dict[str, list[Message]] = {}
        for batch in batches:
            one = Message(index=batch.partition, records=batch.data)
            topics.setdefault(batch.topic, []).append(one)
        request = Message(
            transactional_id=self._transactional_id,
            acks=_ALL_REPLICAS,
            timeout_ms=self.cluster.settings.request_timeout_ms,
            topic_data=[Message(name=name, partition_data=data) for name, data in topics.items()],
        )
        version = lane.connection.version(ApiKey.PRODUCE, _PRODUCE_AT_MOST)
        body = encode_request(ApiKey.PRODUCE, version, request)
        ticket = lane.connection.send(ApiKey.PRODUCE, version, body)
        for batch in batches:
            batch.data = bytearray()
        lane.in_flight.append((ticket, version, batches))

    def _receive(self, lane: _Lane) -> None:
        ticket, version, batches = lane.in_flight.popleft()
        connection = lane.connection
        frame = connection.receive(ticket, 2 * self.cluster.settings.request_timeout_ms)
        try:
            start = response_start(ApiKey.PRODUCE, version, frame)
            answer = decode_response(ApiKey.PRODUCE, version, frame, start)
        except WireError as error:
            connection.close()
            raise ConnectionFailed(f"the broker at {connection.address}: {error}") from error
        offsets: dict[TopicPartition, int] = {}
        for each in answer.responses:
            for one in each.partition_responses:
                name = f"{each.name}-{one.index}"
                message = f"{name}: {one.error_message}" if one.error_message else name
                check(one.error_code, message)
                offsets[each.name, one.index] = one.base_offset
        for batch in batches:
            batch.base_offset = offsets[batch.topic, batch.partition]

    # Transactions

    def _add_to_transaction(self, places: set[TopicPartition]) -> None:
        new = places - self._in_transaction
        if not new:
            return
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(new):
            topics.setdefault(topic, []).append(partition)
        name = self._transactional_id
        assert name is not None
        request = Message(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[
                Message(name=topic, partitions=partitions) for topic, partitions in topics.items()
            ],
        )

        def ask() -> None:
            coordinator = self._brokers.coordinator(name, transactional=True)
            answer = coordinator.request(ApiKey.ADD_PARTITIONS_TO_TXN, request, at_most=_ADD_AT_MOST)
            for each in answer.results_by_topic_v3_and_below:
                for one in each.results_by_partition:
                    check(one.partition_error_code, f"{each.name}-{one.partition_index} for {name}")

        self._brokers.retry(f"adding partitions to the transaction of {name}", ask)
        self._in_transaction |= new

    def commit(self) -> None:
        """Wait for every batch, and make all of them visible at once."""
        self.flush()
        self._end(commit=True)

    def abort(self) -> None:
        self.flush()
        self._end(commit=False)

    def _end(self, *, commit: bool) -> None:
        if not self._in_transaction:
            return
        assert self._transactional_id is not None
        self.cluster.end_transaction(self._transactional_id, self._producer_id, self._epoch, commit=commit)
        self._in_transaction.clear()
