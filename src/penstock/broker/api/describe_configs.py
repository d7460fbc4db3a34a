"""DescribeConfigs (key 32), versions 1-4.

1  sources and synonyms   3  types and documentation (KIP-569)   4  flexible

Describes topics, brokers, broker loggers, groups and client metrics subscriptions. The broker resource with
an empty name has the settings that were altered for all brokers. Values of sensitive settings are null.
Left out: version 0 (no sources).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.broker import loggers
from penstock.broker.api_table import register
from penstock.broker.net.context import RequestContext
from penstock.config import (
    ConfigEntry,
    ConfigSource,
    ConfigType,
    describe_broker,
    describe_broker_defaults,
    describe_group,
    describe_subscription,
    describe_topic,
)
from penstock.controller.topics import check_topic_name
from penstock.errors import ApiError, InvalidRequest, UnknownTopicOrPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

if TYPE_CHECKING:
    from penstock.broker.parts import HasConfig, HasId, HasImage

    class DescribeConfigsParts(HasConfig, HasId, HasImage, Protocol): ...


TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def handle(broker: DescribeConfigsParts, context: RequestContext, request: Message) -> Message:
    results = []
    for resource in request.resources:
        try:
            entries = _describe(broker, resource)
        except ApiError as error:
            results.append(_result(resource, [], error.code, error.message))
            continue
        configs = [
            _entry(entry, request.include_synonyms, request.include_documentation) for entry in entries
        ]
        results.append(_result(resource, configs))
    return Message(throttle_time_ms=0, results=results)


def _describe(broker: DescribeConfigsParts, resource: Message) -> list[ConfigEntry]:
    names = resource.configuration_keys or None  # an empty list means all, as in Kafka
    if resource.resource_type == TOPIC:
        check_topic_name(resource.resource_name)
        topic = broker.image.topics.get(resource.resource_name)
        if topic is None:
            raise UnknownTopicOrPartition()
        return describe_topic(broker.config, topic.configs, names)
    if resource.resource_type == BROKER:
        if resource.resource_name == "":
            return describe_broker_defaults(broker.config.dynamic_default, names)
        if resource.resource_name != str(broker.id):
            raise InvalidRequest(f"this is broker {broker.id}, not {resource.resource_name}")
        return describe_broker(broker.config, names, advertised=_advertised(broker))
    if resource.resource_type == BROKER_LOGGER:
        levels = loggers.levels(broker.id, resource.resource_name, names)
        return [_level(name, level) for name, level in levels.items()]
    if resource.resource_type == CLIENT_METRICS:
        if resource.resource_name == "":
            raise InvalidRequest("Client metrics subscription name must not be empty")
        configs = broker.image.client_metrics.get(resource.resource_name, {})
        return describe_subscription(configs, names)
    if resource.resource_type == GROUP:
        if resource.resource_name == "":
            raise InvalidRequest("Group name must not be empty")
        configs = broker.image.group_configs.get(resource.resource_name, {})
        return describe_group(broker.config, configs, names)
    raise InvalidRequest(f"resource type {resource.resource_type} is not supported")


def _level(name: str, level: str) -> ConfigEntry:
    source, kind = ConfigSource.BROKER_LOGGER, ConfigType.UNKNOWN
    return ConfigEntry(name, level, source, read_only=False, sensitive=False, type=kind, doc="", synonyms=())


def _advertised(broker: DescribeConfigsParts) -> str | None:
    """The advertised listeners, with the ports that are actually bound."""
    known = broker.image.brokers.get(broker.id)
    if known is None:
        return None
    return ",".join(
        f"{name}://[{host}]:{port}" if ":" in host else f"{name}://{host}:{port}"
        for name, host, port in known.listeners
    )


def _entry(entry: ConfigEntry, synonyms: bool, documentation: bool) -> Message:
    return Message(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=int(entry.source),
        is_sensitive=entry.sensitive,
        synonyms=[
            Message(name=synonym.name, value=synonym.value, source=int(synonym.source))
            for synonym in (entry.synonyms if synonyms else ())
        ],
        config_type=int(entry.type),
        documentation=entry.doc if documentation else None,
    )


def _result(resource: Message, configs: list[Message], code: int = 0, message: str | None = None) -> Message:
    return Message(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def error_response(context: RequestContext, request: Message, code: int) -> Message:
    results = [_result(resource, [], code) for resource in request.resources]
    return Message(throttle_time_ms=0, results=results)


register(ApiKey.DESCRIBE_CONFIGS, range(1, 5), handle, error_response)
