"""DescribeGroups (key 15), versions 0-6.

3  authorized operations (KIP-430)   4  group instance ids (KIP-345)   5  flexible
6  GROUP_ID_NOT_FOUND with a message (KIP-1043); before that an unknown group has the state "Dead"

Classic groups only, as in Kafka: the other types have APIs of their own.
Left out: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.coordinators.group_calls import GROUP_OPERATIONS, Step, ask_each
from penstock.broker.net.context import RequestContext
from penstock.broker.security.authorization.operations import NOT_ASKED
from penstock.groups.shard import dead_group
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasGroups


async def handle(broker: HasGroups, context: RequestContext, request: Message) -> Message:
    def step(group_id: str) -> Step:
        return lambda shard, who, token, now: shard.describe_groups(group_id, who, token, now)

    groups = await ask_each(
        broker,
        context,
        [(group_id, step(group_id)) for group_id in request.groups],
        lambda group_id, error: dead_group(group_id, error.code, error.message),
    )
    asked = request.include_authorized_operations
    return Message(
        throttle_time_ms=0,
        groups=[
            Message(
                **group.__dict__,
                authorized_operations=GROUP_OPERATIONS if asked and not group.error_code else NOT_ASKED,
            )
            for group in groups
        ],
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    groups = [
        Message(**dead_group(group_id, code).__dict__, authorized_operations=NOT_ASKED)
        for group_id in request.groups
    ]
    return Message(throttle_time_ms=0, groups=groups)


register(ApiKey.DESCRIBE_GROUPS, range(7), handle, error_response)
