"""DescribeTransactions (key 65), version 0 (KIP-664).

State, timeout, start, producer and partitions of each transactional id that this broker coordinates.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.errors import ApiError, InvalidRequest
from penstock.transactions.listing import described
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasTransactions


async def handle(broker: HasTransactions, context: RequestContext, request: Message) -> Message:
    states = await asyncio.gather(
        *(_described(broker, transactional_id) for transactional_id in request.transactional_ids)
    )
    return Message(throttle_time_ms=0, transaction_states=list(states))


async def _described(broker: HasTransactions, transactional_id: str) -> Message:
    try:
        if not transactional_id:
            raise InvalidRequest("an empty transactional id")
        return await broker.transactions.read(
            transactional_id, lambda shard: described(shard.transactions, transactional_id)
        )
    except ApiError as error:
        return _failed(transactional_id, error.code)


def _failed(transactional_id: str, code: int) -> Message:
    return Message(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    states = [_failed(transactional_id, code) for transactional_id in request.transactional_ids]
    return Message(throttle_time_ms=0, transaction_states=states)


register(ApiKey.DESCRIBE_TRANSACTIONS, range(1), handle, error_response)
