"""DeleteGroups (key 42), versions 0-2 (KIP-229).

2  flexible

A group that has members is refused with NON_EMPTY_GROUP. Its offsets, or its share state, go with it.
Left out: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.context import RequestContext
from penstock.broker.group_calls import Step, ask_each
from penstock.broker.registry import register
from penstock.broker.share_admin import group_deleted, keys_of_group
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


async def handle(broker: Broker, context: RequestContext, request: Message) -> Message:
    def step(group_id: str) -> Step:
        return lambda shard, who, token, now: shard.delete_groups(group_id, who, token, now)

    # What it has state of is not known any more when it is gone.
    shared = {group_id: keys_of_group(broker, group_id) for group_id in request.groups_names}
    results = await ask_each(
        broker,
        context,
        [(group_id, step(group_id)) for group_id in request.groups_names],
        lambda group_id, error: _result(group_id, error.code),
    )
    for result in results:
        if result.error_code == 0:
            await group_deleted(broker.share, result.group_id, shared[result.group_id])
    return Message(throttle_time_ms=0, results=results)


def _result(group_id: str, code: int) -> Message:
    return Message(group_id=group_id, error_code=code)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(throttle_time_ms=0, results=[_result(group_id, code) for group_id in request.groups_names])


register(ApiKey.DELETE_GROUPS, range(3), handle, error_response)
