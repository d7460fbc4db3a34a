"""Client metrics (KIP-714): subscriptions, and what clients have pushed.

Subscriptions are settings of CLIENT_METRICS resources, as in Kafka. What was pushed is read from the topic in
which Penstock's brokers keep it; Apache Kafka hands it to a plugin instead.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from penstock.admin.cluster import Cluster, choose_partitions
from penstock.admin.failure import CommandFailed, UnknownTopic
from penstock.admin.positions import find_range, parse_position
from penstock.admin.reader import StopRequest, read_records
from penstock.admin.wire_client import WireCluster, failure
from penstock.errors import UnsupportedVersion, error_for_code
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

TOPIC = "__penstock_client_metrics"
_CLIENT_METRICS = 16
_SET, _DELETE = 0, 1


def subscriptions(cluster: Cluster) -> dict[str, dict[str, str]]:
    """The settings of each subscription, by its name."""
    with WireCluster(cluster) as wire:
        broker = wire.brokers()[0]
        try:
            listed = broker.request(ApiKey.LIST_CONFIG_RESOURCES, Message(resource_types=[_CLIENT_METRICS]))
        except UnsupportedVersion as error:
            raise failure(error, "cannot list client metrics subscriptions") from None
        _check(listed.error_code, None, "cannot list client metrics subscriptions")
        names = sorted(
            one.resource_name
            for one in listed.config_resources
            if getattr(one, "resource_type", _CLIENT_METRICS) == _CLIENT_METRICS
        )
        resources = [
            Message(resource_type=_CLIENT_METRICS, resource_name=name, configuration_keys=None)
            for name in names
        ]
        request = Message(resources=resources, include_synonyms=False, include_documentation=False)
        answer = broker.request(ApiKey.DESCRIBE_CONFIGS, request)
    found = {}
    for one in answer.results:
        _check(one.error_code, one.error_message, f"cannot describe subscription '{one.resource_name}'")
        found[one.resource_name] = {each.name: each.value or "" for each in one.configs}
    return found


def alter_subscription(cluster: Cluster, name: str, changes: Mapping[str, str | None]) -> None:
    """Sets the settings that have a value, and deletes those that have none."""
    configs = [
        Message(name=key, config_operation=_DELETE if value is None else _SET, value=value)
        for key, value in changes.items()
    ]
    resource = Message(resource_type=_CLIENT_METRICS, resource_name=name, configs=configs)
    with WireCluster(cluster) as wire:
        request = Message(resources=[resource], validate_only=False)
        (result,) = wire.brokers()[0].request(ApiKey.INCREMENTAL_ALTER_CONFIGS, request).responses
    _check(result.error_code, result.error_message, f"cannot change subscription '{name}'")


def pushes(cluster: Cluster) -> list[dict[str, Any]]:
    """The latest push of each client instance, newest first, as it is in the topic."""
    try:
        partitions = choose_partitions(cluster.topic(TOPIC), ())
    except UnknownTopic:
        return []
    position = parse_position("earliest", int(time.time() * 1000))
    starts, ends = find_range(cluster, TOPIC, partitions, position, read_committed=False)
    latest: dict[str, dict[str, Any]] = {}
    for messages in read_records(cluster, TOPIC, starts, ends, {}, StopRequest(), lambda _: None):
        for message in messages:
            found = _decoded(message.value())
            if found is not None:
                latest[found["client_instance_id"]] = found
    return sorted(latest.values(), key=lambda one: int(one["time_ms"]), reverse=True)


def _decoded(value: bytes | None) -> dict[str, Any] | None:
    """None for a tombstone."""
    if value is None:
        return None
    try:
        found = json.loads(value)
        if isinstance(found["client_instance_id"], str) and isinstance(found["time_ms"], int):
            return dict(found)
    except (ValueError, TypeError, KeyError):
        pass
    raise CommandFailed(f"{TOPIC} has a record that is not one of a broker: {value[:80]!r}")


def _check(code: int, message: str | None, doing: str) -> None:
    if code:
        raise failure(error_for_code(code)(message), doing)
