"""OffsetCommit (key 8), versions 2-10.

5  retention time removed (KIP-211)   6  leader epoch (KIP-320)   7  group instance id (KIP-345)
8  flexible   9  GROUP_ID_NOT_FOUND, member epochs (KIP-848)   10  topic ids (KIP-848)

A member commits with its generation; other clients may commit only while the group has no members.
Left out: versions 0 and 1 (offsets in ZooKeeper; no client in use sends them).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.coordinators.group_calls import ask
from penstock.broker.net.context import RequestContext
from penstock.groups.offsets.requests import commit_error
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasGroups


def handle(broker: HasGroups, context: RequestContext, request: Message) -> Message | asyncio.Future[Message]:
    return ask(broker, context, request.group_id, lambda shard, who, token, now:
               shard.offset_commit(request, who, token, now))  # fmt: skip


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return commit_error(request, code)


register(ApiKey.OFFSET_COMMIT, range(2, 11), handle, error_response, concurrent=True)
