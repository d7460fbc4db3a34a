"""InitProducerId (key 22), versions 0-6.

2  flexible   3  producer id and epoch of the caller (KIP-360)   4  PRODUCER_FENCED (KIP-588)
5  TRANSACTION_ABORTABLE (KIP-890)   6  two-phase commit (KIP-939)

Without a transactional id: returns an id from a block that the controller has allocated, so that no id is
given out twice. With one: the transaction coordinator decides (`transactions`).
Left out: two-phase commit. It is rejected with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, as by a Kafka broker
that does not enable it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.errors import (
    InvalidProducerEpoch,
    InvalidRequest,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
    UnsupportedVersion,
)
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasProducerIds, HasTransactions

    class InitProducerIdParts(HasProducerIds, HasTransactions, Protocol): ...


async def handle(broker: InitProducerIdParts, context: RequestContext, request: Message) -> Message:
    if request.transactional_id is not None:
        return await _transactional(broker, request)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        raise InvalidRequest("producer id and epoch must be set together")
    producer_id = await broker.producer_ids.next()
    return Message(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=0)


async def _transactional(broker: InitProducerIdParts, request: Message) -> Message:
    if request.transactional_id == "":
        raise InvalidRequest("an empty transactional id")
    if request.enable2_pc:
        raise TransactionalIdAuthorizationFailed("two-phase commit is not enabled")
    if request.keep_prepared_txn:
        raise UnsupportedVersion("prepared transactions are not kept")
    await broker.transactions.producer_ids.filled()
    answer = broker.transactions.call(
        request.transactional_id, lambda shard, token, now: shard.init_producer_id(request, token, now)
    )
    return await answer if isinstance(answer, asyncio.Future) else answer


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    if context.version < 4 and code == ProducerFenced.code:
        code = InvalidProducerEpoch.code
    return Message(throttle_time_ms=0, error_code=code, producer_id=-1, producer_epoch=-1)


register(ApiKey.INIT_PRODUCER_ID, range(7), handle, error_response)
