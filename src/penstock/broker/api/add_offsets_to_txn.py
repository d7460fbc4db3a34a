"""AddOffsetsToTxn (key 25), versions 0-4.

2  PRODUCER_FENCED (KIP-588)   3  flexible   4  TRANSACTION_ABORTABLE (KIP-890)

Adds the partition of `__consumer_offsets` that holds the group's offsets to the transaction. A client of
transaction version 2 does not send this request: its TxnOffsetCommit adds the partition.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.errors import InvalidGroupId, InvalidProducerEpoch, ProducerFenced
from penstock.transactions.state import TV_0
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasGroups, HasTransactions

    class AddOffsetsToTxnParts(HasGroups, HasTransactions, Protocol): ...


async def handle(broker: AddOffsetsToTxnParts, context: RequestContext, request: Message) -> Message:
    if not request.group_id:
        raise InvalidGroupId("an empty group id")
    groups = broker.groups
    await groups.ensure_topic()
    offsets = frozenset(((groups.topic.name, groups.partition_of(request.group_id)),))
    answer = broker.transactions.call(
        request.transactional_id,
        lambda shard, token, now: shard.add_partitions(
            request.transactional_id, request.producer_id, request.producer_epoch, offsets, TV_0, token, now
        ),
    )
    if isinstance(answer, asyncio.Future):
        await answer
    return Message(throttle_time_ms=0, error_code=0)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    if context.version < 2 and code == ProducerFenced.code:
        code = InvalidProducerEpoch.code
    return Message(throttle_time_ms=0, error_code=code)


register(ApiKey.ADD_OFFSETS_TO_TXN, range(5), handle, error_response)
