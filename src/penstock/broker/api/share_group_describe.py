"""ShareGroupDescribe (key 77), version 1 (KIP-932).

Each group has its own result: GROUP_ID_NOT_FOUND if it does not exist or is not a share group.
Left out: version 0, as in Kafka 4.1.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.coordinators.group_calls import GROUP_OPERATIONS
from penstock.broker.net.context import RequestContext
from penstock.errors import ApiError
from penstock.groups.share.group import not_described
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasGroups


async def handle(broker: HasGroups, context: RequestContext, request: Message) -> Message:
    groups = []
    for described in await asyncio.gather(*(_described(broker, group_id) for group_id in request.group_ids)):
        if request.include_authorized_operations and described.error_code == 0:
            described = Message(**{**vars(described), "authorized_operations": GROUP_OPERATIONS})
        groups.append(described)
    return Message(throttle_time_ms=0, groups=groups)


async def _described(broker: HasGroups, group_id: str) -> Message:
    try:
        return await broker.groups.read(group_id, lambda shard: shard.share.describe(group_id))
    except ApiError as error:
        return not_described(group_id, error.code, error.message)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    groups = [not_described(group_id, code, None) for group_id in request.group_ids]
    return Message(throttle_time_ms=0, groups=groups)


register(ApiKey.SHARE_GROUP_DESCRIBE, range(1, 2), handle, error_response)
