"""DeleteShareGroupState (key 86), version 0 (KIP-932).

Sent when the group or the topic was deleted. Deleting state that does not exist succeeds.
Left out: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.broker.share.state_requests import answer, changed, refused
from penstock.errors import error_for_code
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasShare


async def handle(broker: HasShare, context: RequestContext, request: Message) -> Message:
    return await answer(
        broker,
        request,
        lambda shard, key, asked, token, now: shard.delete([key], token),
        changed,
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return refused(request, changed, error_for_code(code)())


register(ApiKey.DELETE_SHARE_GROUP_STATE, range(1), handle, error_response, concurrent=True)
