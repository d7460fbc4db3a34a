"""JoinGroup (key 11), versions 0-9.

1  rebalance timeout   4  MEMBER_ID_REQUIRED (KIP-394)   5  group instance id (KIP-345)   6  flexible
7  protocol type in the response, whose protocol may be null (KIP-559)   8  reason (KIP-800)
9  skip_assignment (KIP-814)

The response waits until all members of the group have joined, or until the rebalance timeout. Later requests
of the connection are handled meanwhile, so a LeaveGroup ends the wait at once.
Left out: nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.coordinators.group_calls import ask, seeing
from penstock.broker.net.context import RequestContext
from penstock.groups.classic.member import join_error
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasAuthorizer, HasGroups

    class JoinGroupParts(HasAuthorizer, HasGroups, Protocol): ...


_NULL_PROTOCOL_SINCE = 7


def handle(
    broker: JoinGroupParts, context: RequestContext, request: Message
) -> Message | asyncio.Future[Message]:
    result = ask(broker, context, request.group_id, lambda shard, who, token, now:
                 shard.join_group(request, seeing(broker, context, who), token, now))  # fmt: skip
    if context.version >= _NULL_PROTOCOL_SINCE:
        return result
    if isinstance(result, Message):
        return _without_null(result)
    return asyncio.ensure_future(_waited(result))


async def _waited(result: asyncio.Future[Message]) -> Message:
    return _without_null(await result)


def _without_null(answer: Message) -> Message:
    return Message(**{**answer.__dict__, "protocol_name": answer.protocol_name or ""})


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    answer = join_error(code, request.member_id)
    return answer if context.version >= _NULL_PROTOCOL_SINCE else _without_null(answer)


register(ApiKey.JOIN_GROUP, range(10), handle, error_response, concurrent=True)
