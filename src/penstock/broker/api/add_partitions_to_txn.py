"""AddPartitionsToTxn (key 24), versions 0-5.

2  PRODUCER_FENCED (KIP-588)   3  flexible   4  many transactions, verify only (KIP-890: brokers send it)
5  TRANSACTION_ABORTABLE

All partitions of a transaction are added, or none: if one does not exist, the response has
OPERATION_NOT_ATTEMPTED for the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.errors import (
    ApiError,
    InvalidProducerEpoch,
    OperationNotAttempted,
    ProducerFenced,
    UnknownTopicOrPartition,
)
from penstock.transactions.state import TV_0, TV_2, TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasImage, HasTransactions

    class AddPartitionsToTxnParts(HasImage, HasTransactions, Protocol): ...


_BATCHED = 4

Codes = dict[TopicPartition, int]


def handle(
    broker: AddPartitionsToTxnParts, context: RequestContext, request: Message
) -> Message | Coroutine[Any, Any, Message]:
    transactions = _transactions(context, request)
    begun = [_begin(broker, context, transaction) for transaction in transactions]
    done = [one for one in begun if not isinstance(one, asyncio.Future)]
    if len(done) < len(begun):
        return _finish(context, transactions, begun)
    return _answer(context, list(map(_result, transactions, done)))


async def _finish(
    context: RequestContext, transactions: list[Message], begun: list[Codes | asyncio.Future[Message]]
) -> Message:
    """Waits until the added partitions are replicated in the transaction log, then builds the response."""
    results = []
    for transaction, one in zip(transactions, begun, strict=True):
        if isinstance(one, asyncio.Future):
            try:
                one = _codes(transaction, await one)
            except ApiError as error:
                one = dict.fromkeys(_partitions(transaction), _code(context, error.code))
        results.append(_result(transaction, one))
    return _answer(context, results)


def _begin(
    broker: AddPartitionsToTxnParts, context: RequestContext, transaction: Message
) -> Codes | asyncio.Future[Message]:
    wanted = _partitions(transaction)
    topics = broker.image.topics
    unknown = {
        (topic, index)
        for topic, index in wanted
        if topic not in topics or not 0 <= index < len(topics[topic].partitions)
    }
    if unknown:
        return {
            key: (UnknownTopicOrPartition if key in unknown else OperationNotAttempted).code for key in wanted
        }
    transactional_id = transaction.transactional_id
    producer = transaction.producer_id, transaction.producer_epoch
    try:
        client_version = TV_2 if context.version >= _BATCHED else TV_0
        answer = broker.transactions.call(
            transactional_id,
            lambda shard, token, now: (
                shard.verify_partitions(transactional_id, *producer, wanted, token)
                if transaction.verify_only
                else shard.add_partitions(
                    transactional_id, *producer, frozenset(wanted), client_version, token, now
                )
            ),
        )
    except ApiError as error:
        return dict.fromkeys(wanted, _code(context, error.code))
    return answer if isinstance(answer, asyncio.Future) else _codes(transaction, answer)


def _codes(transaction: Message, answer: Message) -> Codes:
    refused: dict[TopicPartition, ApiError] = answer.refused if transaction.verify_only else {}
    return {key: refused[key].code if key in refused else 0 for key in _partitions(transaction)}


def _transactions(context: RequestContext, request: Message) -> list[Message]:
    """The transactions of the request; before version 4 a request has exactly one."""
    if context.version >= _BATCHED:
        transactions: list[Message] = request.transactions
        return transactions
    return [
        Message(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            verify_only=False,
            topics=request.v3_and_below_topics,
        )
    ]


def _partitions(transaction: Message) -> list[TopicPartition]:
    return [(topic.name, index) for topic in transaction.topics for index in topic.partitions]


def _result(transaction: Message, codes: Codes) -> Message:
    topics = [
        Message(
            name=topic.name,
            results_by_partition=[
                Message(partition_index=index, partition_error_code=codes[topic.name, index])
                for index in topic.partitions
            ],
        )
        for topic in transaction.topics
    ]
    return Message(transactional_id=transaction.transactional_id, topic_results=topics)


def _answer(context: RequestContext, results: list[Message], code: int = 0) -> Message:
    if context.version >= _BATCHED:
        return Message(throttle_time_ms=0, error_code=code, results_by_transaction=results)
    return Message(throttle_time_ms=0, results_by_topic_v3_and_below=results[0].topic_results)


def _code(context: RequestContext, code: int) -> int:
    return InvalidProducerEpoch.code if context.version < 2 and code == ProducerFenced.code else code


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    code = _code(context, code)
    results = [
        _result(transaction, dict.fromkeys(_partitions(transaction), code))
        for transaction in _transactions(context, request)
    ]
    return _answer(context, results, code)


register(ApiKey.ADD_PARTITIONS_TO_TXN, range(6), handle, error_response, concurrent=True)
