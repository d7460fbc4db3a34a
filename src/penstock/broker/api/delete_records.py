"""DeleteRecords (key 21), versions 0-2.

2  flexible

Moves the log start offset up to an offset, or with -1 to the high watermark. A partition whose
cleanup.policy is only compact refuses with POLICY_VIOLATION, as Kafka does. The answer comes when the new
start is on disk: what a client was told is deleted does not come back after a crash.
Left out: nothing. The timeout is for followers, of which there are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.context import RequestContext
from penstock.broker.registry import register
from penstock.errors import ApiError, KafkaStorageError, UnknownTopicOrPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


async def handle(broker: Broker, context: RequestContext, request: Message) -> Message:
    topics = []
    for topic in request.topics:
        partitions = []
        for item in topic.partitions:
            code, low_watermark = 0, -1
            try:
                partition = broker.partitions.get((topic.name, item.partition_index))
                if partition is None:
                    raise UnknownTopicOrPartition()
                low_watermark = partition.delete_records_before(item.offset)
            except ApiError as error:
                code = error.code
            partitions.append(_result(item.partition_index, low_watermark, code))
        topics.append(Message(name=topic.name, partitions=partitions))
    try:
        await broker.with_logs(broker.logs.checkpoint_log_starts)
    except OSError as error:
        raise KafkaStorageError(f"the new log start could not be written: {error.strerror}") from error
    return Message(throttle_time_ms=0, topics=topics)


def _result(index: int, low_watermark: int, code: int) -> Message:
    return Message(partition_index=index, low_watermark=low_watermark, error_code=code)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    topics = [
        Message(
            name=topic.name,
            partitions=[_result(item.partition_index, -1, code) for item in topic.partitions],
        )
        for topic in request.topics
    ]
    return Message(throttle_time_ms=0, topics=topics)


register(ApiKey.DELETE_RECORDS, range(3), handle, error_response)
