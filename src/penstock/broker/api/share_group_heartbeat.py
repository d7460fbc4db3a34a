"""ShareGroupHeartbeat (key 76), version 1 (KIP-932).

Members join, leave and subscribe to topics with heartbeats. The member generates its own id.
Left out: version 0, the early access of Kafka 4.0, which Kafka 4.1 does not serve either.
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
               shard.share.heartbeat(request, who, token, now))  # fmt: skip


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(
        throttle_time_ms=0,
        error_code=code,
        error_message=None,
        member_id=None,
        member_epoch=0,
        heartbeat_interval_ms=0,
        assignment=None,
    )


register(ApiKey.SHARE_GROUP_HEARTBEAT, range(1, 2), handle, error_response)
