"""DeleteTopics (key 20), versions 1-6.

3  TOPIC_DELETION_DISABLED   4  flexible   5  messages, THROTTLING_QUOTA_EXCEEDED   6  topics by id (KIP-516)

When the response is sent, no client can use the topic any longer; its files are deleted after
file.delete.delay.ms.
Left out: version 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.broker.security.quotas.throttle import QUOTA_EXCEEDED, admitted
from penstock.controller import TopicRef
from penstock.errors import InvalidRequest, ThrottlingQuotaExceeded, TopicDeletionDisabled
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from penstock.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from penstock.broker.parts import CanCatchUp, HasController, HasImage, HasQuotas

    class DeleteTopicsParts(CanCatchUp, HasController, HasImage, HasQuotas, Protocol): ...


_STRICT_SINCE = 5


async def handle(broker: DeleteTopicsParts, context: RequestContext, request: Message) -> Message:
    refs, throttled = admitted(
        broker, context, _refs(context, request), lambda ref: _partitions(broker, ref),
        strict=context.version >= _STRICT_SINCE,
    )  # fmt: skip
    try:
        results = await broker.controller.delete_topics(refs) if refs else []
    except TopicDeletionDisabled as error:
        # Versions before 3 do not have that error.
        code = error.code if context.version >= 3 else InvalidRequest.code
        return error_response(context, request, code)
    await broker.caught_up()
    responses = [
        _result(result.name, result.topic_id, 0 if result.error is None else result.error.code,
                None if result.error is None else result.error.message)
        for result in results
    ]  # fmt: skip
    responses += [
        _result(ref.name, ref.topic_id, ThrottlingQuotaExceeded.code, QUOTA_EXCEEDED) for ref in throttled
    ]
    return Message(throttle_time_ms=0, responses=responses)


def _partitions(broker: DeleteTopicsParts, ref: TopicRef) -> int:
    image = broker.image
    topic = image.topics_by_id.get(ref.topic_id) if ref.name is None else image.topics.get(ref.name)
    return 0 if topic is None else len(topic.partitions)


def _refs(context: RequestContext, request: Message) -> list[TopicRef]:
    if context.version >= 6:
        return [TopicRef(topic.name, topic.topic_id) for topic in request.topics]
    return [TopicRef(name) for name in request.topic_names]


def _result(name: str | None, topic_id: object, code: int, message: str | None) -> Message:
    return Message(name=name, topic_id=topic_id, error_code=code, error_message=message)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    responses = [_result(ref.name, ref.topic_id or ZERO_UUID, code, None) for ref in _refs(context, request)]
    return Message(throttle_time_ms=0, responses=responses)


register(ApiKey.DELETE_TOPICS, range(1, 7), handle, error_response)
