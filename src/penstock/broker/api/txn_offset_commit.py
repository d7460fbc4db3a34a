"""TxnOffsetCommit (key 28), versions 0-5.

2  leader epochs   3  flexible, member and generation (KIP-447)   4  TRANSACTION_ABORTABLE (KIP-890)
5  transaction version 2: the group's offsets become part of the transaction by this request alone

The offsets become visible when the transaction commits. The group coordinator checks the member (KIP-447),
the transaction coordinator that the transaction is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.broker.transactions.verification import Refused, Verification
from penstock.coordinator import Producer
from penstock.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, NotEnoughReplicas
from penstock.groups.group import Caller
from penstock.groups.offsets.requests import commit_error
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasGroups, HasTransactions

    class TxnOffsetCommitParts(HasGroups, HasTransactions, Protocol): ...


_KNOWS_ABORTABLE, _ADDS = 4, 5


def handle(
    broker: TxnOffsetCommitParts, context: RequestContext, request: Message
) -> Message | asyncio.Future[Message] | Coroutine[Any, Any, Message]:
    version, groups = context.version, broker.groups
    groups.shard_for(request.group_id)  # raises if another broker coordinates the group
    offsets = (groups.topic.name, groups.partition_of(request.group_id))
    refused = broker.transactions.verifier.verify(
        Verification(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            [offsets],
            add=version >= _ADDS,
            abortable=version >= _KNOWS_ABORTABLE,
            request="TxnOffsetCommit",
        )
    )
    if isinstance(refused, Mapping):
        return _commit(broker, context, request, refused)
    return _verified(broker, context, request, refused)


async def _verified(
    broker: TxnOffsetCommitParts,
    context: RequestContext,
    request: Message,
    verification: Coroutine[Any, Any, Refused],
) -> Message:
    answer = _commit(broker, context, request, await verification)
    return await answer if isinstance(answer, asyncio.Future) else answer


def _commit(
    broker: TxnOffsetCommitParts, context: RequestContext, request: Message, refused: Refused
) -> Message | asyncio.Future[Message]:
    for error in refused.values():
        if isinstance(error, NotEnoughReplicas):
            # As in Kafka: clients retry without looking for another coordinator.
            raise CoordinatorLoadInProgress(error.message)
        raise error
    who = Caller(context.client_id or "", context.peer, context.version)
    return broker.groups.call(
        request.group_id, lambda shard, token, now: shard.txn_offset_commit(request, who, token, now)
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    if context.version < 2 and code == CoordinatorLoadInProgress.code:
        code = (
            CoordinatorNotAvailable.code
        )  # clients of these versions may crash on the other error (KAFKA-7296)
    return commit_error(request, code)


register(ApiKey.TXN_OFFSET_COMMIT, range(6), handle, error_response)
