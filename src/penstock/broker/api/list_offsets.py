"""ListOffsets (key 2), versions 1-11.

2  isolation level   4  leader epochs (KIP-320)   6  flexible   7  -3, largest timestamp (KIP-734)
8  -4, earliest local offset (KIP-405)   9  -5, latest tiered offset (KIP-1005)   10  timeout
11  -6, earliest offset to be tiered (KIP-1023)

Until the in-sync replicas have all that a new leader had when its epoch began, the leader does not know how
far consumers may read. It then returns OFFSET_NOT_AVAILABLE, before version 5 LEADER_NOT_AVAILABLE (KIP-207),
as Kafka does. read_committed consumers get the same error while the producer state of a truncated log is
rebuilt.

Left out: version 0 (a list of offsets; no client in use sends it); tiered storage, so -4 is the earliest
offset and -5 and -6 find nothing. The timeout is ignored: it is for reads from tiered storage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from penstock.broker.api_table import register
from penstock.broker.fetch.time_search import Search, run_all, searches_for
from penstock.broker.net.context import RequestContext
from penstock.errors import (
    ApiError,
    InvalidRequest,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    UnsupportedVersion,
)
from penstock.replication.delayed import Key
from penstock.replication.partition import CONSUMER, Partition
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import CanUseThreads, HasPartitions, HasTopics

    class ListOffsetsParts(CanUseThreads, HasPartitions, HasTopics, Protocol): ...


LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}

Found = tuple[int, int, int]
"""Timestamp, offset, leader epoch."""
_NOTHING: Found = (-1, -1, -1)


def handle(
    broker: ListOffsetsParts, context: RequestContext, request: Message
) -> Message | Coroutine[Any, Any, Message]:
    searches = searches_for(broker.partitions, request.topics, MAX_TIMESTAMP)
    if not searches:
        return _respond(broker, context, request, {})
    return _search(broker, context, request, searches)


async def _search(
    broker: ListOffsetsParts, context: RequestContext, request: Message, searches: dict[Key, Search]
) -> Message:
    """Searches partitions by timestamp: this reads indexes and records that may not be in memory."""
    await broker.in_thread(run_all, searches.values())
    return _respond(broker, context, request, searches)


def _respond(
    broker: ListOffsetsParts, context: RequestContext, request: Message, searches: dict[Key, Search]
) -> Message:
    named = Counter(
        (topic.name, item.partition_index) for topic in request.topics for item in topic.partitions
    )
    topics = []
    for topic in request.topics:
        partitions = []
        for item in topic.partitions:
            key = (topic.name, item.partition_index)
            try:
                if named[key] > 1:
                    raise InvalidRequest("the partition is named twice")
                since = _SINCE.get(item.timestamp, 0)
                if item.timestamp < EARLIEST_PENDING_UPLOAD or since > context.version:
                    raise UnsupportedVersion(f"timestamp {item.timestamp} in version {context.version}")
                partition = broker.partitions.get(key)
                if partition is None:
                    raise broker.topics.missing(key)
                partition.check_leader(item.current_leader_epoch)
                timestamp, offset, epoch = _find(partition, item.timestamp, request, searches.get(key))
            except OffsetNotAvailable as error:
                code = error.code if context.version >= 5 else LeaderNotAvailable.code
                partitions.append(_failed(item.partition_index, code))
            except ApiError as error:
                partitions.append(_failed(item.partition_index, error.code))
            else:
                partitions.append(
                    Message(
                        partition_index=item.partition_index,
                        error_code=0,
                        timestamp=timestamp,
                        offset=offset,
                        leader_epoch=epoch,
                    )
                )
        topics.append(Message(name=topic.name, partitions=partitions))
    return Message(throttle_time_ms=0, topics=topics)


def _find(partition: Partition, timestamp: int, request: Message, search: Search | None) -> Found:
    log = partition.log
    bound = partition.upper_bound(request.isolation_level, request.replica_id)
    match timestamp:
        case -1:
            if request.replica_id == CONSUMER:
                partition.check_end_is_known(request.isolation_level)
            return -1, bound, partition.image.leader_epoch
        case -2 | -4:
            return -1, log.log_start_offset, log.epochs.epoch_for(log.log_start_offset)
        case -5 | -6:
            return _NOTHING
    if search is None or search.partition is not partition:
        raise NotLeaderOrFollower("this broker became the leader while the offset was looked up")
    found = search.result()
    # Do not return offsets that the reader may not read yet.
    if found is None or found.offset >= bound:
        if request.replica_id == CONSUMER:
            partition.check_end_is_known(request.isolation_level)
        return _NOTHING
    return found.timestamp, found.offset, found.leader_epoch


def _failed(index: int, code: int) -> Message:
    return Message(partition_index=index, error_code=code, timestamp=-1, offset=-1, leader_epoch=-1)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    topics = [
        Message(
            name=topic.name, partitions=[_failed(item.partition_index, code) for item in topic.partitions]
        )
        for topic in request.topics
    ]
    return Message(throttle_time_ms=0, topics=topics)


register(ApiKey.LIST_OFFSETS, range(1, 12), handle, error_response)
