"""OffsetFetch (key 9), versions 1-10.

2  an error for the whole response; null topics mean all   5  leader epoch (KIP-320)   6  flexible
7  require_stable (KIP-447)   8  many groups (KIP-709)   9  member id and epoch (KIP-848)   10  topic ids

Left out: version 0 (offsets in ZooKeeper; no client in use sends it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.coordinators.group_calls import Step, ask_each
from penstock.broker.net.context import RequestContext
from penstock.groups.offsets.requests import fetch_error, fetched
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasGroups

_ERROR_FOR_ALL_SINCE = 2
_MANY_GROUPS_SINCE = 8


async def handle(broker: HasGroups, context: RequestContext, request: Message) -> Message:
    def step(item: Message) -> Step:
        return lambda shard, who, token, now: shard.offset_fetch(
            item, who, token, now, require_stable=request.require_stable
        )

    answers = await ask_each(
        broker,
        context,
        [(item.group_id, step(item)) for item in _groups(context, request)],
        lambda group_id, error: fetch_error(group_id, error.code),
    )
    return _answer(context, request, answers)


def _groups(context: RequestContext, request: Message) -> list[Message]:
    if context.version >= _MANY_GROUPS_SINCE:
        groups: list[Message] = request.groups
        return groups
    return [Message(group_id=request.group_id, member_id=None, member_epoch=-1, topics=request.topics)]


def _answer(context: RequestContext, request: Message, answers: list[Message]) -> Message:
    if context.version >= _MANY_GROUPS_SINCE:
        return Message(throttle_time_ms=0, groups=answers)
    (answer,) = answers
    topics = answer.topics
    if answer.error_code and context.version < _ERROR_FOR_ALL_SINCE:
        topics = [
            Message(
                name=topic.name,
                partitions=[fetched(index, code=answer.error_code) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    return Message(throttle_time_ms=0, error_code=answer.error_code, topics=topics)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    groups = _groups(context, request)
    return _answer(context, request, [fetch_error(item.group_id, code) for item in groups])


register(ApiKey.OFFSET_FETCH, range(1, 11), handle, error_response)
