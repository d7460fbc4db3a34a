"""WriteTxnMarkers (key 27), versions 1-2.

1  flexible   2  the transaction version of the marker (KIP-1228)

Transaction coordinators send it to the leaders of a transaction's partitions; operators send it to end a
hanging transaction that its coordinator has forgotten (KIP-664: `penstock transactions abort`). With
transaction version 2 a marker must have a higher epoch than the records of its transaction, or it is
rejected. A marker that the partition already has gets a successful response.
A broker sends its markers over one connection. When it has opened a new one, requests that still arrive on
the old one are stale: they are not handled, and the old connection is closed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.broker.net.dispatch import CloseConnection
from penstock.broker.produce.leader_append import is_of_a_broker
from penstock.broker.transactions.markers import MARKERS_TIMEOUT_MS, Marker, write_marker
from penstock.coordinator import Producer
from penstock.errors import ApiError, RequestTimedOut, UnknownTopicOrPartition
from penstock.replication.delayed import Key
from penstock.replication.partition import Partition
from penstock.replication.producing import ProduceWait
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasServer
    from penstock.broker.produce.leader_append import LeaderAppendParts
    from penstock.broker.transactions.markers import MarkersParts

    class WriteTxnMarkersParts(LeaderAppendParts, MarkersParts, HasServer, Protocol): ...


def handle(
    broker: WriteTxnMarkersParts, context: RequestContext, request: Message
) -> Message | asyncio.Future[Message]:
    if is_of_a_broker(broker, context) and broker.server.is_replaced(context):
        raise CloseConnection("the broker has made another connection since")
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

    broker.delayed.watch(ProduceWait(waiting, replicated), list(waiting), MARKERS_TIMEOUT_MS)
    return done


def _write(
    broker: WriteTxnMarkersParts, marker: Message, key: Key, waiting: dict[Key, tuple[Partition, int]]
) -> int:
    """Returns the error code; adds a marker that is not replicated yet to those to wait for."""
    try:
        partition = broker.partitions.get(key)
        if partition is None:
            raise UnknownTopicOrPartition()
        ended = Marker(
            Producer(marker.producer_id, marker.producer_epoch),
            marker.transaction_result,
            marker.coordinator_epoch,
            marker.transaction_version,
        )
        offset = write_marker(broker, partition, ended)
    except ApiError as error:
        return error.code
    if not partition.is_replicated(offset):
        waiting[key] = (partition, offset)
    return 0


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


register(ApiKey.WRITE_TXN_MARKERS, range(1, 3), handle, error_response, concurrent=True)
