"""DescribeTopicPartitions (key 75), version 0 (KIP-966).

Topics in the order of their names. A response has at most as many partitions as the request asks for, and at
most max.request.partition.size.limit; a cursor says where the next request continues.
Left out: eligible leader replicas. The lists are empty and not null, because the Java admin client does not
expect null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.broker.security.authorization.operations import NOT_ASKED, TOPIC_OPERATIONS
from penstock.broker.topic_messages import why_unknown
from penstock.errors import InvalidRequest
from penstock.metadata.image import TopicImage
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from penstock.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from penstock.broker.parts import HasConfig, HasImage

    class DescribeTopicPartitionsParts(HasConfig, HasImage, Protocol): ...


def handle(broker: DescribeTopicPartitionsParts, context: RequestContext, request: Message) -> Message:
    image = broker.image
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise InvalidRequest("the cursor's partition is negative")
    names = sorted({topic.name for topic in request.topics} or image.topics)
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    limit = broker.config.max_request_partition_size_limit
    if request.response_partition_limit > 0:
        limit = min(limit, request.response_partition_limit)
    topics: list[Message] = []
    next_cursor = None
    for name in names:
        if limit <= 0:
            next_cursor = Message(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        if topic is None:
            # The topic of a cursor may have been deleted; the client that continues there has made no error.
            if cursor is None or name != cursor.topic_name:
                topics.append(_failed(name, why_unknown(name)))
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        shown = topic.partitions[first : first + limit]
        topics.append(_topic(topic, first, first + limit))
        limit -= len(shown)
        if first + len(shown) < len(topic.partitions):
            next_cursor = Message(topic_name=name, partition_index=first + len(shown))
            break
    return Message(throttle_time_ms=0, topics=topics, next_cursor=next_cursor)


def _topic(topic: TopicImage, first: int, end: int) -> Message:
    partitions = [
        Message(
            error_code=0 if partition.leader >= 0 else 5,
            partition_index=partition.index,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            eligible_leader_replicas=[],
            last_known_elr=[],
            offline_replicas=list(partition.offline),
        )
        for partition in topic.partitions[first:end]
    ]
    return Message(
        error_code=0,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _failed(name: str, code: int) -> Message:
    return Message(
        error_code=code,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=False,
        partitions=[],
        topic_authorized_operations=NOT_ASKED,
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    topics = [_failed(topic.name, code) for topic in request.topics]
    return Message(throttle_time_ms=0, topics=topics, next_cursor=None)


register(ApiKey.DESCRIBE_TOPIC_PARTITIONS, range(1), handle, error_response)
