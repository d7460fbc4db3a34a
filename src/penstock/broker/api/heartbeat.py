"""Heartbeat (key 12), versions 0-4.

3  group instance id (KIP-345)   4  flexible

While the coordinator loads its partition the response has no error, as in Kafka: the member has done nothing
wrong, and its session timeout starts again when the group is loaded.
Left out: nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.coordinators.group_calls import ask
from penstock.broker.net.context import RequestContext
from penstock.errors import CoordinatorLoadInProgress
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasGroups


def handle(broker: HasGroups, context: RequestContext, request: Message) -> Message | asyncio.Future[Message]:
    try:
        return ask(broker, context, request.group_id, lambda shard, who, token, now:
                   shard.heartbeat(request, who, token, now))  # fmt: skip
    except CoordinatorLoadInProgress:
        return error_response(context, request, 0)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(throttle_time_ms=0, error_code=code)


register(ApiKey.HEARTBEAT, range(5), handle, error_response)
