"""`penstock configs`: show and change the settings of topics and brokers, with where each comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from penstock.cli.client import Cluster, admin_types
from penstock.cli.failure import CommandFailed, UnknownTopic
from penstock.cli.options.properties import topic_settings
from penstock.cli.options.shared import cluster_options, complete_topic_configs, complete_topics, json_option
from penstock.cli.output import emit_json, note, table

F = TypeVar("F", bound=Callable[..., Any])

_SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_BROKER_CONFIG": "broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "cluster",
    "STATIC_BROKER_CONFIG": "broker file",
    "DEFAULT_CONFIG": "default",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One configuration entry; `source` says who set it: topic, broker, cluster, broker file or default."""

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


def _complete_name(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return complete_topics(context, parameter, incomplete) if context.params.get("kind") == "topic" else []


def _resource_arguments(command: F) -> F:
    command = click.argument("name", shell_complete=_complete_name)(command)
    return click.argument("kind", metavar="topic|broker", type=click.Choice(("topic", "broker")))(command)


@click.group()
def configs() -> None:
    """Show and change settings of topics and brokers."""


@configs.command()
@_resource_arguments
@click.option("--all", "show_all", is_flag=True, help="Also the settings that have their default value.")
@json_option
@cluster_options
def describe(kind: str, name: str, show_all: bool, as_json: bool, cluster: Cluster) -> None:
    """Show the settings of a topic or a broker, and where each comes from.

    NAME is a topic's name or a broker's id.
    """
    settings = describe_configs(cluster, kind, name)
    shown = [setting for setting in settings if show_all or setting.source != "default"]
    if as_json:
        emit_json([asdict(setting) for setting in shown])
    elif shown:
        rows = [(s.name, "(hidden)" if s.sensitive else s.value, s.source) for s in shown]
        table(("setting", "value", "source"), rows)
    else:
        note(f"{kind} '{name}' has only default settings (--all shows them).")


@configs.command("set")
@_resource_arguments
@click.argument(
    "settings", metavar="KEY=VALUE...", nargs=-1, required=True, shell_complete=complete_topic_configs
)
@click.option("--validate-only", is_flag=True, help="Check, and change nothing.")
@json_option
@cluster_options
def set_configs(
    kind: str, name: str, settings: tuple[str, ...], validate_only: bool, as_json: bool, cluster: Cluster
) -> None:
    """Change settings of a topic or a broker. Other settings stay unchanged."""
    changes: dict[str, str | None] = dict(topic_settings(settings, "KEY=VALUE"))
    _alter(cluster, kind, name, changes, validate_only)
    _told(kind, name, changes, validate_only, as_json)


@configs.command()
@_resource_arguments
@click.argument("keys", metavar="KEY...", nargs=-1, required=True, shell_complete=complete_topic_configs)
@click.option("--validate-only", is_flag=True, help="Check, and change nothing.")
@json_option
@cluster_options
def unset(
    kind: str, name: str, keys: tuple[str, ...], validate_only: bool, as_json: bool, cluster: Cluster
) -> None:
    """Reset settings of a topic or a broker to their defaults."""
    changes: dict[str, str | None] = dict.fromkeys(keys)
    _alter(cluster, kind, name, changes, validate_only)
    _told(kind, name, changes, validate_only, as_json)


def _alter(
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


def _told(kind: str, name: str, changes: dict[str, str | None], validate_only: bool, as_json: bool) -> None:
    if as_json:
        emit_json({"kind": kind, "name": name, "changes": changes, "applied": not validate_only})
        return
    verb = "would change" if validate_only else "changed"
    words = ", ".join(
        f"{key} to its default" if value is None else f"{key}={value}" for key, value in changes.items()
    )
    click.echo(f"{kind} '{name}': {verb} {words}")


def _resource(cluster: Cluster, kind: str, name: str) -> Any:
    if kind == "broker" and not name.isdecimal():
        raise click.BadParameter(f"a broker is named by its id, a number, not '{name}'", param_hint="'NAME'")
    if kind == "broker" and int(name) not in (brokers := cluster.broker_ids()):
        # librdkafka would wait for it to appear.
        raise CommandFailed(f"no broker {name} in this cluster: it has {', '.join(map(str, brokers))}.")
    if not name:
        raise CommandFailed("a topic's name cannot be empty")
    return admin_types().ConfigResource(kind, name)


def _setting(entry: Any) -> Setting:
    # confluent-kafka gives the source as the protocol's number.
    source = admin_types().ConfigSource(entry.source).name
    return Setting(
        entry.name, entry.value, _SOURCES.get(source, source.lower()), entry.is_read_only, entry.is_sensitive
    )
