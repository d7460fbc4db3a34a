"""Plans changes of SCRAM credentials: validates AlterUserScramCredentials requests. Pure; stores nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.credentials.scram import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential, credential
from penstock.errors import (
    ApiError,
    DuplicateResource,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""The mechanisms by their numbers in the protocol."""

CredentialKey = tuple[str, str]
"""Mechanism and user."""


@dataclass(frozen=True, slots=True)
class CredentialChange:
    """A change of one credential; without a `salted_password` it deletes it."""

    user: str
    mechanism: int
    iterations: int = 0
    salt: bytes = field(default=b"", repr=False)
    salted_password: bytes | None = field(default=None, repr=False)


def plan_credentials(
    known: Mapping[CredentialKey, ScramCredential], changes: Sequence[CredentialChange]
) -> tuple[dict[str, ApiError | None], dict[CredentialKey, ScramCredential | None]]:
    """The result for each user, and the credentials to store (None: to delete). A user with an error is not
    changed."""
    results: dict[str, ApiError | None] = {}
    planned: dict[CredentialKey, ScramCredential | None] = {}
    for change in changes:
        key = (MECHANISMS.get(change.mechanism, ""), change.user)
        try:
            if key in planned:
                raise DuplicateResource("A user credential cannot be altered twice in the same request")
            planned[key] = _planned(known, change, key)
            results.setdefault(change.user, None)
        except ApiError as error:
            results[change.user] = results.get(change.user) or error
    return results, {key: one for key, one in planned.items() if results[key[1]] is None}


def _planned(
    known: Mapping[CredentialKey, ScramCredential], change: CredentialChange, key: CredentialKey
) -> ScramCredential | None:
    if not change.user:
        raise UnacceptableCredential("Username must not be empty")
    if not key[0]:
        raise UnsupportedSaslMechanism("Unknown SCRAM mechanism")
    if change.salted_password is None:
        if key not in known:
            raise ResourceNotFound("Attempt to delete a user credential that does not exist")
        return None
    if change.iterations < MIN_ITERATIONS:
        raise UnacceptableCredential("Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise UnacceptableCredential("Too many iterations")
    return credential(key[0], change.salted_password, change.salt, change.iterations)
