"""EndTxn (key 26), versions 0-5.

2  PRODUCER_FENCED (KIP-588)   3  flexible   4  TRANSACTION_ABORTABLE (KIP-890)
5  transaction version 2: every end bumps the epoch; the answer has producer id and epoch to go on with

The answer says that the end is decided and written down. On partitions of this broker the markers are there
by then too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.broker.context import RequestContext
from penstock.broker.registry import register
from penstock.errors import InvalidProducerEpoch, ProducerFenced
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


def handle(broker: Broker, context: RequestContext, request: Message) -> Message | asyncio.Future[Message]:
    version = context.version
    return broker.transactions.call(
        request.transactional_id, lambda shard, token, now: shard.end_txn(request, version, token, now)
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    if context.version < 2 and code == ProducerFenced.code:
        code = InvalidProducerEpoch.code
    return Message(throttle_time_ms=0, error_code=code, producer_id=-1, producer_epoch=-1)


register(ApiKey.END_TXN, range(6), handle, error_response)
