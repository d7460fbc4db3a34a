"""DescribeShareGroupOffsets (key 90), versions 0-1.

0  KIP-932   1  lag (KIP-1226)

The start offset of each partition that the group has state for: records before it are completed. -1 if there
is no state yet.
Left out: nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.broker.share import admin as share_admin
from penstock.errors import ApiError, UnknownTopicOrPartition
from penstock.groups.share.state_records import SharePartitionKey
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from penstock.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from penstock.broker.share.admin import ShareAdminParts


async def handle(broker: ShareAdminParts, context: RequestContext, request: Message) -> Message:
    groups = []
    for asked in request.groups:
        try:
            groups.append(await _group(broker, asked))
        except ApiError as error:
            groups.append(_refused(asked.group_id, error.code, error.message))
    return Message(throttle_time_ms=0, groups=groups)


async def _group(broker: ShareAdminParts, asked: Message) -> Message:
    initialized = await broker.groups.read(
        asked.group_id, lambda shard: list(shard.share.find(asked.group_id).initialized.values())
    )
    await broker.share.states.ensure_topic()
    if asked.topics is None:
        wanted = [(name, sorted(numbers)) for name, numbers in initialized]
    else:
        wanted = [(topic.topic_name, topic.partitions) for topic in asked.topics]
    topics = [await _topic(broker, asked.group_id, name, partitions) for name, partitions in wanted]
    return Message(group_id=asked.group_id, topics=topics, error_code=0, error_message=None)


async def _topic(broker: ShareAdminParts, group_id: str, name: str, partitions: list[int]) -> Message:
    topic = broker.image.topics.get(name)
    if topic is None:
        unknown = UnknownTopicOrPartition(f"topic {name} does not exist")
        found = [_partition(index, error=unknown) for index in partitions]
        return Message(topic_name=name, topic_id=ZERO_UUID, partitions=found)
    found = list(
        await asyncio.gather(
            *(_described(broker, SharePartitionKey(group_id, topic.id, index)) for index in partitions)
        )
    )
    return Message(topic_name=name, topic_id=topic.id, partitions=found)


async def _described(broker: ShareAdminParts, key: SharePartitionKey) -> Message:
    try:
        state = await broker.share.state(key)
        summary = await broker.share.stored.summary(key)
    except ApiError as error:
        return _partition(key.partition, error=error)
    if state is None or summary is None:
        return _partition(key.partition)
    lag = await share_admin.lag(broker, key, state)
    return _partition(key.partition, state.start_offset, summary.leader_epoch, lag)


def _partition(
    index: int, start: int = -1, leader_epoch: int = 0, lag: int = -1, error: ApiError | None = None
) -> Message:
    return Message(
        partition_index=index,
        start_offset=start,
        leader_epoch=leader_epoch,
        lag=lag,
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.message,
    )


def _refused(group_id: str, code: int, message: str | None) -> Message:
    return Message(group_id=group_id, topics=[], error_code=code, error_message=message)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(
        throttle_time_ms=0, groups=[_refused(group.group_id, code, None) for group in request.groups]
    )


register(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, range(2), handle, error_response)
