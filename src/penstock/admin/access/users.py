"""SCRAM users: list, set a password, delete, over AlterUserScramCredentials and its counterpart."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from penstock.admin.failure import CommandFailed, did_you_mean
from penstock.admin.wire_client import WireCluster
from penstock.credentials.scram import MAX_ITERATIONS, MIN_ITERATIONS, salted_password
from penstock.errors import error_for_code
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

__all__ = [
    "DEFAULT_MECHANISM",
    "MAX_ITERATIONS",
    "MECHANISMS",
    "MIN_ITERATIONS",
    "delete_user",
    "known_users",
    "set_password",
]

_NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_NAMES = {number: name for name, number in _NUMBERS.items()}
MECHANISMS = tuple(_NUMBERS)
DEFAULT_MECHANISM = "SCRAM-SHA-512"
_SALT_BYTES = 20


def set_password(
    wire: WireCluster,
    name: str,
    password: str,
    mechanisms: Iterable[str] = (DEFAULT_MECHANISM,),
    iterations: int = MIN_ITERATIONS,
) -> None:
    """Add a user, or change a password. The salt is new each time; the password itself is not sent."""
    upsertions = []
    for mechanism in mechanisms:
        salt = secrets.token_bytes(_SALT_BYTES)
        upsertions.append(
            Message(
                name=name,
                mechanism=_NUMBERS[mechanism],
                iterations=iterations,
                salt=salt,
                salted_password=salted_password(mechanism, password, salt, iterations),
            )
        )
    _alter(wire, [], upsertions, f"cannot add user '{name}'")


def known_users(wire: WireCluster) -> dict[str, list[tuple[str, int]]]:
    """Mechanisms and iterations of each user."""
    answer = wire.brokers()[0].request(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, Message(users=None))
    _check(answer.error_code, answer.error_message, "cannot list users")
    found: dict[str, list[tuple[str, int]]] = {}
    for one in answer.results:
        _check(one.error_code, one.error_message, f"cannot describe user '{one.user}'")
        found[one.user] = [
            (_NAMES.get(info.mechanism, str(info.mechanism)), info.iterations)
            for info in one.credential_infos
        ]
    return found


def delete_user(wire: WireCluster, name: str, mechanisms: Iterable[str] = ()) -> list[str]:
    """Delete a user, or only its logins with these mechanisms. Returns the deleted mechanisms."""
    found = known_users(wire)
    if name not in found:
        raise CommandFailed(f"no user '{name}'.{did_you_mean(name, found)}")
    have = sorted(mechanism for mechanism, _ in found[name])
    missing = sorted(set(mechanisms) - set(have))
    if missing:
        raise CommandFailed(f"user '{name}' has no {missing[0]} password: it has {', '.join(have)}.")
    deleted = sorted(mechanisms) or have
    deletions = [Message(name=name, mechanism=_NUMBERS[mechanism]) for mechanism in deleted]
    _alter(wire, deletions, [], f"cannot delete user '{name}'")
    return deleted


def _alter(wire: WireCluster, deletions: list[Message], upsertions: list[Message], doing: str) -> None:
    request = Message(deletions=deletions, upsertions=upsertions)
    answer = wire.brokers()[0].request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request)
    for result in answer.results:
        _check(result.error_code, result.error_message, doing)


def _check(code: int, message: str | None, doing: str) -> None:
    if code:
        raise CommandFailed(f"{doing}: {message or type(error_for_code(code)).__name__}")
