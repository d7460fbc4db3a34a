"""InitializeShareGroupState (key 83), version 0 (KIP-932).

Creates the state of share partitions, or resets it with a higher state epoch. With a start offset of -1 the
leader of the partition chooses the offset, and existing state of this epoch is not changed.
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
        lambda shard, key, asked, token, now: shard.initialize(
            key, asked.state_epoch, asked.start_offset, token, now
        ),
        changed,
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return refused(request, changed, error_for_code(code)())


register(ApiKey.INITIALIZE_SHARE_GROUP_STATE, range(1), handle, error_response, concurrent=True)
