"""Listeners: what `listeners` and `advertised.listeners` name, and the security protocol of each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
INTERNAL = "INTERNAL"
"""A listener of this name is for the other brokers, unless inter.broker.listener.name says otherwise."""
PREFIX = "listener.name."
"""`listener.name.<name>.<setting>` is the setting of one listener; the name is in lower case there."""


class Listener(NamedTuple):
    """A parsed item of `listeners` or `advertised.listeners`; an empty host means every interface."""

    name: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Listener | None:
        match = _LISTENER.fullmatch(text)
        if match is None or int(match["port"]) > 65535:
            return None
        return cls(match["name"].upper(), match["host"].strip("[]"), int(match["port"]))


_LISTENER = re.compile(
    r"(?P<name>\w+)://(?P<host>\[[0-9a-fA-F:.%]+\]|[^\s:/\[\]]*):(?P<port>[0-9]{1,5})", re.ASCII
)


class Listeners:
    """Every item is NAME://host:port, no address twice."""

    def allows(self, value: Any) -> bool:
        parsed = [Listener.parse(item) for item in value]
        addresses = [(item.host, item.port) for item in parsed if item is not None and item.port]
        return bool(parsed) and None not in parsed and len(set(addresses)) == len(addresses)

    def __str__(self) -> str:
        return "each NAME://host:port, such as PLAINTEXT://host:port, with port 0 for any free one"


class Address:
    """host:port, an address to listen on."""

    def allows(self, value: Any) -> bool:
        return not value or Listener.parse(f"HTTP://{value}") is not None

    def __str__(self) -> str:
        return "host:port, such as 127.0.0.1:9404, with port 0 for any free one"


def parse_address(value: str) -> tuple[str, int]:
    """Of what Address allows; an empty host means every interface."""
    found = Listener.parse(f"HTTP://{value}")
    assert found is not None, value
    return found.host or "0.0.0.0", found.port


class ProtocolMap:
    """Each NAME:PROTOCOL, separated by commas, every name once."""

    def allows(self, value: Any) -> bool:
        pairs = [item.partition(":") for item in value.split(",")]
        names = [name.strip().upper() for name, _, _ in pairs]
        return (
            bool(value)
            and all(name and protocol.strip().upper() in PROTOCOLS for name, _, protocol in pairs)
            and len(set(names)) == len(names)
        )

    def __str__(self) -> str:
        return f"each NAME:PROTOCOL with a protocol out of {', '.join(PROTOCOLS)}"


def inter_broker_listener(typed: Mapping[str, Any], names: set[str]) -> str | None:
    """The name of the listener that the other brokers use; None where it is not among `names`."""
    chosen = typed["inter_broker_listener_name"]
    if chosen is None:
        chosen = INTERNAL if INTERNAL in names else typed["security_inter_broker_protocol"]
    return chosen.upper() if chosen.upper() in names else None
