"""`penstock quotas`: list, set and unset, over DescribeClientQuotas and AlterClientQuotas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from penstock.admin.cluster import Cluster
from penstock.admin.wire_client import WireCluster
from penstock.cli.failure import CommandFailed
from penstock.cli.options.properties import key_values
from penstock.cli.options.shared import cluster_options, json_option
from penstock.cli.output import emit_json, note, table
from penstock.errors import error_for_code
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

F = TypeVar("F", bound=Callable[..., Any])

_KINDS = ("user", "client-id", "ip")
_MEANINGS = {"user": "user", "client-id": "client id", "ip": "address"}
DEFAULT = "<default>"


def _entity_options(command: F) -> F:
    for kind in reversed(_KINDS):
        text = f"The {_MEANINGS[kind]}. {DEFAULT}: for all that have no quota of their own."
        command = click.option(f"--{kind}", metavar="NAME", help=text)(command)
    return command


def _entity(given: dict[str, str | None]) -> list[Message]:
    entity = [
        Message(entity_type=kind, entity_name=None if name == DEFAULT else name)
        for kind in _KINDS
        if (name := given[kind.replace("-", "_")]) is not None
    ]
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
        request = Message(components=[], strict=False)
        answer = wire.brokers()[0].request(ApiKey.DESCRIBE_CLIENT_QUOTAS, request)
    _check(answer.error_code, answer.error_message, "cannot list quotas")
    found = sorted(
        (
            *(_name(entry.entity, kind) for kind in _KINDS),
            one.key,
            one.value,
        )
        for entry in answer.entries or ()
        for one in entry.values
    )
    columns = (*_KINDS, "quota", "value")
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
    ops = [
        Message(key=key, value=0.0 if value is None else value, remove=value is None)
        for key, value in changes.items()
    ]
    request = Message(entries=[Message(entity=entity, ops=ops)], validate_only=False)
    with WireCluster(cluster) as wire:
        answer = wire.brokers()[0].request(ApiKey.ALTER_CLIENT_QUOTAS, request)
    (result,) = answer.entries
    _check(result.error_code, result.error_message, "cannot change the quotas")
    named = {one.entity_type: one.entity_name or DEFAULT for one in entity}
    if as_json:
        emit_json({"entity": named, "changes": changes})
        return
    whom = ", ".join(f"{kind} '{name}'" for kind, name in named.items())
    words = (f"removed {key}" if value is None else f"{key}={value:g}" for key, value in changes.items())
    click.echo(f"{whom}: {', '.join(words)}")


def _name(entity: list[Message], kind: str) -> str:
    for one in entity:
        if one.entity_type == kind:
            return one.entity_name if one.entity_name is not None else DEFAULT
    return ""


def _check(code: int, message: str | None, doing: str) -> None:
    if code:
        raise CommandFailed(f"{doing}: {message or type(error_for_code(code)).__name__}")
