"""The leader election of Confluent's registries: group protocol type `sr`, subprotocol `v0`, JSON inside.

Pure. The member that the coordinator makes the group's leader computes the assignment: it names one registry
as the leader, the same for every member. A leader stays the leader while it is in the group; without one, the
smallest URL becomes the leader.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

PROTOCOL_TYPE = "sr"
PROTOCOL = "v0"

NO_ERROR, DUPLICATE_URLS = 0, 1


@dataclass(frozen=True, slots=True)
class Identity:
    """A registry as the other registries reach it."""

    host: str
    port: int
    scheme: str = "http"
    eligible: bool = True
    leader: bool = False

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def same(self, other: Identity) -> bool:
        return self.url == other.url

    def is_as_safe_as(self, url: str) -> bool:
        """Whether credentials that came to `url` may be forwarded to this one: those that came over TLS must
        stay on TLS.
        """
        return self.scheme == "https" or not url.startswith("https:")

    def as_json(self) -> dict[str, Any]:
        return {
            "version": 1,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.eligible,
            "scheme": self.scheme,
            "leader": self.leader,
        }

    def encode(self) -> bytes:
        return json.dumps(self.as_json(), separators=(",", ":")).encode()

    def led(self, leader: bool) -> Identity:
        return replace(self, leader=leader)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The assignment that every member gets."""

    error: int
    leader_id: str | None
    leader: Identity | None
    members: tuple[str, ...] = ()
    """The URLs of all members, in groups that divide work. Registries have none here, as in Confluent's
    format.
    """

    def encode(self) -> bytes:
        value: dict[str, Any] = {"version": 1, "error": self.error}
        if self.members:
            value["members"] = list(self.members)
        if self.leader is not None:
            value |= {"master": self.leader_id, "master_identity": self.leader.as_json()}
        return json.dumps(value, separators=(",", ":")).encode()


def named_leader(value: Mapping[str, Any] | None) -> str | None:
    """The URL in the record that a new leader writes to the topic; None for a server that writes none."""
    found = (value or {}).get("leader")
    return found if isinstance(found, str) else None


def decode_identity(data: bytes) -> Identity:
    """Raises ValueError for bytes that are not an identity."""
    return _identity(_object(data))


def decode_assignment(data: bytes) -> Assignment:
    value = _object(data)
    leader = value.get("master_identity")
    return Assignment(
        int(value.get("error", NO_ERROR)),
        value.get("master"),
        None if leader is None else _identity(leader),
        tuple(str(each) for each in value.get("members", ())),
    )


def _object(data: bytes) -> dict[str, Any]:
    value = json.loads(bytes(data))
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    return value


def _identity(value: Mapping[str, Any]) -> Identity:
    try:
        return Identity(
            host=str(value["host"]),
            port=int(value["port"]),
            scheme=str(value.get("scheme") or "http"),
            eligible=bool(value.get("master_eligibility", True)),
            leader=bool(value.get("leader", False)),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"no identity of a registry: {error!r}") from error


def assign(members: Mapping[str, Identity], by: str = "") -> Assignment:
    """Choose the leader among the group's members, by member id. `by` is the URL of the member that
    chooses.
    """
    eligible = {
        member: identity
        for member, identity in members.items()
        if identity.eligible and identity.is_as_safe_as(by)
    }
    leading = [member for member, identity in eligible.items() if identity.leader]
    if len(leading) == 1:
        chosen: str | None = leading[0]
    else:
        chosen = min(eligible, key=lambda member: eligible[member].url, default=None)
    urls = {identity.url for identity in members.values()}
    error = NO_ERROR if len(urls) == len(members) else DUPLICATE_URLS
    return Assignment(error, chosen, None if chosen is None else eligible[chosen], tuple(sorted(urls)))
