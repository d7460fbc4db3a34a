"""Users, ACLs and quotas: the lists, page by page, what an ACL would apply to, and changing them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock.admin.access import acls as admin_acls
from penstock.admin.access import quotas as admin_quotas
from penstock.admin.access import users as admin_users
from penstock.admin.access.acls import EVERYTHING, Acl, AclFilter
from penstock.admin.access.quotas import Quota
from penstock.admin.cluster import Cluster
from penstock.admin.failure import CommandFailed
from penstock.admin.groups.state import list_groups
from penstock.admin.wire_client import WireCluster

T = TypeVar("T")
_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class UserRow:
    name: str
    mechanisms: tuple[str, ...]
    iterations: int


@dataclass(frozen=True, slots=True)
class Reach:
    """The existing resources that an ACL applies to: how many, and the first names."""

    count: int
    names: tuple[str, ...]


def page_of(
    found: Iterable[T],
    fits: Callable[[T], bool],
    key: Callable[[T], tuple[object, ...]],
    descending: bool,
    first: int,
    count: int,
) -> tuple[list[T], int]:
    """The rows of one page, and how many rows there are."""
    rows = sorted(filter(fits, found), key=key, reverse=descending)
    return rows[first : first + count], len(rows)


# Users


def users(
    cluster: Cluster, *, text: str = "", sort: str = "name", descending: bool = False, first: int, count: int
) -> tuple[list[UserRow], int]:
    with WireCluster(cluster) as wire:
        found = admin_users.known_users(wire)
    rows = [
        UserRow(name, tuple(sorted(mechanism for mechanism, _ in logins)), max(n for _, n in logins))
        for name, logins in found.items()
        if logins
    ]

    def key(row: UserRow) -> tuple[object, ...]:
        return (row.iterations if sort == "iterations" else row.mechanisms if sort == "mechanisms" else (),
                row.name)  # fmt: skip

    return page_of(rows, lambda row: text.lower() in row.name.lower(), key, descending, first, count)


def set_password(cluster: Cluster, name: str, password: str, mechanisms: Sequence[str], *, new: bool) -> None:
    """`new` rejects a name that exists: it would get another password by mistake."""
    if not name:
        raise CommandFailed("a user's name cannot be empty.")
    if not password:
        raise CommandFailed("the password cannot be empty.")
    if not mechanisms:
        raise CommandFailed("choose at least one mechanism.")
    with WireCluster(cluster) as wire:
        if new and name in admin_users.known_users(wire):
            raise CommandFailed(f"user '{name}' exists: change the password instead.")
        admin_users.set_password(wire, name, password, mechanisms)


def delete_user(cluster: Cluster, name: str) -> None:
    with WireCluster(cluster) as wire:
        admin_users.delete_user(wire, name)


# ACLs


def acls(
    cluster: Cluster,
    wanted: AclFilter,
    *,
    text: str = "",
    sort: str = "principal",
    descending: bool = False,
    first: int,
    count: int,
) -> tuple[list[Acl], int]:
    """ACLs of the filter whose principal, name or operation contains `text`."""
    with WireCluster(cluster) as wire:
        found = admin_acls.list_acls(wire, [wanted])
    lower = text.lower()
    column = sort if sort in Acl.__dataclass_fields__ else "principal"
    return page_of(
        found,
        lambda acl: any(lower in each.lower() for each in (acl.principal, acl.name, acl.operation)),
        lambda acl: (getattr(acl, column), acl),
        descending,
        first,
        count,
    )


def create_acls(cluster: Cluster, acls: Sequence[Acl]) -> None:
    with WireCluster(cluster) as wire:
        admin_acls.create_acls(wire, acls)


def delete_acl(cluster: Cluster, acl: Acl) -> None:
    with WireCluster(cluster) as wire:
        if not admin_acls.delete_acls(wire, [AclFilter.of(acl)]):
            raise CommandFailed("this ACL does not exist any more.")


def reach(cluster: Cluster, acl: Acl) -> Reach | None:
    """The topics or groups that exist and that the ACL applies to; None for other resources."""
    if acl.resource == "topic":
        names: Iterable[str] = cluster.topics()
    elif acl.resource == "group":
        names = (each.group for each in list_groups(cluster))
    else:
        return None
    if acl.pattern == "prefixed":
        fitting = sorted(name for name in names if name.startswith(acl.name))
    else:
        fitting = sorted(name for name in names if acl.name in (name, EVERYTHING))
    return Reach(len(fitting), tuple(fitting[:_MOST_NAMED]))


# Quotas


def quotas(
    cluster: Cluster, *, text: str = "", sort: str = "user", descending: bool = False, first: int, count: int
) -> tuple[list[Quota], int]:
    with WireCluster(cluster) as wire:
        found = admin_quotas.list_quotas(wire)
    lower = text.lower()
    column = sort if sort in Quota.__dataclass_fields__ else "user"
    return page_of(
        found,
        lambda one: any(lower in each.lower() for each in (one.user, one.client_id, one.ip, one.key)),
        lambda one: (getattr(one, column), one),
        descending,
        first,
        count,
    )


def set_quota(cluster: Cluster, entity: dict[str, str], key: str, value: float | None) -> None:
    """None removes it."""
    with WireCluster(cluster) as wire:
        admin_quotas.alter_quotas(wire, entity, {key: value})
