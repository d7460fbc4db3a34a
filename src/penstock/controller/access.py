"""Plans changes of ACLs and client quotas: validates requests and computes the changes. Pure; stores
nothing."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import ApiError, InvalidRequest
from penstock.metadata import layout
from penstock.metadata.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.metadata.image import ClusterImage, QuotaEntity

USER, CLIENT_ID, IP = "user", "client-id", "ip"
BYTE_RATES = frozenset({"producer_byte_rate", "consumer_byte_rate"})
CLIENT_QUOTAS = BYTE_RATES | {"request_percentage", "controller_mutation_rate"}
CONNECTION_RATE = "connection_creation_rate"

# The cluster cannot have more ACLs, and a filter cannot delete more at once.
MAX_CHANGED = 10_000


def plan_create_acls(
    image: ClusterImage, acls: Sequence[Acl]
) -> tuple[list[ApiError | None], dict[str, Acl]]:
    """An error or None for each ACL, and the new ones. Creating one that already exists succeeds."""
    results: list[ApiError | None] = []
    created: dict[str, Acl] = {}
    for acl in acls:
        try:
            _check_acl(acl)
        except InvalidRequest as error:
            results.append(error)
            continue
        name = layout.acl_name(acl)
        if name not in image.acls:
            created[name] = acl
        results.append(None)
    return results, created


def _check_acl(acl: Acl) -> None:
    if acl.resource_type == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        raise InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.name:
        raise InvalidRequest("Invalid empty resource name")
    if not ResourceType.TOPIC <= acl.resource_type <= ResourceType.USER:
        raise InvalidRequest(f"Invalid resourceType {acl.resource_type}")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidRequest(f"Invalid patternType {acl.pattern_type}")
    if not Operation.ALL <= acl.operation <= Operation.TWO_PHASE_COMMIT:
        raise InvalidRequest(f"Invalid operation {acl.operation}")
    if acl.permission not in (Permission.ALLOW, Permission.DENY):
        raise InvalidRequest(f"Invalid permissionType {acl.permission}")
    kind, colon, name = acl.principal.partition(":")
    if not (kind and colon and name):
        raise InvalidRequest(
            "Could not parse principal from `" + acl.principal + "` (no colon is present separating the "
            "principal type from the principal name)"
        )


def plan_delete_acls(
    image: ClusterImage, filters: Sequence[AclFilter]
) -> tuple[list[dict[str, Acl] | ApiError], set[str]]:
    """What each filter matches, or its error; and the names of all ACLs to delete."""
    results: list[dict[str, Acl] | ApiError] = []
    deleted: set[str] = set()
    for one in filters:
        if one.is_unknown:
            results.append(InvalidRequest("Unknown patternFilter or entryFilter."))
            continue
        found = {name: acl for name, acl in image.acls.items() if one.matches(acl)}
        if len(deleted | found.keys()) > MAX_CHANGED:
            results.append(InvalidRequest(f"Cannot remove more than {MAX_CHANGED} ACLs in one request."))
            continue
        deleted |= found.keys()
        results.append(found)
    return results, deleted


# Quotas


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """`ops` has the new value of each quota; None removes it. `entity` is as the client sent it."""

    entity: Sequence[tuple[str, str | None]]
    ops: Sequence[tuple[str, float | None]]


def plan_alter_quotas(
    image: ClusterImage, changes: Sequence[QuotaChange]
) -> tuple[list[ApiError | None], dict[QuotaEntity, Mapping[str, float]]]:
    """An error or None for each entity, and the new quotas of the changed ones."""
    results: list[ApiError | None] = []
    planned: dict[QuotaEntity, Mapping[str, float]] = {}
    for change in changes:
        try:
            entity = check_entity(change.entity)
            if entity in planned:
                raise InvalidRequest(f"The entity {dict(entity)} is in the request twice.")
            if len({name for name, _ in change.ops}) < len(change.ops):
                raise InvalidRequest("A quota is in the request twice for the same entity.")
            values = dict(image.quotas.get(entity, {}))
            for name, value in change.ops:
                _check_quota(entity, name, value)
                if value is None:
                    values.pop(name, None)
                else:
                    values[name] = value
            planned[entity] = values
        except InvalidRequest as error:
            results.append(error)
        else:
            results.append(None)
    return results, planned


def check_entity(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    entity = dict(parts)
    if len(entity) < len(parts):
        raise InvalidRequest("Duplicate entity type in the quota entity.")
    for kind in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidRequest(f"Unhandled client quota entity type: {kind}")
    for kind, name in entity.items():
        if name == "":
            raise InvalidRequest(f"Empty {kind} not supported")
    if not entity:
        raise InvalidRequest("Invalid empty client quota entity")
    if IP in entity:
        if len(entity) > 1:
            raise InvalidRequest("Invalid quota entity combination, IP entity should be the only one.")
        address = entity[IP]
        if address is not None and not _is_address(address):
            raise InvalidRequest(f"{address} is not an IP address. Host names are not resolved.")
    return tuple(sorted(entity.items()))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _check_quota(entity: QuotaEntity, name: str, value: float | None) -> None:
    if value is None:
        return
    known = {CONNECTION_RATE} if entity[0][0] == IP else CLIENT_QUOTAS
    if name not in known:
        raise InvalidRequest(f"Invalid configuration key {name}")
    if not math.isfinite(value) or value <= 0:
        raise InvalidRequest(f"Quota {name} must be greater than 0")
    if name in BYTE_RATES | {CONNECTION_RATE} and value != int(value):
        raise InvalidRequest(f"{name} cannot be a fractional value.")
