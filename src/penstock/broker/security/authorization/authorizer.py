"""The authorizer: decides by the cluster's ACLs, as Kafka's StandardAuthorizer does. Pure.

DENY has precedence over ALLOW. A resource without any ACL gets the default (deny, unless
allow.everyone.if.no.acl.found); a resource with ACLs of which none matches is denied. Super users may do
everything. ALLOW for READ, WRITE, DELETE or ALTER implies DESCRIBE, for ALTER_CONFIGS it implies
DESCRIBE_CONFIGS; DENY implies nothing.

Decisions are cached until the ACLs change, because requests repeat the same few.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.metadata.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

log = logging.getLogger("penstock.authorizer")

EVERYBODY = "User:*"
# When the cache has this many decisions it is cleared: clients choose the names in requests.
_MAX_REMEMBERED = 50_000

_IMPLIED_BY: dict[int, frozenset[int]] = {
    Operation.DESCRIBE: frozenset(
        (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
    ),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)),
}

OPERATIONS: dict[int, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DESCRIBE, Operation.DELETE,
        Operation.ALTER, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ, Operation.DESCRIBE, Operation.DELETE, Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE, Operation.CLUSTER_ACTION, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE, Operation.ALTER, Operation.DESCRIBE,
    ),
}  # fmt: skip
"""The operations of each resource type, for responses with authorized operations."""

Question = tuple[str, str, int, int, str]
"""Principal, host, operation, type and name of the resource."""


class AclIndex:
    """The entries by resource: a decision looks at those of its name, of the prefixes that have entries, and
    of the wildcard, whatever else there is."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self.literal: dict[tuple[int, str], list[Acl]] = {}
        self.prefixed: dict[int, dict[str, list[Acl]]] = {}
        for acl in acls:
            if acl.pattern_type == PatternType.PREFIXED:
                self.prefixed.setdefault(acl.resource_type, {}).setdefault(acl.name, []).append(acl)
            else:
                self.literal.setdefault((acl.resource_type, acl.name), []).append(acl)
        self._lengths = {
            kind: sorted({len(prefix) for prefix in prefixes}) for kind, prefixes in self.prefixed.items()
        }

    def applying_to(self, resource_type: int, name: str) -> list[Acl]:
        found = list(self.literal.get((resource_type, name), ()))
        if name != WILDCARD:
            found += self.literal.get((resource_type, WILDCARD), ())
        lengths = self._lengths.get(resource_type)
        if lengths:
            prefixes = self.prefixed[resource_type]
            for length in lengths[: bisect_right(lengths, len(name))]:
                found += prefixes.get(name[:length], ())
        return found

    def of_type(self, resource_type: int) -> Iterable[Acl]:
        for (kind, _), acls in self.literal.items():
            if kind == resource_type:
                yield from acls
        for acls in self.prefixed.get(resource_type, {}).values():
            yield from acls


class Authorizer:
    def __init__(self, super_users: Iterable[str] = (), *, allow_everyone: bool = False) -> None:
        """`super_users` as "User:alice"; `allow_everyone` where a resource has no entry at all."""
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone
        self.acls: Mapping[str, Acl] = {}
        self._index = AclIndex()
        self._remembered: dict[Question, bool] = {}
        self.accesses: dict[int, Any] = {}  # by connection, see guard.py

    def update(self, acls: Mapping[str, Acl]) -> None:
        """Apply new ACLs."""
        if acls is not self.acls:
            self.acls = acls
            self._index = AclIndex(acls.values())
            self._remembered.clear()

    def matching(self, wanted: AclFilter) -> list[Acl]:
        return sorted(acl for acl in self.acls.values() if wanted.matches(acl))

    def allows(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        question = (principal, host, operation, resource_type, name)
        known = self._remembered.get(question)
        if known is None:
            known = self._decide(question)
            if len(self._remembered) >= _MAX_REMEMBERED:
                self._remembered.clear()
            self._remembered[question] = known
        return known

    def allows_on_cluster(self, principal: str, host: str, operation: int) -> bool:
        return self.allows(principal, host, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def operations(self, principal: str, host: str, resource_type: int, name: str) -> int:
        """The authorized operations as bits."""
        return sum(
            1 << operation
            for operation in OPERATIONS[resource_type]
            if self.allows(principal, host, operation, resource_type, name)
        )

    def allows_on_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether there is a resource of this type, existing or not, on which the operation is allowed
        (KIP-679)."""
        if self.allows(principal, host, operation, resource_type, "hardcode"):
            return True  # super users, and where everyone is allowed
        denied_names, denied_prefixes, allowed = set(), [], []
        for acl in self._index.of_type(resource_type):
            if not _concerns(acl, principal, host):
                continue
            if acl.permission == Permission.DENY:
                if acl.operation not in (operation, Operation.ALL):
                    continue
                if acl.pattern_type == PatternType.PREFIXED:
                    denied_prefixes.append(acl.name)
                elif acl.name == WILDCARD:
                    return False
                else:
                    denied_names.add(acl.name)
            elif _covers(acl, operation):
                allowed.append(acl)
        return any(
            (acl.pattern_type == PatternType.PREFIXED or acl.name not in denied_names)
            and not any(acl.name.startswith(prefix) for prefix in denied_prefixes)
            for acl in allowed
        )

    def _decide(self, question: Question) -> bool:
        principal, host, operation, resource_type, name = question
        if principal in self._super_users:
            return True
        acls = self._index.applying_to(resource_type, name)
        if not acls:
            return self._allow_everyone
        allowed = False
        for acl in acls:
            if _concerns(acl, principal, host):
                if acl.permission == Permission.DENY:
                    if acl.operation in (operation, Operation.ALL):
                        return False
                elif _covers(acl, operation):
                    allowed = True
        return allowed


def _concerns(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, EVERYBODY) and acl.host in (host, WILDCARD)


def _covers(acl: Acl, operation: int) -> bool:
    """Whether an ALLOW entry covers the operation, directly or by implication."""
    if acl.operation in (operation, Operation.ALL):
        return True
    implied_by = _IMPLIED_BY.get(operation)
    return implied_by is not None and acl.operation in implied_by
