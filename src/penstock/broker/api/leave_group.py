"""LeaveGroup (key 13), versions 0-5.

3  many members, static ones by their instance id (KIP-345)   4  flexible   5  reason (KIP-800)

Before version 3 a request has one member, and the member's error is the error of the response.
Left out: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.coordinators.group_calls import answer_of, ask
from penstock.broker.net.context import RequestContext
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasGroups

_MANY_SINCE = 3


async def handle(broker: HasGroups, context: RequestContext, request: Message) -> Message:
    members = request.members
    if context.version < _MANY_SINCE:
        members = [Message(member_id=request.member_id, group_instance_id=None, reason=None)]
    leaving = Message(group_id=request.group_id, members=members)
    answer = await answer_of(
        ask(broker, context, request.group_id, lambda shard, who, token, now:
            shard.leave_group(leaving, who, token, now))
    )  # fmt: skip
    if context.version < _MANY_SINCE and answer.error_code == 0:
        return Message(throttle_time_ms=0, error_code=answer.members[0].error_code, members=[])
    return answer


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(throttle_time_ms=0, error_code=code, members=[])


register(ApiKey.LEAVE_GROUP, range(6), handle, error_response)
