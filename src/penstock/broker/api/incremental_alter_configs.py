"""IncrementalAlterConfigs (key 44), versions 0-1 (KIP-339).

1  flexible

Sets, deletes, appends to and subtracts from single settings of topics, brokers, groups and client metrics
subscriptions, and sets and deletes the levels of this broker's loggers. The changes of one resource are
applied together or not at all.
Unknown broker settings, and those that Kafka has but Penstock does not use, are accepted without effect and
logged as a warning.
Left out: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.broker import loggers
from penstock.broker.api.alter_configs import answer, error_response
from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.controller import AlterResource, ConfigOp, ResourceType
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import CanCatchUp, HasController, HasId

    class IncrementalAlterConfigsParts(CanCatchUp, HasController, HasId, Protocol): ...


async def handle(broker: IncrementalAlterConfigsParts, context: RequestContext, request: Message) -> Message:
    resources = [
        AlterResource(
            resource.resource_type,
            resource.resource_name,
            [ConfigOp(config.name, config.value, config.config_operation) for config in resource.configs],
        )
        for resource in request.resources
    ]
    own = [each for each in resources if each.type == ResourceType.BROKER_LOGGER]
    results = loggers.alter(broker.id, own, request.validate_only)
    others = [each for each in resources if each.type != ResourceType.BROKER_LOGGER]
    if others:
        results += await broker.controller.incremental_alter_configs(others, request.validate_only)
        await broker.caught_up()
    return answer(results)


register(ApiKey.INCREMENTAL_ALTER_CONFIGS, range(2), handle, error_response)
