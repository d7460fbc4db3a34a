"""ListConfigResources (key 74), versions 0-1 (KIP-1142).

0  client metrics only   1  any types, those of the request or all

Lists topics, brokers, the loggers of each broker, groups that have settings of their own, and client metrics
subscriptions. Other types get UNSUPPORTED_VERSION.
Left out: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.errors import UnsupportedVersion
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasImage

_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
_KNOWN = (_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP)


def handle(broker: HasImage, context: RequestContext, request: Message) -> Message:
    image = broker.image
    names = {
        _TOPIC: sorted(image.topics),
        _BROKER: sorted(map(str, image.brokers)),
        _BROKER_LOGGER: sorted(map(str, image.brokers)),
        _CLIENT_METRICS: sorted(image.client_metrics),
        _GROUP: sorted(image.group_configs),
    }
    wanted = (_CLIENT_METRICS,) if context.version == 0 else request.resource_types or _KNOWN
    if any(type_ not in names for type_ in wanted):
        raise UnsupportedVersion(f"resources of types {wanted} cannot be listed")
    return _answer(
        [
            Message(resource_name=name, resource_type=type_)
            for type_ in dict.fromkeys(wanted)
            for name in names[type_]
        ]
    )


def _answer(resources: list[Message], code: int = 0) -> Message:
    return Message(throttle_time_ms=0, error_code=code, config_resources=resources)


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    return _answer([], code)


register(ApiKey.LIST_CONFIG_RESOURCES, range(2), handle, error_response)
