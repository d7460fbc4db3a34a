"""ReadShareGroupState (key 84), version 0 (KIP-932).

Sent by a broker that becomes the leader of a partition: it fences leaders of older epochs. With a leader
epoch of -1 it only reads. INVALID_REQUEST if there is no state.
Left out: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.broker.share.state_requests import answer, refused, result
from penstock.errors import ApiError, error_for_code
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasShare


async def handle(broker: HasShare, context: RequestContext, request: Message) -> Message:
    return await answer(
        broker,
        request,
        lambda shard, key, asked, token, now: shard.read(key, asked.leader_epoch, token),
        _result,
    )


def _result(index: int, error: ApiError | None, found: Message | None) -> Message:
    return result(
        index,
        error,
        state_epoch=0 if found is None else found.state_epoch,
        start_offset=-1 if found is None else found.start_offset,
        state_batches=[] if found is None else found.state_batches,
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return refused(request, _result, error_for_code(code)())


register(ApiKey.READ_SHARE_GROUP_STATE, range(1), handle, error_response, concurrent=True)
