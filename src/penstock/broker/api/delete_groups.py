"""DeleteGroups (key 42), versions 0-2 (KIP-229).

2  flexible

A group with members is rejected with NON_EMPTY_GROUP. The group's offsets, or its share state, are deleted
with it. Share state is deleted first, on whichever broker coordinates it, so that a new group of the same
name never starts from it. If that fails the group stays, and the client gets an error.
Left out: nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.coordinators.group_calls import Step, ask_each
from penstock.broker.net.context import RequestContext
from penstock.broker.share.admin import delete_state_of
from penstock.errors import ApiError
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.share.admin import ShareAdminParts


async def handle(broker: ShareAdminParts, context: RequestContext, request: Message) -> Message:
    def step(group_id: str) -> Step:
        return lambda shard, who, token, now: shard.delete_groups(group_id, who, token, now)

    names = request.groups_names
    kept = await asyncio.gather(*(_delete_state(broker, group_id) for group_id in names))
    deleted = iter(
        await ask_each(
            broker,
            context,
            [
                (group_id, step(group_id))
                for group_id, error in zip(names, kept, strict=True)
                if error is None
            ],
            lambda group_id, error: _result(group_id, error.code),
        )
    )
    results = [
        next(deleted) if error is None else _result(group_id, error.code)
        for group_id, error in zip(names, kept, strict=True)
    ]
    return Message(throttle_time_ms=0, results=results)


async def _delete_state(broker: ShareAdminParts, group_id: str) -> ApiError | None:
    """Delete the share state of the group; returns the error if that fails, because then the group must
    stay."""
    try:
        await delete_state_of(broker, group_id)
    except ApiError as error:
        return error
    return None


def _result(group_id: str, code: int) -> Message:
    return Message(group_id=group_id, error_code=code)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(throttle_time_ms=0, results=[_result(group_id, code) for group_id in request.groups_names])


register(ApiKey.DELETE_GROUPS, range(3), handle, error_response)
