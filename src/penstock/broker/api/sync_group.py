"""SyncGroup (key 14), versions 0-5.

3  group instance id (KIP-345)   4  flexible   5  protocol type and name (KIP-559)

The request of the group leader has the assignment; those of the other members wait for it. The response is
sent when the assignment is replicated.
Left out: nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.coordinators.group_calls import ask
from penstock.broker.net.context import RequestContext
from penstock.groups.classic.member import sync_answer
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasGroups


def handle(broker: HasGroups, context: RequestContext, request: Message) -> Message | asyncio.Future[Message]:
    return ask(broker, context, request.group_id, lambda shard, who, token, now:
               shard.sync_group(request, who, token, now))  # fmt: skip


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return sync_answer(code)


register(ApiKey.SYNC_GROUP, range(6), handle, error_response, concurrent=True)
