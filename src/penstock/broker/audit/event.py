"""An audit event: who sent the request, from where, what it asked for, and the outcome.

An event never has anything that a client could log in with: no password, token, HMAC or value of a setting.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

# Clients choose names, and a name can have up to 32 KiB.
_LONGEST_TEXT = 256


class Kind(StrEnum):
    DENIED = "denied"
    ADMIN = "admin"
    AUTHENTICATION = "authentication"
    DROPPED = "dropped"


class Source(NamedTuple):
    """Who sends a request, and from where. The client id is chosen by the client and not verified."""

    principal: str
    host: str
    listener: str
    client_id: str | None


@dataclass(frozen=True, slots=True)
class Event:
    """`name` is None if the resource has no name, or if the event stands for several resources. `is_frequent`
    marks administrative requests that applications send repeatedly (see Journal)."""

    kind: Kind
    source: Source
    api: str
    operation: str | None
    resource_type: str | None
    name: str | None
    error: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    is_frequent: bool = False

    @property
    def sender(self) -> tuple[str, ...]:
        """Identifies the sender. The number of resource names is limited for each sender, because it chooses
        them."""
        source = self.source
        return (self.kind, source.principal, source.host, source.listener, self.api)

    @property
    def fold_key(self) -> tuple[str | None, ...]:
        """Equal for repetitions. Does not include the client id, which a client may change with each
        request."""
        return (*self.sender, self.operation, self.resource_type, self.name, self.error)


@dataclass(frozen=True, slots=True)
class Entry:
    """An event as it is written: `count` repetitions from `first_ms` to `last_ms`. An event of None counts
    dropped events."""

    event: Event | None
    first_ms: int
    last_ms: int
    count: int = 1


def encoded(entry: Entry, broker_id: int) -> bytes:
    """The value of the record."""
    event = entry.event
    value: dict[str, Any] = {"time": _iso(entry.last_ms), "type": Kind.DROPPED, "broker": broker_id}
    if event is not None:
        value |= {
            "type": event.kind,
            "principal": _short(event.source.principal),
            "host": event.source.host,
            "listener": event.source.listener,
            "client_id": _short(event.source.client_id),
            "api": event.api,
            "operation": event.operation,
            "resource_type": event.resource_type,
            "resource": _short(event.name),
            "allowed": event.kind is Kind.ADMIN,
            "error": event.error,
        }
        if event.detail:
            value["detail"] = _short_values(event.detail)
    value["count"] = entry.count
    if entry.count > 1:
        value["first_time"] = _iso(entry.first_ms)
    return json.dumps(value, separators=(",", ":")).encode()


def title(name: str) -> str:
    """The name in Kafka's style: CreateTopics for CREATE_TOPICS."""
    return "".join(part.capitalize() for part in name.split("_"))


def _iso(time_ms: int) -> str:
    seconds, ms = divmod(time_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ms:03}Z"


def _short(text: str | None) -> str | None:
    if text is None or len(text) <= _LONGEST_TEXT:
        return text
    return text[:_LONGEST_TEXT] + "…"


def _short_values(value: Any) -> Any:
    if isinstance(value, str):
        return _short(value)
    if isinstance(value, Mapping):
        return {_short(str(key)): _short_values(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_short_values(one) for one in value]
    return value
