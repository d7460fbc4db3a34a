"""`penstock quotas`: list, set and unset, over DescribeClientQuotas and AlterClientQuotas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple
from typing import Any, TypeVar

import click

from penstock.admin.access.quotas import DEFAULT, KINDS, alter_quotas
from penstock.admin.access.quotas import list_quotas as find_quotas
from penstock.admin.cluster import Cluster
from penstock.admin.wire_client import WireCluster
from penstock.cli.options.properties import key_values
from penstock.cli.options.shared import cluster_options, json_option
from penstock.cli.output import emit_json, note, table

F = TypeVar("F", bound=Callable[..., Any])

_MEANINGS = {"user": "user", "client-id": "client id", "ip": "address"}


def _entity_options(command: F) -> F:
    for kind in reversed(KINDS):
        text = f"The {_MEANINGS[kind]}. {DEFAULT}: for all that have no quota of their own."
        command = click.option(f"--{kind}", metavar="NAME", help=text)(command)
    return command


def _entity(given: dict[str, str | None]) -> dict[str, str]:
    entity = {kind: name for kind in KINDS if (name := given[kind.replace("-", "_")]) is not None}
    if not entity:
        raise click.UsageError("name whom the quota is for: --user, --client-id, both, or --ip")
    return entity


@click.group()
def quotas() -> None:
    """List and change the quotas of clients."""


@quotas.command("list")
@json_option
@cluster_options
def list_quotas(as_json: bool, cluster: Cluster) -> None:
    """List all quotas.

    \b
      penstock quotas list
    """
    with WireCluster(cluster) as wire:
        found = [astuple(each) for each in find_quotas(wire)]
    columns = (*KINDS, "quota", "value")
    if as_json:
        emit_json([dict(zip(columns, row, strict=True)) for row in found])
    elif found:
        table(columns, [(*row[:-1], f"{row[-1]:g}") for row in found])
    else:
        note("No quotas.")


@quotas.command("set")
@click.argument("values", metavar="QUOTA=VALUE...", nargs=-1, required=True)
@_entity_options
@json_option
@cluster_options
def set_quotas(values: tuple[str, ...], as_json: bool, cluster: Cluster, **given: str | None) -> None:
    """Set quotas of a user, a client id, both, or an address.

    \b
    penstock quotas set --user alice producer_byte_rate=1048576 consumer_byte_rate=2097152
    penstock quotas set --client-id '<default>' request_percentage=50
    """
    changes: dict[str, float | None] = {}
    for key, text in key_values(values, "QUOTA=VALUE").items():
        try:
            changes[key] = float(text)
        except ValueError:
            raise click.BadParameter(f"'{text}' is not a number", param_hint=key) from None
    _alter(cluster, given, changes, as_json)


@quotas.command()
@click.argument("names", metavar="QUOTA...", nargs=-1, required=True)
@_entity_options
@json_option
@cluster_options
def unset(names: tuple[str, ...], as_json: bool, cluster: Cluster, **given: str | None) -> None:
    """Remove quotas of a user, a client id, both, or an address.

    \b
      penstock quotas unset --user alice producer_byte_rate
    """
    _alter(cluster, given, dict.fromkeys(names), as_json)


def _alter(
    cluster: Cluster, given: dict[str, str | None], changes: dict[str, float | None], as_json: bool
) -> None:
    entity = _entity(given)
    with WireCluster(cluster) as wire:
        alter_quotas(wire, entity, changes)
    if as_json:
        emit_json({"entity": entity, "changes": changes})
        return
    whom = ", ".join(f"{kind} '{name}'" for kind, name in entity.items())
    words = (f"removed {key}" if value is None else f"{key}={value:g}" for key, value in changes.items())
    click.echo(f"{whom}: {', '.join(words)}")
