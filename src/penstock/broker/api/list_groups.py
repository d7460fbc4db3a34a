"""ListGroups (key 16), versions 0-5.

3  flexible   4  states, and a filter by them (KIP-518)   5  types, and a filter by them (KIP-848)

Every broker lists the groups that it coordinates. While it loads one of its partitions it returns
COORDINATOR_LOAD_IN_PROGRESS, because the list would lack the groups of that partition.
Left out: nothing.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasGroups


async def handle(broker: HasGroups, context: RequestContext, request: Message) -> Message:
    states, types = request.states_filter, request.types_filter
    found = await broker.groups.read_all(lambda shard: shard.list_groups(states, types))
    return Message(throttle_time_ms=0, error_code=0, groups=list(chain.from_iterable(found)))


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(throttle_time_ms=0, error_code=code, groups=[])


register(ApiKey.LIST_GROUPS, range(6), handle, error_response)
