"""The client's side of a SASL login (KIP-43, KIP-152, KIP-368), without a socket.

The synchronous client logs in with it, and brokers with each other: both send what `first` and `next` give,
each in its own way. PLAIN (RFC 4616) and SCRAM (RFC 5802, 7677) are here; OAUTHBEARER, which asks for tokens
over HTTP, is the client's.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.credentials.scram import ClientScram, ScramFailed
from penstock.errors import PenstockError, error_for_code
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message


class ClientLoginFailed(PenstockError):
    """The broker sent what it must not, or has not proved that it knows the password."""


class MechanismNotSupported(ClientLoginFailed):
    def __init__(self, mechanism: str, supported: Sequence[str]) -> None:
        self.mechanism = mechanism
        self.supported = ", ".join(supported) or "none"
        super().__init__(f"{mechanism} is not supported; supported: {self.supported}")


class LoginRejected(ClientLoginFailed):
    """The broker has rejected the user; `reason` is in its words."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class ClientMechanism(Protocol):
    """Makes the first message and replies to each of the broker's; `done` shows whether the broker has proved
    what it must. SCRAM also authenticates the broker: one that does not know the password is refused."""

    name: str
    done: bool

    def first(self) -> bytes: ...
    def respond(self, challenge: bytes) -> bytes:
        """SCRAM takes milliseconds, so an event loop runs it in a thread."""

    def rejected(self) -> None:
        """The broker has rejected the login."""


def by_password(
    name: str,
    username: str,
    password: str,
    *,
    is_token: bool = False,
    nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24),
) -> ClientMechanism:
    """PLAIN or SCRAM; `nonce` returns a new unique text at each call."""
    if name == "PLAIN":
        return Plain(username, password)
    return Scram(name, username, password, nonce(), is_token=is_token)


class Plain:
    name = "PLAIN"
    done = True

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def respond(self, challenge: bytes) -> bytes:
        raise ClientLoginFailed("the broker sent an unexpected challenge for PLAIN")

    def rejected(self) -> None:
        return None


class Scram:
    """SCRAM-SHA-256 or SCRAM-SHA-512, without channel binding, as Kafka's brokers speak it."""

    def __init__(
        self, name: str, username: str, password: str, nonce: str, *, is_token: bool = False
    ) -> None:
        self.name = name
        self.done = False
        self._proved = False
        self._scram = ClientScram(name, username, password, nonce, is_token=is_token)

    def first(self) -> bytes:
        return self._scram.first()

    def respond(self, challenge: bytes) -> bytes:
        if challenge.startswith(b"e="):
            reason = challenge[2:].decode(errors="replace")
            raise ClientLoginFailed(f"the broker refused {self.name}: {reason}")
        try:
            if not self._proved:
                self._proved = True
                return self._scram.proof(challenge)
            self._scram.check(challenge)
        except ScramFailed as error:
            raise ClientLoginFailed(f"{self.name} with the broker failed: {error}") from None
        self.done = True
        return b""

    def rejected(self) -> None:
        return None


Step = tuple[ApiKey, Message]
"""A request to send."""


class ClientLogin:
    """SaslHandshake, then SaslAuthenticate until the mechanism is done."""

    def __init__(self, mechanism: ClientMechanism) -> None:
        self._mechanism = mechanism
        self._begun = False
        self.lifetime_ms = 0
        """After which the broker closes the connection, unless it logs in again; 0: never."""

    def first(self) -> Step:
        return ApiKey.SASL_HANDSHAKE, Message(mechanism=self._mechanism.name)

    def next(self, answer: Message) -> Step | None:
        """What follows from the response to the last request; None when the login is complete."""
        mechanism = self._mechanism
        if not self._begun:
            if answer.error_code:
                raise MechanismNotSupported(mechanism.name, answer.mechanisms)
            self._begun = True
            return ApiKey.SASL_AUTHENTICATE, Message(auth_bytes=mechanism.first())
        if answer.error_code:
            mechanism.rejected()
            raise LoginRejected(answer.error_message or error_for_code(answer.error_code).kafka_name)
        message = b""
        if not mechanism.done:
            message = mechanism.respond(bytes(answer.auth_bytes))
        if mechanism.done:
            self.lifetime_ms = answer.session_lifetime_ms
            return None
        return ApiKey.SASL_AUTHENTICATE, Message(auth_bytes=message)
