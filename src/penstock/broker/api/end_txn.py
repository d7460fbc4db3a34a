"""EndTxn (key 26), versions 0-5.

2  PRODUCER_FENCED (KIP-588)   3  flexible   4  TRANSACTION_ABORTABLE (KIP-890)
5  transaction version 2: every end bumps the epoch; the response has the producer id and epoch to use next

The response is sent when the decision to commit or abort is written to the transaction log. It also waits for
the markers for up to `add.partitions.to.txn.retry.backoff.max.ms`, because the client cannot begin its next
transaction before they are written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.errors import InvalidProducerEpoch, ProducerFenced
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasConfig, HasTransactions

    class EndTxnParts(HasConfig, HasTransactions, Protocol): ...


def handle(
    broker: EndTxnParts, context: RequestContext, request: Message
) -> Message | Coroutine[Any, Any, Message]:
    version, host = context.version, broker.transactions
    answer = host.call(
        request.transactional_id, lambda shard, token, now: shard.end_txn(request, version, token, now)
    )
    if isinstance(answer, asyncio.Future) or host.is_ending(request.transactional_id):
        return _ended(broker, request.transactional_id, answer)
    return answer


async def _ended(
    broker: EndTxnParts, transactional_id: str, answer: Message | asyncio.Future[Message]
) -> Message:
    decided = await answer if isinstance(answer, asyncio.Future) else answer
    if broker.transactions.is_ending(transactional_id):
        await broker.transactions.ended(
            transactional_id, broker.config.add_partitions_to_txn_retry_backoff_max_ms
        )
    return decided


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    if context.version < 2 and code == ProducerFenced.code:
        code = InvalidProducerEpoch.code
    return Message(throttle_time_ms=0, error_code=code, producer_id=-1, producer_epoch=-1)


register(ApiKey.END_TXN, range(6), handle, error_response)
