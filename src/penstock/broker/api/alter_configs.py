"""AlterConfigs (key 33), versions 0-2.

2  flexible

The older API: the given settings replace all settings of the resource. Clients since Kafka 2.3 use
IncrementalAlterConfigs; Kafka 4 still serves this one.
Left out: broker loggers, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.controller import AlterConfigsResult, AlterResource, ConfigOp
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import CanCatchUp, HasController

    class AlterConfigsParts(CanCatchUp, HasController, Protocol): ...


async def handle(broker: AlterConfigsParts, context: RequestContext, request: Message) -> Message:
    resources = [
        AlterResource(
            resource.resource_type,
            resource.resource_name,
            [ConfigOp(config.name, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    results = await broker.controller.alter_configs(resources, request.validate_only)
    await broker.caught_up()
    return answer(results)


def answer(results: Sequence[AlterConfigsResult]) -> Message:
    responses = []
    for result in results:
        code, message = (0, None) if result.error is None else (result.error.code, result.error.message)
        responses.append(_response(result.type, result.name, code, message))
    return Message(throttle_time_ms=0, responses=responses)


def _response(type: int, name: str, code: int, message: str | None) -> Message:
    return Message(error_code=code, error_message=message, resource_type=type, resource_name=name)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    responses = [
        _response(resource.resource_type, resource.resource_name, code, None)
        for resource in request.resources
    ]
    return Message(throttle_time_ms=0, responses=responses)


register(ApiKey.ALTER_CONFIGS, range(3), handle, error_response)
