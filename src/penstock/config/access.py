"""The settings of ACLs and quotas: who may do what, and how much of it."""

from __future__ import annotations

import ipaddress
from typing import Any

from penstock.config.topic import BOOLEAN, INT, LIST, STRING
from penstock.config.types import INT_MAX, AtLeastOneOf, ConfigDef, ConfigType, OneOf, Range, Validator

AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)


AUDIT_EVENTS = ("denied", "admin", "authentication")


class Principals:
    """Principals separated by semicolons: names of certificates have commas."""

    def allows(self, value: Any) -> bool:
        return all(_is_principal(one) for one in principals(value))

    def __str__(self) -> str:
        return "principals as User:alice, separated by semicolons"


def principals(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(";") if one.strip())


def _is_principal(text: str) -> bool:
    kind, colon, name = text.partition(":")
    return bool(kind and colon and name)


class Overrides:
    """Addresses with a count each: 127.0.0.1:200,::1:100."""

    def allows(self, value: Any) -> bool:
        return overrides(value) is not None

    def __str__(self) -> str:
        return "pairs of an IP address and a number, as 127.0.0.1:200, separated by commas"


def overrides(text: str) -> dict[str, int] | None:
    found: dict[str, int] = {}
    for one in filter(None, (one.strip() for one in text.split(","))):
        address, _, count = one.rpartition(":")
        try:
            found[str(ipaddress.ip_address(address.strip("[]")))] = int(count)
        except ValueError:
            return None
    return found if all(count >= 0 for count in found.values()) else None


def _row(
    name: str, type: ConfigType, default: Any, validator: Validator | None, doc: str, dynamic: bool = False
) -> ConfigDef:
    return ConfigDef(name, type, default, doc, validator, dynamic=dynamic)


ACCESS_ROWS = (
    _row("allow.everyone.if.no.acl.found", BOOLEAN, False, None,
         "With an authorizer: whether everyone may use a resource that has no ACL."),
    _row("authorizer.class.name", STRING, "", OneOf("", *AUTHORIZERS),
         "Turns ACLs on, with either of Kafka's names; empty for no authorizer."),
    _row("penstock.audit.enable", BOOLEAN, False, None,
         "Whether denied and administrative requests are recorded in the topic __penstock_audit."),
    _row("penstock.audit.events", LIST, AUDIT_EVENTS, AtLeastOneOf(*AUDIT_EVENTS),
         "What is recorded there: requests that the authorizer denies (`denied`), requests that change"
         " topics, settings, users, ACLs, quotas or groups (`admin`), logins that fail (`authentication`)."),
    _row("controller.quota.window.num", INT, 11, Range(1),
         "The samples kept of the rate of changes to topics, for controller_mutation_rate."),
    _row("controller.quota.window.size.seconds", INT, 1, Range(1), "How long each of these samples is."),
    _row("max.connection.creation.rate", INT, INT_MAX, Range(1),
         "The most new connections in a second; the next ones wait before they are read.", dynamic=True),
    _row("max.connections.per.ip", INT, INT_MAX, Range(0),
         "The most connections of one address at a time.", dynamic=True),
    _row("max.connections.per.ip.overrides", STRING, "", Overrides(),
         "Other limits for some addresses: `127.0.0.1:200,192.168.1.7:10`.", dynamic=True),
    _row("quota.window.num", INT, 11, Range(1), "The samples kept of the rates of clients, for quotas."),
    _row("quota.window.size.seconds", INT, 1, Range(1), "How long each of these samples is."),
    _row("super.users", STRING, "", Principals(),
         "Principals that may do everything: `User:admin;User:broker`. The brokers' own must be among them."),
)  # fmt: skip
