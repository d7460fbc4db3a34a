"""AlterPartition (key 56), versions 2-3, between brokers.

2  topic ids (KIP-841)   3  the epochs of the in-sync brokers (KIP-903)

A leader asks the controller to change the in-sync replicas of its partitions. The response is sent when the
change is stored.
Left out: leader recovery after an unclean election: its state is returned, but nothing depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.errors import NotController
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasMembership


async def handle(broker: HasMembership, context: RequestContext, request: Message) -> Message:
    if broker.membership is None:
        raise NotController("this broker runs without ZooKeeper, as a single broker")
    return await broker.membership.alter_partition(request)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(error_code=code, topics=[])


register(ApiKey.ALTER_PARTITION, range(2, 4), handle, error_response)
