"""CreatePartitions (key 37), versions 0-3.

2  flexible   3  THROTTLING_QUOTA_EXCEEDED

When it is answered, the new partitions have their logs and leaders. Left out: throttling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.context import RequestContext
from penstock.broker.registry import register
from penstock.controller import PartitionsSpec
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


async def handle(broker: Broker, context: RequestContext, request: Message) -> Message:
    specs = [
        PartitionsSpec(
            topic.name,
            topic.count,
            None if topic.assignments is None else [item.broker_ids for item in topic.assignments],
        )
        for topic in request.topics
    ]
    results = await broker.controller.create_partitions(specs, request.validate_only)
    await broker.caught_up()
    answers = []
    for result in results:
        code, message = (0, None) if result.error is None else (result.error.code, result.error.message)
        answers.append(Message(name=result.name, error_code=code, error_message=message))
    return Message(throttle_time_ms=0, results=answers)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    results = [Message(name=topic.name, error_code=code, error_message=None) for topic in request.topics]
    return Message(throttle_time_ms=0, results=results)


register(ApiKey.CREATE_PARTITIONS, range(4), handle, error_response)
