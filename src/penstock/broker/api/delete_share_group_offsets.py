"""DeleteShareGroupOffsets (key 92), version 0 (KIP-932).

Deletes the offsets of a topic of a share group without members (otherwise NON_EMPTY_GROUP). The group then
starts on this topic where share.auto.offset.reset says.
Left out: nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.broker.share import admin as share_admin
from penstock.coordinator import Outcome, Reply
from penstock.errors import ApiError, UnknownTopicOrPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from penstock.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from penstock.broker.share.admin import ShareAdminParts


async def handle(broker: ShareAdminParts, context: RequestContext, request: Message) -> Message:
    group_id = request.group_id
    try:
        await broker.groups.read(group_id, lambda shard: shard.share.find(group_id).check_delete())
        await broker.share.states.ensure_topic()
    except ApiError as error:
        return _refused(error.code, error.message)
    responses = []
    deleted = set()
    for asked in request.topics:
        topic = broker.image.topics.get(asked.topic_name)
        try:
            if topic is None:
                raise UnknownTopicOrPartition(f"topic {asked.topic_name} does not exist")
            topic_id = topic.id
            keys = share_admin.keys_of_group(broker, group_id)
            await share_admin.delete(broker.share, (key for key in keys if key.topic_id == topic_id))
            deleted.add(topic_id)
            responses.append(_topic(asked.topic_name, topic_id, None))
        except ApiError as error:
            responses.append(_topic(asked.topic_name, ZERO_UUID if topic is None else topic.id, error))
    noted = broker.groups.call(
        group_id,
        lambda shard, token, now: Outcome(
            records=shard.share.forget_topics(group_id, frozenset(deleted)),
            replies=[Reply(token, Message())],
        ),
    )
    if isinstance(noted, asyncio.Future):
        await noted
    return Message(throttle_time_ms=0, error_code=0, error_message=None, responses=responses)


def _topic(name: str, topic_id: object, error: ApiError | None) -> Message:
    return Message(
        topic_name=name,
        topic_id=topic_id,
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.message,
    )


def _refused(code: int, message: str | None) -> Message:
    return Message(throttle_time_ms=0, error_code=code, error_message=message, responses=[])


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return _refused(code, None)


register(ApiKey.DELETE_SHARE_GROUP_OFFSETS, range(1), handle, error_response)
