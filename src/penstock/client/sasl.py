"""The client's side of SASL, without a socket: PLAIN (RFC 4616), SCRAM (RFC 5802, 7677), OAUTHBEARER (RFC
7628).

A mechanism makes the first message and replies to each of the server's; `done` shows whether the server has
proved what it must. SCRAM also authenticates the server: a server that does not know the password is
rejected.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Protocol

from penstock.client.errors import AuthenticationFailed
from penstock.client.oauth import Token, TokenSource, current, forget
from penstock.client.security import Security
from penstock.credentials.scram import ClientScram, ScramFailed


class Mechanism(Protocol):
    name: str
    done: bool

    def first(self) -> bytes: ...
    def respond(self, challenge: bytes) -> bytes: ...


def mechanism(security: Security, nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24)) -> Mechanism:
    """The mechanism of these settings; `nonce` returns a new unique text at each call."""
    if security.tokens is not None:
        return OAuthBearer(security.tokens)
    if security.mechanism == "PLAIN":
        return Plain(security.username, security.password)
    return Scram(
        security.mechanism, security.username, security.password, nonce(), is_token=security.is_token
    )


class Plain:
    name = "PLAIN"
    done = True

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def respond(self, challenge: bytes) -> bytes:
        raise AuthenticationFailed("the broker sent an unexpected challenge for PLAIN")


class OAuthBearer:
    """One bearer token. The broker sends the reason for a rejection as a challenge."""

    name = "OAUTHBEARER"

    def __init__(self, source: TokenSource) -> None:
        self.done = False
        self._source = source
        self._token: Token | None = None
        self._refused = False

    def first(self) -> bytes:
        self._token = current(self._source)
        more = "".join(f"\x01{name}={value}" for name, value in self._source.extensions)
        return f"n,,\x01auth=Bearer {self._token.value}{more}\x01\x01".encode()

    def respond(self, challenge: bytes) -> bytes:
        if not challenge:
            self.done = True
            return b""
        if self._token is not None:
            forget(self._source, self._token)
        if self._refused:
            raise AuthenticationFailed("the broker refused the token")
        self._refused = True
        return b"\x01"  # RFC 7628, 3.2.3: acknowledge the error, then the broker fails the login


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
            raise AuthenticationFailed(f"the broker refused {self.name}: {reason}")
        try:
            if not self._proved:
                self._proved = True
                return self._scram.proof(challenge)
            self._scram.check(challenge)
        except ScramFailed as error:
            raise AuthenticationFailed(f"{self.name} with the broker failed: {error}") from None
        self.done = True
        return b""
