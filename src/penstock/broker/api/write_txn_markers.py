"""WriteTxnMarkers (key 27), versions 1-2.

1  flexible   2  the transaction version of the marker (KIP-1228)

Coordinators send it to the leaders of a transaction's partitions, and an operator to end a transaction that
hangs because its coordinator no longer knows it (KIP-664: `penstock transactions abort`). With transaction
version 2 a marker has a higher epoch than the records that it ends: one that does not is refused.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from penstock.broker.context import RequestContext
from penstock.broker.registry import register
from penstock.broker.transactions import append_marker, marker_batch
from penstock.coordinator import Producer
from penstock.errors import ApiError, InvalidProducerEpoch, RequestTimedOut, UnknownTopicOrPartition
from penstock.replication.delayed import Key
from penstock.replication.partition import Partition
from penstock.replication.producing import ProduceWait
from penstock.transactions.state import TV_2
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

_TIMEOUT_MS = 30_000


def handle(broker: Broker, context: RequestContext, request: Message) -> Message | asyncio.Future[Message]:
    waiting: dict[Key, tuple[Partition, int]] = {}
    codes = [
        {
            key: _write(broker, marker, key, waiting)
            for key in ((topic.name, index) for topic in marker.topics for index in topic.partition_indexes)
        }
        for marker in request.markers
    ]
    if not waiting:
        return _answer(request, codes)
    done: asyncio.Future[Message] = broker.loop.create_future()

    def replicated(behind: set[Key]) -> None:
        for of_marker in codes:
            for key in behind & of_marker.keys():
                of_marker[key] = of_marker[key] or RequestTimedOut.code
        if not done.done():
            done.set_result(_answer(request, codes))

    broker.delayed.watch(ProduceWait(waiting, replicated), list(waiting), _TIMEOUT_MS)
    return done


def _write(broker: Broker, marker: Message, key: Key, waiting: dict[Key, tuple[Partition, int]]) -> int:
    """The error code; a marker that is not replicated yet is put to those that are waited for."""
    try:
        partition = broker.partitions.get(key)
        if partition is None:
            raise UnknownTopicOrPartition()
        producer = Producer(marker.producer_id, marker.producer_epoch)
        if marker.transaction_version >= TV_2:
            _check_newer(partition, producer)
        batch = marker_batch(broker, producer, marker.transaction_result, marker.coordinator_epoch)
        info = append_marker(broker, partition, batch, producer, marker.transaction_result)
    except ApiError as error:
        return error.code
    if not partition.is_replicated(info.last_offset):
        waiting[key] = (partition, info.last_offset)
    return 0


def _check_newer(partition: Partition, producer: Producer) -> None:
    entry = partition.log.producers.producers.get(producer.producer_id)
    if entry is not None and entry.txn_first_offset is not None and entry.epoch >= producer.epoch:
        raise InvalidProducerEpoch(f"the transaction has epoch {entry.epoch}, the marker {producer.epoch}")


def _answer(request: Message, codes: list[dict[Key, int]]) -> Message:
    return Message(
        markers=[
            Message(
                producer_id=marker.producer_id,
                topics=[
                    Message(
                        name=topic.name,
                        partitions=[
                            Message(partition_index=index, error_code=of_marker[topic.name, index])
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker, of_marker in zip(request.markers, codes, strict=True)
        ]
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return _answer(request, [defaultdict(lambda: code) for _ in request.markers])


register(ApiKey.WRITE_TXN_MARKERS, range(1, 3), handle, error_response)
