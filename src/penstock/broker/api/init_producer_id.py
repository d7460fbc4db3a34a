"""InitProducerId (key 22), versions 0-6.

2  flexible   3  producer id and epoch of the caller (KIP-360)   4  PRODUCER_FENCED   5  (KIP-890)
6  two-phase commit (KIP-939)

Ids come from blocks that the controller hands out and records, so that none is ever given twice.
Left out: transactions. A transactional id is answered COORDINATOR_NOT_AVAILABLE, which is what Kafka says
where the coordinator of an id cannot be reached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.context import RequestContext
from penstock.broker.registry import register
from penstock.errors import CoordinatorNotAvailable, InvalidRequest
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


async def handle(broker: Broker, context: RequestContext, request: Message) -> Message:
    if request.transactional_id is not None:
        if request.transactional_id == "":
            raise InvalidRequest("an empty transactional id")
        raise CoordinatorNotAvailable()
    producer_id = await broker.producer_ids.next()
    return Message(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=0)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(throttle_time_ms=0, error_code=code, producer_id=-1, producer_epoch=-1)


register(ApiKey.INIT_PRODUCER_ID, range(7), handle, error_response)
