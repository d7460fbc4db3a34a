"""WriteShareGroupState (key 85), version 0 (KIP-932).

The leader of a partition writes its changes: the start offset (-1 if unchanged) and the states of offsets
after it. The leader epoch and the state epoch fence the leader.
Left out: version 1: its delivery-complete count is not stored but computed on request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.broker.share.state_requests import answer, changed, refused
from penstock.errors import error_for_code
from penstock.groups.share.batches import StateBatch
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasShare


async def handle(broker: HasShare, context: RequestContext, request: Message) -> Message:
    return await answer(
        broker,
        request,
        lambda shard, key, asked, token, now: shard.write(
            key,
            asked.state_epoch,
            asked.leader_epoch,
            asked.start_offset,
            [
                StateBatch(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
                for one in asked.state_batches
            ],
            token,
            now,
        ),
        changed,
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return refused(request, changed, error_for_code(code)())


register(ApiKey.WRITE_SHARE_GROUP_STATE, range(1), handle, error_response, concurrent=True)
