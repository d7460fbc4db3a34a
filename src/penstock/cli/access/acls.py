"""`penstock acls`: list, allow, deny and delete, over CreateAcls, DescribeAcls and DeleteAcls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from penstock.admin.cluster import Cluster
from penstock.admin.wire_client import WireCluster
from penstock.admin.words import plural
from penstock.cli.failure import CommandFailed
from penstock.cli.options.shared import cluster_options, complete_topics, json_option
from penstock.cli.output import emit_json, note, table
from penstock.errors import error_for_code
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

F = TypeVar("F", bound=Callable[..., Any])

# Kafka's numbers, by the names that its own tools show.
_RESOURCES = {2: "topic", 3: "group", 4: "cluster", 5: "transactional-id", 6: "delegation-token", 7: "user"}
_OPERATIONS = {
    2: "all", 3: "read", 4: "write", 5: "create", 6: "delete", 7: "alter", 8: "describe",
    9: "cluster-action", 10: "describe-configs", 11: "alter-configs", 12: "idempotent-write",
    13: "create-tokens", 14: "describe-tokens", 15: "two-phase-commit",
}  # fmt: skip
_PERMISSIONS = {2: "deny", 3: "allow"}
_PATTERNS = {3: "literal", 4: "prefixed"}
_ANY, _MATCH = 1, 2
_CLUSTER_NAME = "kafka-cluster"

Resource = tuple[int, str | None]


def _number(names: dict[int, str], name: str) -> int:
    return next(number for number, known in names.items() if known == name)


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
    found: list[Resource] = [(4, _CLUSTER_NAME)] if given.pop("on_cluster") else []
    for number, kind in _RESOURCES.items():
        name = given.pop(kind.replace("-", "_"), None)
        if name is not None:
            found.append((number, name))
    return found


_principal_argument = click.argument("principal", metavar="PRINCIPAL")
_operations_argument = click.argument(
    "operations",
    metavar="OPERATION...",
    nargs=-1,
    required=True,
    type=click.Choice(tuple(_OPERATIONS.values()), case_sensitive=False),
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
    resources: list[Resource] = _resources(given) or [(_ANY, None)]
    found: list[Message] = []
    with WireCluster(cluster) as wire:
        broker = wire.brokers()[0]
        for resource in resources:
            request = _filter(resource, _MATCH if matching else _ANY, principal, None, _ANY, _ANY)
            answer = broker.request(ApiKey.DESCRIBE_ACLS, request)
            _check(answer.error_code, answer.error_message, "cannot list ACLs")
            found += [
                Message(
                    resource_type=one.resource_type, resource_name=one.resource_name,
                    pattern_type=one.pattern_type, **acl.__dict__,
                )
                for one in answer.resources for acl in one.acls
            ]  # fmt: skip
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
    _check_principal(principal)
    created = [
        Message(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=4 if prefixed and kind != 4 else 3,
            principal=principal,
            host=host,
            operation=_number(_OPERATIONS, operation.lower()),
            permission_type=_number(_PERMISSIONS, permission),
        )
        for kind, name in resources
        for operation in operations
    ]
    with WireCluster(cluster) as wire:
        answer = wire.brokers()[0].request(ApiKey.CREATE_ACLS, Message(creations=created))
    for result in answer.results:
        _check(result.error_code, result.error_message, "cannot add the ACL")
    _show([Message(**one.__dict__, pattern_type=one.resource_pattern_type) for one in created], as_json)


@acls.command()
@click.option("--principal", metavar="PRINCIPAL", help="Only of this principal, such as User:alice.")
@click.option(
    "--operation",
    type=click.Choice(tuple(_OPERATIONS.values()), case_sensitive=False),
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
    number = _ANY if operation is None else _number(_OPERATIONS, operation.lower())
    filters = [
        _filter(resource, _ANY, principal, host, number, _ANY) for resource in resources or [(_ANY, None)]
    ]
    with WireCluster(cluster) as wire:
        answer = wire.brokers()[0].request(ApiKey.DELETE_ACLS, Message(filters=filters))
    deleted: list[Message] = []
    for result in answer.filter_results:
        _check(result.error_code, result.error_message, "cannot delete ACLs")
        deleted += result.matching_acls
    _show(deleted, as_json)
    if not as_json:
        note(f"{plural(len(deleted), 'ACL')} deleted.")


def _filter(
    resource: Resource, pattern: int, principal: str | None, host: str | None, operation: int, permission: int
) -> Message:
    kind, name = resource
    return Message(
        resource_type_filter=kind,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=principal,
        host_filter=host,
        operation=operation,
        permission_type=permission,
    )


def _check_principal(principal: str) -> None:
    kind, colon, name = principal.partition(":")
    if not (kind and colon and name):
        raise click.BadParameter(
            f"'{principal}' is not a principal: write User:{principal}", param_hint="'PRINCIPAL'"
        )


def _check(code: int, message: str | None, doing: str) -> None:
    if code:
        error = error_for_code(code)
        reason = message or type(error).__name__
        hint = " Set authorizer.class.name on the brokers." if code == 54 else ""
        raise CommandFailed(f"{doing}: {reason}{hint}")


def _show(found: Iterable[Message], as_json: bool) -> None:
    rows = [
        (
            one.principal,
            _PERMISSIONS.get(one.permission_type, str(one.permission_type)),
            _OPERATIONS.get(one.operation, str(one.operation)),
            _RESOURCES.get(one.resource_type, str(one.resource_type)),
            one.resource_name,
            _PATTERNS.get(one.pattern_type, str(one.pattern_type)),
            one.host,
        )
        for one in found
    ]
    columns = ("principal", "permission", "operation", "resource", "name", "pattern", "host")
    if as_json:
        emit_json([dict(zip(columns, row, strict=True)) for row in sorted(rows)])
    elif rows:
        table(columns, sorted(rows))
