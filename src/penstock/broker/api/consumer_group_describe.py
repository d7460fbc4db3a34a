"""ConsumerGroupDescribe (key 69), versions 0-1.

0  KIP-848   1  whether a member uses the classic or the consumer protocol (KIP-1099)

Groups of other types get GROUP_ID_NOT_FOUND, as in Kafka.
Left out: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.coordinators.group_calls import GROUP_OPERATIONS, Step, ask_each
from penstock.broker.net.context import RequestContext
from penstock.broker.security.authorization.operations import NOT_ASKED
from penstock.errors import ApiError
from penstock.groups.shard import check_group_id
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasGroups


async def handle(broker: HasGroups, context: RequestContext, request: Message) -> Message:
    def step(group_id: str) -> Step:
        check_group_id(group_id)
        return lambda shard, who, token, now: shard.consumer_group_describe(group_id, who, token, now)

    refused: dict[str, Message] = {}
    calls = []
    for group_id in request.group_ids:
        try:
            calls.append((group_id, step(group_id)))
        except ApiError as error:
            refused[group_id] = _failed(group_id, error.code, error.message)
    answers = await ask_each(
        broker, context, calls, lambda group_id, error: _failed(group_id, error.code, error.message)
    )
    asked = request.include_authorized_operations
    groups = [
        Message(**answer.__dict__, authorized_operations=GROUP_OPERATIONS if asked else NOT_ASKED)
        if answer.error_code == 0
        else answer
        for answer in answers
    ]
    return Message(throttle_time_ms=0, groups=[*refused.values(), *groups])


def _failed(group_id: str, code: int, message: str | None) -> Message:
    return Message(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
        authorized_operations=NOT_ASKED,
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(
        throttle_time_ms=0, groups=[_failed(group_id, code, None) for group_id in request.group_ids]
    )


register(ApiKey.CONSUMER_GROUP_DESCRIBE, range(2), handle, error_response)
