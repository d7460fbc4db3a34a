"""AlterShareGroupOffsets (key 91), version 0 (KIP-932).

Moves the start offset of a share group without members (otherwise NON_EMPTY_GROUP), and discards its
in-flight records. A group that does not exist is created. The response has a result for each partition.
Left out: nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.broker.share import admin as share_admin
from penstock.coordinator import Outcome, Reply
from penstock.errors import ApiError, InvalidRequest, UnknownTopicOrPartition
from penstock.groups.share.state_records import SharePartitionKey
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from penstock.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from penstock.broker.share.admin import ShareAdminParts


async def handle(broker: ShareAdminParts, context: RequestContext, request: Message) -> Message:
    group_id = request.group_id
    try:
        await broker.groups.read(group_id, lambda shard: shard.share.check_alter(group_id))
    except ApiError as error:
        return _refused(error.code, error.message)
    responses = [await _topic(broker, group_id, topic) for topic in request.topics]
    altered: dict[UUID, tuple[str, frozenset[int]]] = {}
    for topic in responses:
        numbers = frozenset(one.partition_index for one in topic.partitions if one.error_code == 0)
        if numbers:
            altered[topic.topic_id] = (topic.topic_name, numbers)
    noted = broker.groups.call(
        group_id,
        lambda shard, token, now: Outcome(
            records=shard.share.add_partitions(group_id, altered), replies=[Reply(token, Message())]
        ),
    )
    if isinstance(noted, asyncio.Future):
        await noted
    return Message(throttle_time_ms=0, error_code=0, error_message=None, responses=responses)


async def _topic(broker: ShareAdminParts, group_id: str, asked: Message) -> Message:
    topic = broker.image.topics.get(asked.topic_name)
    topic_id = ZERO_UUID if topic is None else topic.id
    partitions = []
    for one in asked.partitions:
        error: ApiError | None = None
        try:
            if topic is None:
                raise UnknownTopicOrPartition(f"topic {asked.topic_name} does not exist")
            if one.start_offset < 0:
                raise InvalidRequest(f"{one.start_offset} is not an offset")
            key = SharePartitionKey(group_id, topic_id, one.partition_index)
            await share_admin.begin_at(broker, key, one.start_offset)
        except ApiError as failure:
            error = failure
        partitions.append(
            Message(
                partition_index=one.partition_index,
                error_code=0 if error is None else error.code,
                error_message=None if error is None else error.message,
            )
        )
    return Message(topic_name=asked.topic_name, topic_id=topic_id, partitions=partitions)


def _refused(code: int, message: str | None) -> Message:
    return Message(throttle_time_ms=0, error_code=code, error_message=message, responses=[])


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return _refused(code, None)


register(ApiKey.ALTER_SHARE_GROUP_OFFSETS, range(1), handle, error_response)
