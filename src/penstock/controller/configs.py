"""Plans changes of settings: validates AlterConfigs requests and computes the changes. Pure; stores nothing.

The changes of a resource are applied together or not at all; its resulting settings are validated together.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from penstock.config import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    BrokerConfig,
    ConfigType,
    check_dynamic,
    describe_group,
    describe_topic,
    parse_subscription,
    validate_group,
    validate_topic,
)
from penstock.config.types import split_list
from penstock.controller.requests import AlterConfigsResult, AlterOp, AlterResource, ConfigOp, ResourceType
from penstock.errors import (
    ApiError,
    ConfigError,
    InvalidConfig,
    InvalidRequest,
    UnknownTopicOrPartition,
)
from penstock.metadata.image import ClusterImage

Configs = dict[str, str]


class AlterPlan:
    """The resources that change, each with all its resulting settings."""

    def __init__(self) -> None:
        self.topics: dict[str, Configs] = {}
        self.brokers: dict[str, Configs] = {}
        self.groups: dict[str, Configs] = {}
        self.client_metrics: dict[str, Configs] = {}
        self.notes: list[str] = []
        """Warnings about settings that are accepted without effect."""


def plan_alter(
    image: ClusterImage,
    config: BrokerConfig,
    resources: Sequence[AlterResource],
    *,
    incremental: bool,
) -> tuple[list[AlterConfigsResult], AlterPlan]:
    """`config` are the broker's current settings. If the request is not incremental, settings that it does
    not name are removed."""
    times = Counter((resource.type, resource.name) for resource in resources)
    results, plan = [], AlterPlan()
    for resource in {(r.type, r.name): r for r in resources}.values():
        error = None
        try:
            if times[resource.type, resource.name] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            check_ops(resource.ops)
            if resource.type == ResourceType.TOPIC:
                plan.topics[resource.name] = _alter_topic(image, config, resource, incremental)
            elif resource.type == ResourceType.BROKER:
                plan.brokers[resource.name] = _alter_broker(image, config, resource, incremental, plan)
            elif resource.type == ResourceType.GROUP:
                plan.groups[resource.name] = _alter_group(image, config, resource, incremental)
            elif resource.type == ResourceType.CLIENT_METRICS:
                plan.client_metrics[resource.name] = _alter_client_metrics(image, resource, incremental)
            else:
                raise InvalidRequest(f"Unknown resource type {resource.type}")
        except ApiError as caught:
            error = caught
        results.append(AlterConfigsResult(resource.type, resource.name, error))
    return results, plan


def check_ops(ops: Sequence[ConfigOp]) -> None:
    if len({op.name for op in ops}) < len(ops):
        raise InvalidRequest("Error due to duplicate config keys")
    for op in ops:
        if op.op not in AlterOp.__members__.values():
            raise InvalidRequest(f"Unknown operation {op.op} on {op.name}")
    nulls = sorted(op.name for op in ops if op.value is None and op.op != AlterOp.DELETE)
    if nulls:
        raise InvalidRequest(f"Null value not supported for : {', '.join(nulls)}")


def _alter_topic(
    image: ClusterImage, config: BrokerConfig, resource: AlterResource, incremental: bool
) -> Configs:
    if not resource.name:
        raise InvalidRequest("Default topic resources are not allowed.")
    topic = image.topics.get(resource.name)
    if topic is None:
        raise UnknownTopicOrPartition(f"The topic '{resource.name}' does not exist.")

    def in_force(name: str) -> str:
        return next((entry.value or "" for entry in describe_topic(config, topic.configs, [name])), "")

    def is_list(name: str) -> bool:
        return name in TOPIC_CONFIGS and TOPIC_CONFIGS[name].type is ConfigType.LIST

    configs: Configs = dict(topic.configs) if incremental else {}
    for op in resource.ops:
        _apply(configs, op, is_list(op.name), in_force(op.name))
    validate_topic(config, configs)
    return configs


def _alter_broker(
    image: ClusterImage, config: BrokerConfig, resource: AlterResource, incremental: bool, plan: AlterPlan
) -> Configs:
    _check_broker_name(config, resource.name)
    altered = image.broker_configs.get(resource.name, {})
    configs: Configs = dict(altered) if incremental else {}
    notes = []
    for op in resource.ops:
        row = BROKER_CONFIGS.get(op.name)
        is_list = row is not None and row.type is ConfigType.LIST
        in_force = next((value or "" for _, value in config.layers(op.name)), "") if row else ""
        _apply(configs, op, is_list, in_force)
        if op.op != AlterOp.DELETE:
            note = check_dynamic(op.name, configs[op.name], for_all=not resource.name)
            notes += [] if note is None else [note]
    # Validated together with what this request has already altered at the other level.
    layers = {**image.broker_configs, **plan.brokers, resource.name: configs}
    try:
        config.with_dynamic(layers.get("", {}), layers.get(str(config.node_id), {}))
    except ConfigError as error:
        raise InvalidRequest(str(error)) from None
    plan.notes += notes
    return configs


def _alter_group(
    image: ClusterImage, config: BrokerConfig, resource: AlterResource, incremental: bool
) -> Configs:
    if not resource.name:
        raise InvalidRequest("Default group resources are not allowed.")
    altered = image.group_configs.get(resource.name, {})
    configs: Configs = dict(altered) if incremental else {}
    for op in resource.ops:
        entries = describe_group(config, altered, [op.name])
        in_force = (entries[0].value or "") if entries else ""
        _apply(configs, op, False, in_force)
    validate_group(config, configs)
    return configs


def _alter_client_metrics(image: ClusterImage, resource: AlterResource, incremental: bool) -> Configs:
    altered = image.client_metrics.get(resource.name, {})
    configs: Configs = dict(altered) if incremental else {}
    for op in resource.ops:
        _apply(configs, op, False, "")  # as in Kafka, nothing can be appended to their lists
    parse_subscription(resource.name, configs)
    return configs


def _check_broker_name(config: BrokerConfig, name: str) -> None:
    """As in Kafka, a broker's settings are altered at that broker, because only it can validate them."""
    if name == "":
        return
    if not re.fullmatch(r"[0-9]{1,10}", name, re.ASCII):
        raise InvalidRequest(f"Unable to parse broker name {name!r} as a base 10 number.")
    if name != str(config.node_id):
        raise InvalidRequest(
            f"Unexpected broker id, expected {config.node_id} or empty string, but received {name}"
        )


def _apply(configs: Configs, op: ConfigOp, is_list: bool, in_force: str) -> None:
    """`in_force` is the value in effect if the resource has none of its own."""
    value = op.value or ""
    match op.op:
        case AlterOp.DELETE:
            configs.pop(op.name, None)
        case AlterOp.SET:
            configs[op.name] = value
        case _:
            if not is_list:
                verb = "append to" if op.op == AlterOp.APPEND else "subtract from"
                raise InvalidConfig(f"Can't {verb} {op.name} because its type is not LIST.")
            items = split_list(configs.get(op.name, in_force))
            changed = split_list(value)
            if op.op == AlterOp.APPEND:
                items = tuple(dict.fromkeys(items + changed))
            else:
                items = tuple(item for item in items if item not in changed)
            configs[op.name] = ",".join(items)


def broker_config_in_force(image: ClusterImage, config: BrokerConfig) -> BrokerConfig:
    """The broker's settings, with the altered ones of the image applied."""
    default: Mapping[str, str] = image.broker_configs.get("", {})
    own: Mapping[str, str] = image.broker_configs.get(str(config.node_id), {})
    if default == config.dynamic_default and own == config.dynamic_broker:
        return config
    return config.with_dynamic(default, own)
