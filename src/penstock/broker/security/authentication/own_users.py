"""The SCRAM users with which brokers log in to each other: created at startup if they do not exist.

A client cannot create the first user of a new cluster, because it would have to log in. That user is the
`username` and `password` of a listener's `scram-….sasl.jaas.config`, which in Kafka are the login between
brokers.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping

from penstock.broker.security.authentication.listener import ListenerSecurity, jaas
from penstock.config import BrokerConfig
from penstock.controller.credentials import MECHANISMS, CredentialChange
from penstock.credentials.scram import MIN_ITERATIONS, salted_password


def missing_users(
    config: BrokerConfig, listeners: Mapping[str, ListenerSecurity], known: Mapping[tuple[str, str], object]
) -> Iterator[CredentialChange]:
    """The credentials to create. Computes hashes, so run it in a thread."""
    seen = set(known)
    for name, listener in listeners.items():
        enabled = () if listener.sasl is None else listener.sasl.mechanisms.enabled
        for number, mechanism in MECHANISMS.items():
            options = jaas(config, name, mechanism) if mechanism in enabled else {}
            user, password = options.get("username"), options.get("password")
            if user and password and (mechanism, user) not in seen:
                seen.add((mechanism, user))
                salt = secrets.token_bytes(20)
                salted = salted_password(mechanism, password, salt, MIN_ITERATIONS)
                yield CredentialChange(user, number, MIN_ITERATIONS, salt, salted)
