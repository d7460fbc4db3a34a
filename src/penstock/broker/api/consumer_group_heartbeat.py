"""ConsumerGroupHeartbeat (key 68), versions 0-1.

0  KIP-848   1  regular expressions; the client makes the member id (KIP-1082)

Members join, leave, subscribe and acknowledge revoked partitions with heartbeats.
Left out: client-side assignors (as in Kafka). Regular expressions match neither internal topics nor topics
that the member may not describe; Kafka resolves them with the permissions of the member that sent the
pattern.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.coordinators.group_calls import ask, seeing
from penstock.broker.net.context import RequestContext
from penstock.errors import ApiError
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasAuthorizer, HasGroups

    class HeartbeatParts(HasAuthorizer, HasGroups, Protocol): ...


def handle(
    broker: HeartbeatParts, context: RequestContext, request: Message
) -> Message | asyncio.Future[Message]:
    try:
        return ask(broker, context, request.group_id, lambda shard, who, token, now:
            shard.consumer_group_heartbeat(request, seeing(broker, context, who), token, now))  # fmt: skip
    except ApiError as error:
        return _refused(error.code, error.message)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return _refused(code, None)


def _refused(code: int, message: str | None) -> Message:
    return Message(
        throttle_time_ms=0,
        error_code=code,
        error_message=message,
        member_id=None,
        member_epoch=0,
        heartbeat_interval_ms=0,
        assignment=None,
    )


register(ApiKey.CONSUMER_GROUP_HEARTBEAT, range(2), handle, error_response)
