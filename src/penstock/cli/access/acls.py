"""`penstock acls`: list, allow, deny and delete, over CreateAcls, DescribeAcls and DeleteAcls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import astuple
from typing import Any, TypeVar

import click

from penstock.admin.access.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    RESOURCES,
    Acl,
    AclFilter,
    check_principal,
    create_acls,
    delete_acls,
)
from penstock.admin.access.acls import list_acls as find_acls
from penstock.admin.cluster import Cluster
from penstock.admin.wire_client import WireCluster
from penstock.admin.words import plural
from penstock.cli.options.shared import cluster_options, complete_topics, json_option
from penstock.cli.output import emit_json, note, table

F = TypeVar("F", bound=Callable[..., Any])

Resource = tuple[str | None, str | None]


def _resource_options(command: F) -> F:
    for kind in ("user", "delegation-token", "transactional-id", "group"):
        text = f"A {kind.replace('-', ' ')}, * for all."
        command = click.option(f"--{kind}", metavar="NAME", help=text)(command)
    command = click.option("--cluster", "on_cluster", is_flag=True, help="The cluster itself.")(command)
    return click.option(
        "--topic", metavar="NAME", shell_complete=complete_topics, help="A topic, * for all."
    )(command)


def _resources(given: dict[str, Any]) -> list[Resource]:
    """The resources that the options name."""
    found: list[Resource] = [("cluster", CLUSTER_NAME)] if given.pop("on_cluster") else []
    for kind in RESOURCES:
        name = given.pop(kind.replace("-", "_"), None)
        if name is not None:
            found.append((kind, name))
    return found


_principal_argument = click.argument("principal", metavar="PRINCIPAL")
_operations_argument = click.argument(
    "operations",
    metavar="OPERATION...",
    nargs=-1,
    required=True,
    type=click.Choice(OPERATIONS, case_sensitive=False),
)
_prefixed_option = click.option("--prefixed", is_flag=True, help="All resources whose names begin like this.")
_host_option = click.option(
    "--host", metavar="ADDRESS", default="*", show_default=True, help="Only from this address."
)


@click.group()
def acls() -> None:
    """List, add and delete ACLs: who may do what."""


@acls.command("list")
@click.option("--principal", metavar="PRINCIPAL", help="Only of this principal, such as User:alice.")
@click.option("--matching", is_flag=True, help="Also patterns and wildcards that apply to the resource.")
@_resource_options
@json_option
@cluster_options
def list_acls(principal: str | None, matching: bool, as_json: bool, cluster: Cluster, **given: Any) -> None:
    """List ACLs, of all resources or of one.

    \b
    penstock acls list --topic orders --matching
    """
    resources: list[Resource] = _resources(given) or [(None, None)]
    wanted = [AclFilter(kind, name, principal, matching=matching) for kind, name in resources]
    with WireCluster(cluster) as wire:
        found = find_acls(wire, wanted)
    _show(found, as_json)
    if not found and not as_json:
        note("No ACLs.")


@acls.command()
@_principal_argument
@_operations_argument
@_prefixed_option
@_host_option
@_resource_options
@json_option
@cluster_options
def allow(as_json: bool, cluster: Cluster, **given: Any) -> None:
    """Allow a principal operations on resources.

    \b
    penstock acls allow User:alice read write --topic orders
    penstock acls allow User:alice read --group orders- --prefixed
    """
    _create("allow", as_json, cluster, **given)


@acls.command()
@_principal_argument
@_operations_argument
@_prefixed_option
@_host_option
@_resource_options
@json_option
@cluster_options
def deny(as_json: bool, cluster: Cluster, **given: Any) -> None:
    """Deny a principal operations on resources, whatever else allows them.

    \b
    penstock acls deny 'User:*' all --topic secrets --host 192.168.1.7
    """
    _create("deny", as_json, cluster, **given)


def _create(
    permission: str, as_json: bool, cluster: Cluster, *, principal: str, operations: tuple[str, ...],
    prefixed: bool, host: str, **given: Any,
) -> None:  # fmt: skip
    resources = _resources(given)
    if not resources:
        raise click.UsageError("name a resource: --topic, --group, --cluster or --transactional-id")
    try:
        check_principal(principal)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'PRINCIPAL'") from None
    created = [
        Acl(
            principal,
            permission,
            operation.lower(),
            kind or "",
            name or "",
            "prefixed" if prefixed and kind != "cluster" else "literal",
            host,
        )
        for kind, name in resources
        for operation in operations
    ]
    with WireCluster(cluster) as wire:
        create_acls(wire, created)
    _show(created, as_json)


@acls.command()
@click.option("--principal", metavar="PRINCIPAL", help="Only of this principal, such as User:alice.")
@click.option(
    "--operation",
    type=click.Choice(OPERATIONS, case_sensitive=False),
    help="Only of this operation.",
)
@click.option("--host", metavar="ADDRESS", help="Only from this address.")
@click.option("--all", "everything", is_flag=True, help="All ACLs that the other options do not exclude.")
@_resource_options
@json_option
@cluster_options
def delete(
    principal: str | None, operation: str | None, host: str | None, everything: bool, as_json: bool,
    cluster: Cluster, **given: Any,
) -> None:  # fmt: skip
    """Delete the ACLs that fit all of the options.

    \b
    penstock acls delete --principal User:alice --topic orders
    """
    resources: list[Resource] = _resources(given)
    if not (resources or principal or everything):
        raise click.UsageError("name what to delete: a resource, --principal, or --all")
    wanted = [
        AclFilter(kind, name, principal, host, None if operation is None else operation.lower())
        for kind, name in resources or [(None, None)]
    ]
    with WireCluster(cluster) as wire:
        deleted = delete_acls(wire, wanted)
    _show(deleted, as_json)
    if not as_json:
        note(f"{plural(len(deleted), 'ACL')} deleted.")


def _show(found: Iterable[Acl], as_json: bool) -> None:
    rows = [astuple(acl) for acl in sorted(found)]
    columns = ("principal", "permission", "operation", "resource", "name", "pattern", "host")
    if as_json:
        emit_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        table(columns, rows)
