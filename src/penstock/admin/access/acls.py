"""ACLs: list, create and delete, over DescribeAcls, CreateAcls and DeleteAcls; and what one would allow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.admin.failure import CommandFailed
from penstock.admin.wire_client import WireCluster
from penstock.errors import error_for_code
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

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
_NO_AUTHORIZER = 54

RESOURCES = tuple(_RESOURCES.values())
OPERATIONS = tuple(_OPERATIONS.values())
PERMISSIONS = ("allow", "deny")
PATTERNS = ("literal", "prefixed")
CLUSTER_NAME = "kafka-cluster"
EVERYTHING = "*"
"""The name of a resource that stands for all of its type."""


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One ACL in Kafka's words."""

    principal: str
    permission: str
    operation: str
    resource: str
    name: str
    pattern: str = "literal"
    host: str = "*"

    @property
    def sentence(self) -> str:
        """What it allows or denies."""
        whom = "everybody" if self.principal == "User:*" else self.principal
        verb = "may" if self.permission == "allow" else "may not"
        plain = self.operation in ("read", "write", "create", "delete", "alter", "describe")
        what = "do everything on" if self.operation == "all" else self.operation + ("" if plain else " on")
        kind = self.resource.replace("-", " ")
        if self.resource == "cluster":
            where = "the cluster"
        elif self.pattern == "prefixed":
            where = f"every {kind} whose name begins with '{self.name}'"
        elif self.name == EVERYTHING:
            where = f"every {kind}"
        else:
            where = f"{kind} '{self.name}'"
        place = "" if self.host == "*" else f", from {self.host} only"
        return f"{whom} {verb} {what} {where}{place}."


@dataclass(frozen=True, slots=True)
class AclFilter:
    """The ACLs for which all that is given is equal; `matching` also finds patterns that apply to `name`."""

    resource: str | None = None
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: str | None = None
    permission: str | None = None
    pattern: str | None = None
    matching: bool = False

    @classmethod
    def of(cls, acl: Acl) -> AclFilter:
        """Exactly this one."""
        return cls(
            acl.resource, acl.name, acl.principal, acl.host, acl.operation, acl.permission, acl.pattern
        )


def check_principal(principal: str) -> None:
    """ValueError unless it is TYPE:NAME."""
    kind, colon, name = principal.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"'{principal}' is not a principal: write User:{principal}")


def list_acls(wire: WireCluster, wanted: Iterable[AclFilter] = (AclFilter(),)) -> list[Acl]:
    """The ACLs that fit any of the filters, sorted."""
    broker = wire.brokers()[0]
    found: set[Acl] = set()
    for each in wanted:
        answer = broker.request(ApiKey.DESCRIBE_ACLS, _filter(each))
        _check(answer.error_code, answer.error_message, "cannot list ACLs")
        found.update(
            _acl(one.resource_type, one.resource_name, one.pattern_type, acl)
            for one in answer.resources
            for acl in one.acls
        )
    return sorted(found)


def create_acls(wire: WireCluster, acls: Sequence[Acl]) -> None:
    for acl in acls:
        check_principal(acl.principal)
        if not acl.name:
            raise CommandFailed(f"name the {acl.resource} that the ACL is for, or {EVERYTHING} for all.")
    creations = [
        Message(
            resource_type=_number(_RESOURCES, acl.resource),
            resource_name=acl.name,
            resource_pattern_type=_number(_PATTERNS, acl.pattern),
            principal=acl.principal,
            host=acl.host,
            operation=_number(_OPERATIONS, acl.operation),
            permission_type=_number(_PERMISSIONS, acl.permission),
        )
        for acl in acls
    ]
    answer = wire.brokers()[0].request(ApiKey.CREATE_ACLS, Message(creations=creations))
    for result in answer.results:
        _check(result.error_code, result.error_message, "cannot add the ACL")


def delete_acls(wire: WireCluster, wanted: Iterable[AclFilter]) -> list[Acl]:
    """Delete the ACLs that fit any of the filters. Returns them, sorted."""
    filters = [_filter(each) for each in wanted]
    answer = wire.brokers()[0].request(ApiKey.DELETE_ACLS, Message(filters=filters))
    deleted: set[Acl] = set()
    for result in answer.filter_results:
        _check(result.error_code, result.error_message, "cannot delete ACLs")
        for one in result.matching_acls:
            deleted.add(_acl(one.resource_type, one.resource_name, one.pattern_type, one))
    return sorted(deleted)


def _acl(resource: int, name: str, pattern: int, one: Message) -> Acl:
    return Acl(
        one.principal,
        _PERMISSIONS.get(one.permission_type, str(one.permission_type)),
        _OPERATIONS.get(one.operation, str(one.operation)),
        _RESOURCES.get(resource, str(resource)),
        name,
        _PATTERNS.get(pattern, str(pattern)),
        one.host,
    )


def _filter(wanted: AclFilter) -> Message:
    pattern = _MATCH if wanted.matching else _number_or_any(_PATTERNS, wanted.pattern)
    return Message(
        resource_type_filter=_number_or_any(_RESOURCES, wanted.resource),
        resource_name_filter=wanted.name,
        pattern_type_filter=pattern,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=_number_or_any(_OPERATIONS, wanted.operation),
        permission_type=_number_or_any(_PERMISSIONS, wanted.permission),
    )


def _number(names: dict[int, str], name: str) -> int:
    return next(number for number, known in names.items() if known == name)


def _number_or_any(names: dict[int, str], name: str | None) -> int:
    return _ANY if name is None else _number(names, name)


def _check(code: int, message: str | None, doing: str) -> None:
    if code:
        reason = message or type(error_for_code(code)).__name__
        hint = " Set authorizer.class.name on the brokers." if code == _NO_AUTHORIZER else ""
        raise CommandFailed(f"{doing}: {reason}{hint}")
