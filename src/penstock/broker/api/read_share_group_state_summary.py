"""ReadShareGroupStateSummary (key 87), version 0 (KIP-932).

Returns the start offset of a share partition, without the in-flight records. Without state all fields are -1.
Left out: version 1: its delivery-complete count is not stored.
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
        lambda shard, key, asked, token, now: shard.summary(key, token),
        _result,
    )


def _result(index: int, error: ApiError | None, found: Message | None) -> Message:
    return result(
        index,
        error,
        state_epoch=-1 if found is None else found.state_epoch,
        leader_epoch=-1 if found is None else found.leader_epoch,
        start_offset=-1 if found is None else found.start_offset,
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return refused(request, _result, error_for_code(code)())


register(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, range(1), handle, error_response, concurrent=True)
