"""CreatePartitions (key 37), versions 0-3.

2  flexible   3  THROTTLING_QUOTA_EXCEEDED

When the response is sent, the new partitions have logs and leaders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.broker.security.quotas.throttle import QUOTA_EXCEEDED, admitted
from penstock.controller import PartitionsSpec
from penstock.errors import ThrottlingQuotaExceeded
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import CanCatchUp, HasController, HasImage, HasQuotas

    class CreatePartitionsParts(CanCatchUp, HasController, HasImage, HasQuotas, Protocol): ...


_STRICT_SINCE = 3


async def handle(broker: CreatePartitionsParts, context: RequestContext, request: Message) -> Message:
    specs = [
        PartitionsSpec(
            topic.name,
            topic.count,
            None if topic.assignments is None else [item.broker_ids for item in topic.assignments],
        )
        for topic in request.topics
    ]
    specs, throttled = admitted(
        broker, context, specs, lambda spec: _added(broker, spec), strict=context.version >= _STRICT_SINCE
    )
    results = await broker.controller.create_partitions(specs, request.validate_only) if specs else []
    await broker.caught_up()
    answers = []
    for result in results:
        code, message = (0, None) if result.error is None else (result.error.code, result.error.message)
        answers.append(Message(name=result.name, error_code=code, error_message=message))
    code = ThrottlingQuotaExceeded.code
    answers += [Message(name=spec.name, error_code=code, error_message=QUOTA_EXCEEDED) for spec in throttled]
    return Message(throttle_time_ms=0, results=answers)


def _added(broker: CreatePartitionsParts, spec: PartitionsSpec) -> int:
    topic = broker.image.topics.get(spec.name)
    return 0 if topic is None else max(0, spec.count - len(topic.partitions))


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    results = [Message(name=topic.name, error_code=code, error_message=None) for topic in request.topics]
    return Message(throttle_time_ms=0, results=results)


register(ApiKey.CREATE_PARTITIONS, range(4), handle, error_response)
