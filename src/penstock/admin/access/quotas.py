"""Client quotas: list, set and remove, over DescribeClientQuotas and AlterClientQuotas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.admin.failure import CommandFailed
from penstock.admin.wire_client import WireCluster
from penstock.errors import error_for_code
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

KINDS = ("user", "client-id", "ip")
DEFAULT = "<default>"
"""The name of an entity that stands for all that have no quota by name."""
QUOTAS = {
    "producer_byte_rate": "bytes a second that a client may write to one broker",
    "consumer_byte_rate": "bytes a second that a client may read from one broker",
    "request_percentage": "percent of a broker's time for the client's requests",
    "controller_mutation_rate": "partitions a second that a client may create and delete",
    "connection_creation_rate": "connections a second from an address",
}


@dataclass(frozen=True, slots=True, order=True)
class Quota:
    """`user`, `client_id` and `ip` are "" where the quota is not about them."""

    user: str
    client_id: str
    ip: str
    key: str
    value: float

    @property
    def entity(self) -> dict[str, str]:
        named = zip(KINDS, (self.user, self.client_id, self.ip), strict=True)
        return {kind: name for kind, name in named if name}


def list_quotas(wire: WireCluster) -> list[Quota]:
    request = Message(components=[], strict=False)
    answer = wire.brokers()[0].request(ApiKey.DESCRIBE_CLIENT_QUOTAS, request)
    _check(answer.error_code, answer.error_message, "cannot list quotas")
    return sorted(
        Quota(
            _name(entry.entity, "user"),
            _name(entry.entity, "client-id"),
            _name(entry.entity, "ip"),
            one.key,
            one.value,
        )
        for entry in answer.entries or ()
        for one in entry.values
    )


def alter_quotas(wire: WireCluster, entity: Mapping[str, str], changes: Mapping[str, float | None]) -> None:
    """Set the quotas that have a value, and remove the others. `entity` has names by kind of KINDS."""
    if not entity:
        raise CommandFailed("name whom the quota is for: a user, a client id, both, or an address.")
    entry = Message(
        entity=[
            Message(entity_type=kind, entity_name=None if name == DEFAULT else name)
            for kind, name in entity.items()
        ],
        ops=[
            Message(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in changes.items()
        ],
    )
    request = Message(entries=[entry], validate_only=False)
    answer = wire.brokers()[0].request(ApiKey.ALTER_CLIENT_QUOTAS, request)
    (result,) = answer.entries
    _check(result.error_code, result.error_message, "cannot change the quotas")


def _name(entity: list[Message], kind: str) -> str:
    for one in entity:
        if one.entity_type == kind:
            return one.entity_name if one.entity_name is not None else DEFAULT
    return ""


def _check(code: int, message: str | None, doing: str) -> None:
    if code:
        raise CommandFailed(f"{doing}: {message or type(error_for_code(code)).__name__}")
