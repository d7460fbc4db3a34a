"""OffsetForLeaderEpoch (key 23), versions 2-4.

2  current leader epoch (KIP-320)   3  replica id   4  flexible

Returns the end offset of a leader epoch. A consumer or follower uses it to find where its log diverges from
the leader's. Left out: versions 0 and 1, which only brokers of Kafka 1 sent to each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.errors import ApiError
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasPartitions, HasTopics

    class OffsetForLeaderEpochParts(HasPartitions, HasTopics, Protocol): ...


def handle(broker: OffsetForLeaderEpochParts, context: RequestContext, request: Message) -> Message:
    topics = []
    for topic in request.topics:
        partitions = []
        for item in topic.partitions:
            try:
                key = (topic.topic, item.partition)
                partition = broker.partitions.get(key)
                if partition is None:
                    raise broker.topics.missing(key)
                partition.check_leader(item.current_leader_epoch)
                epoch, end_offset = partition.end_of_epoch(item.leader_epoch)
                partitions.append(_result(item.partition, 0, epoch, end_offset))
            except ApiError as error:
                partitions.append(_result(item.partition, error.code))
        topics.append(Message(topic=topic.topic, partitions=partitions))
    return Message(throttle_time_ms=0, topics=topics)


def _result(partition: int, code: int, epoch: int = -1, end_offset: int = -1) -> Message:
    return Message(partition=partition, error_code=code, leader_epoch=epoch, end_offset=end_offset)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    topics = [
        Message(topic=topic.topic, partitions=[_result(item.partition, code) for item in topic.partitions])
        for topic in request.topics
    ]
    return Message(throttle_time_ms=0, topics=topics)


register(ApiKey.OFFSET_FOR_LEADER_EPOCH, range(2, 5), handle, error_response)
