"""CreateTopics (key 19), versions 2-7.

2  throttle time   4  -1 for the broker's defaults (KIP-464)   5  flexible; partitions, replicas and settings
   in the answer (KIP-525)   6  THROTTLING_QUOTA_EXCEEDED   7  topic id (KIP-516)

A topic that fails does not affect the others. When the response is sent, the topics have logs and leaders.
Left out: versions 0 and 1. The timeout is ignored: creating a topic does not wait for other brokers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.broker.security.quotas.throttle import QUOTA_EXCEEDED, admitted
from penstock.config import describe_topic
from penstock.controller import CreateTopicResult, TopicSpec
from penstock.errors import ThrottlingQuotaExceeded
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message
from penstock.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from penstock.broker.parts import CanCatchUp, HasConfig, HasController, HasQuotas

    class CreateTopicsParts(CanCatchUp, HasConfig, HasController, HasQuotas, Protocol): ...


_STRICT_SINCE = 6


async def handle(broker: CreateTopicsParts, context: RequestContext, request: Message) -> Message:
    specs = [
        TopicSpec(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            [(item.partition_index, item.broker_ids) for item in topic.assignments],
            {config.name: config.value for config in topic.configs},
        )
        for topic in request.topics
    ]
    strict = context.version >= _STRICT_SINCE
    specs, throttled = admitted(broker, context, specs, lambda spec: _partitions(broker, spec), strict=strict)
    results = await broker.controller.create_topics(specs, request.validate_only) if specs else []
    await broker.caught_up()
    topics = [_result(broker, result) for result in results]
    topics += [_failed(spec.name, ThrottlingQuotaExceeded.code, QUOTA_EXCEEDED) for spec in throttled]
    return Message(throttle_time_ms=0, topics=topics)


def _partitions(broker: CreateTopicsParts, spec: TopicSpec) -> int:
    if spec.assignments:
        return len(spec.assignments)
    count: int = broker.config.num_partitions if spec.num_partitions < 1 else spec.num_partitions
    return count


def _result(broker: CreateTopicsParts, result: CreateTopicResult) -> Message:
    if result.error is not None:
        return _failed(result.name, result.error.code, result.error.message)
    configs = [
        Message(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=int(entry.source),
            is_sensitive=entry.sensitive,
        )
        for entry in describe_topic(broker.config, result.configs)
    ]
    return Message(
        name=result.name,
        topic_id=result.topic_id,
        error_code=0,
        error_message=None,
        topic_config_error_code=0,
        num_partitions=result.num_partitions,
        replication_factor=result.replication_factor,
        configs=configs,
    )


def _failed(name: str, code: int, message: str | None = None) -> Message:
    return Message(
        name=name,
        topic_id=ZERO_UUID,
        error_code=code,
        error_message=message,
        topic_config_error_code=0,
        num_partitions=-1,
        replication_factor=-1,
        configs=[],
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return Message(throttle_time_ms=0, topics=[_failed(topic.name, code) for topic in request.topics])


register(ApiKey.CREATE_TOPICS, range(2, 8), handle, error_response)
