"""`penstock configs`: show and change the settings of topics and brokers, with where each comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from penstock.admin.cluster import Cluster
from penstock.admin.configs import alter_configs, describe_configs
from penstock.cli.options.properties import topic_settings
from penstock.cli.options.shared import cluster_options, complete_topic_configs, complete_topics, json_option
from penstock.cli.output import emit_json, note, table

F = TypeVar("F", bound=Callable[..., Any])


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

    \b
      penstock configs describe topic orders
      penstock configs describe broker 1 --all
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
    """Change settings of a topic or a broker. Other settings stay unchanged.

    \b
      penstock configs set topic orders retention.ms=86400000 cleanup.policy=compact,delete
    """
    changes: dict[str, str | None] = dict(topic_settings(settings, "KEY=VALUE"))
    alter_configs(cluster, kind, name, changes, validate_only)
    _report(kind, name, changes, validate_only, as_json)


@configs.command()
@_resource_arguments
@click.argument("keys", metavar="KEY...", nargs=-1, required=True, shell_complete=complete_topic_configs)
@click.option("--validate-only", is_flag=True, help="Check, and change nothing.")
@json_option
@cluster_options
def unset(
    kind: str, name: str, keys: tuple[str, ...], validate_only: bool, as_json: bool, cluster: Cluster
) -> None:
    """Reset settings of a topic or a broker to their defaults.

    \b
      penstock configs unset topic orders retention.ms
    """
    changes: dict[str, str | None] = dict.fromkeys(keys)
    alter_configs(cluster, kind, name, changes, validate_only)
    _report(kind, name, changes, validate_only, as_json)


def _report(kind: str, name: str, changes: dict[str, str | None], validate_only: bool, as_json: bool) -> None:
    if as_json:
        emit_json({"kind": kind, "name": name, "changes": changes, "applied": not validate_only})
        return
    verb = "would change" if validate_only else "changed"
    words = ", ".join(
        f"{key} to its default" if value is None else f"{key}={value}" for key, value in changes.items()
    )
    click.echo(f"{kind} '{name}': {verb} {words}")
