"""DeleteRecords (key 21), versions 0-2.

2  flexible

Moves the log start offset up to an offset, or with -1 to the high watermark. As in Kafka, a partition whose
cleanup.policy is only `compact` gets POLICY_VIOLATION, and an internal topic INVALID_TOPIC_EXCEPTION. The
response is sent when the new log start offset is on disk here and every replica on a live broker has reported
it, so that records which a client knows to be deleted do not come back after a crash or an election.
REQUEST_TIMED_OUT if that takes longer than the timeout of the request.
Left out: nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.errors import ApiError, InvalidTopicException, KafkaStorageError
from penstock.metadata.image import INTERNAL_TOPICS
from penstock.replication.delayed import Key
from penstock.replication.deleting import DeleteWait
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import CanChangeLogs, HasDelayed, HasImage, HasLogs, HasPartitions, HasTopics

    class DeleteRecordsParts(
        CanChangeLogs, HasDelayed, HasImage, HasLogs, HasPartitions, HasTopics, Protocol
    ): ...


_NO_LOW_WATERMARK = -1


async def handle(broker: DeleteRecordsParts, context: RequestContext, request: Message) -> Message:
    begun: dict[Key, DeleteWait | ApiError] = {}
    for topic in request.topics:
        for item in topic.partitions:
            key = (topic.name, item.partition_index)
            try:
                begun[key] = _delete(broker, key, item.offset)
            except ApiError as error:
                begun[key] = error
    try:
        await broker.with_logs(broker.logs.checkpoint_log_starts)
    except OSError as error:
        raise KafkaStorageError(f"the new log start could not be written: {error.strerror}") from error
    waits = ((key, one) for key, one in begun.items() if isinstance(one, DeleteWait))
    await asyncio.gather(*(_reached(broker, key, one, request.timeout_ms) for key, one in waits))
    return Message(
        throttle_time_ms=0,
        topics=[
            Message(
                name=topic.name,
                partitions=[
                    _outcome(item.partition_index, begun[topic.name, item.partition_index])
                    for item in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _delete(broker: DeleteRecordsParts, key: Key, offset: int) -> DeleteWait:
    if key[0] in INTERNAL_TOPICS:
        raise InvalidTopicException(f"records of the internal topic {key[0]} cannot be deleted")
    partition = broker.partitions.get(key)
    if partition is None:
        raise broker.topics.missing(key)

    def gone() -> ApiError | None:
        return None if broker.partitions.get(key) is partition else broker.topics.missing(key)

    return DeleteWait(partition, partition.delete_records_before(offset), lambda: broker.image.brokers, gone)


async def _reached(broker: DeleteRecordsParts, key: Key, one: DeleteWait, timeout_ms: int) -> None:
    """Returns when all live replicas have deleted the records, on timeout, or when leadership has changed."""
    if one.is_satisfied(key):
        return
    done = asyncio.Event()
    one.on_complete = done.set
    broker.delayed.watch(one, [key], max(timeout_ms, 0))
    try:
        await done.wait()
    finally:
        broker.delayed.remove(one)


def _outcome(index: int, one: DeleteWait | ApiError) -> Message:
    error = one if isinstance(one, ApiError) else one.error()
    low_watermark = _NO_LOW_WATERMARK if isinstance(one, ApiError) else one.low_watermark
    return _result(index, low_watermark, 0 if error is None else error.code)


def _result(index: int, low_watermark: int, code: int) -> Message:
    return Message(partition_index=index, low_watermark=low_watermark, error_code=code)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    topics = [
        Message(
            name=topic.name,
            partitions=[_result(item.partition_index, _NO_LOW_WATERMARK, code) for item in topic.partitions],
        )
        for topic in request.topics
    ]
    return Message(throttle_time_ms=0, topics=topics)


register(ApiKey.DELETE_RECORDS, range(3), handle, error_response)
