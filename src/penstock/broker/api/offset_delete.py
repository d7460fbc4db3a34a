"""OffsetDelete (key 47), version 0 (KIP-496).

Deletes the offsets of topics that the group does not subscribe to; the others get GROUP_SUBSCRIBED_TO_TOPIC.
Left out: nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.coordinators.group_calls import ask
from penstock.broker.net.context import RequestContext
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasGroups


def handle(broker: HasGroups, context: RequestContext, request: Message) -> Message | asyncio.Future[Message]:
    return ask(broker, context, request.group_id, lambda shard, who, token, now:
               shard.offset_delete(request, who, token, now))  # fmt: skip


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(throttle_time_ms=0, error_code=code, topics=[])


register(ApiKey.OFFSET_DELETE, range(1), handle, error_response)
