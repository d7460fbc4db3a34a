"""Settings of topics and brokers: their values and sources, and changing them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from penstock.admin.cluster import Cluster, admin_types
from penstock.admin.failure import CommandFailed, UnknownTopic

_SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_BROKER_CONFIG": "broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "cluster",
    "STATIC_BROKER_CONFIG": "broker file",
    "DEFAULT_CONFIG": "default",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One configuration entry; `source` is topic, broker, cluster, broker file or default."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool


def describe_configs(cluster: Cluster, kind: str, name: str) -> list[Setting]:
    """Every setting of a topic or broker, sorted by name."""
    from confluent_kafka import KafkaError, KafkaException

    resource = _resource(cluster, kind, name)
    future = cluster.admin.describe_configs([resource], request_timeout=cluster.timeout)[resource]
    try:
        entries: dict[str, Any] = future.result()
    except KafkaException as error:
        if kind == "topic" and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise UnknownTopic(name, cluster.topics()) from error
        raise cluster.failure(error, f"cannot read the settings of {kind} '{name}'") from error
    return [_setting(entry) for _, entry in sorted(entries.items())]


def alter_configs(
    cluster: Cluster, kind: str, name: str, changes: dict[str, str | None], validate_only: bool
) -> None:
    """Set the keys that have a value and delete those that have none, in one IncrementalAlterConfigs."""
    from confluent_kafka import KafkaError, KafkaException

    types = admin_types()
    resource = _resource(cluster, kind, name)
    for key, value in changes.items():
        operation = types.AlterConfigOpType.DELETE if value is None else types.AlterConfigOpType.SET
        resource.add_incremental_config(types.ConfigEntry(key, value, incremental_operation=operation))
    futures = cluster.admin.incremental_alter_configs(
        [resource], validate_only=validate_only, request_timeout=cluster.timeout
    )
    try:
        futures[resource].result()
    except KafkaException as error:
        if kind == "topic" and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise UnknownTopic(name, cluster.topics()) from error
        raise cluster.failure(error, f"cannot change {kind} '{name}'") from error


def _resource(cluster: Cluster, kind: str, name: str) -> Any:
    if kind == "broker" and not name.isdecimal():
        raise click.BadParameter(f"a broker is named by its id, a number, not '{name}'", param_hint="'NAME'")
    if kind == "broker" and int(name) not in (brokers := cluster.broker_ids()):
        # librdkafka would wait for the topic to appear.
        raise CommandFailed(f"no broker {name} in this cluster: it has {', '.join(map(str, brokers))}.")
    if not name:
        raise CommandFailed("a topic's name cannot be empty")
    return admin_types().ConfigResource(kind, name)


def _setting(entry: Any) -> Setting:
    # confluent-kafka returns the source as the protocol's number.
    source = admin_types().ConfigSource(entry.source).name
    return Setting(
        entry.name, entry.value, _SOURCES.get(source, source.lower()), entry.is_read_only, entry.is_sensitive
    )
