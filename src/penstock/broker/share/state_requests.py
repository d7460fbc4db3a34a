"""Shared by the requests about the state of share partitions (keys 83 to 87).

Other brokers send them. Each request names partitions, and the response has a result for each partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.coordinator import Outcome
from penstock.errors import ApiError
from penstock.groups.share.state import ShareStateShard
from penstock.groups.share.state_records import SharePartitionKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasShare

Step = Callable[[ShareStateShard, SharePartitionKey, Message, Any, int], Outcome]
Result = Callable[[int, ApiError | None, Message | None], Message]


def result(index: int, error: ApiError | None, **fields: object) -> Message:
    return Message(
        partition=index,
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.message,
        **fields,
    )


def changed(index: int, error: ApiError | None, answer: Message | None) -> Message:
    """The result for a request that returns only an error code."""
    return result(index, error)


async def answer(broker: HasShare, request: Message, step: Step, result_of: Result) -> Message:
    """Starts the steps of all partitions before it waits for the first."""
    begun: list[tuple[object, int, Message | asyncio.Future[Message] | ApiError]] = []
    for topic in request.topics:
        for asked in topic.partitions:
            key = SharePartitionKey(request.group_id, topic.topic_id, asked.partition)
            done: Message | asyncio.Future[Message] | ApiError
            try:
                done = broker.share.states.call(
                    key.coordinator_key,
                    lambda shard, token, now, key=key, asked=asked: step(shard, key, asked, token, now),  # type: ignore[misc]
                )
            except ApiError as error:
                done = error
            begun.append((topic.topic_id, asked.partition, done))
    topics: dict[object, list[Message]] = {}
    for topic_id, index, one in begun:
        found: Message | None = None
        failure: ApiError | None = None
        try:
            if isinstance(one, asyncio.Future):
                found = await one
            elif isinstance(one, ApiError):
                failure = one
            else:
                found = one
        except ApiError as error:
            failure = error
        topics.setdefault(topic_id, []).append(result_of(index, failure, found))
    return Message(results=[Message(topic_id=topic, partitions=found) for topic, found in topics.items()])


def refused(request: Message, result_of: Result, error: ApiError) -> Message:
    return Message(
        results=[
            Message(
                topic_id=topic.topic_id,
                partitions=[result_of(asked.partition, error, None) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )
