"""SASL from the client's side, without a socket: PLAIN (RFC 4616) and SCRAM (RFC 5802, 7677).

A mechanism says its first message and answers each of the server's; `done` tells whether the server has shown
what it must. SCRAM checks the server as well: one that does not know the password is not believed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Protocol

from penstock.client.errors import AuthenticationFailed
from penstock.client.security import Security

# More than this takes a client many seconds: a server that asks for it means no good.
_MOST_ITERATIONS = 10_000_000


class Mechanism(Protocol):
    name: str
    done: bool

    def first(self) -> bytes: ...
    def respond(self, challenge: bytes) -> bytes: ...


def mechanism(security: Security, nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24)) -> Mechanism:
    """The mechanism of these settings; `nonce` gives a text that was never used before."""
    if security.mechanism == "PLAIN":
        return Plain(security.username, security.password)
    return Scram(security.mechanism, security.username, security.password, nonce())


class Plain:
    name = "PLAIN"
    done = True

    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def respond(self, challenge: bytes) -> bytes:
        raise AuthenticationFailed("the broker asked for more than PLAIN has")


class Scram:
    """SCRAM-SHA-256 or SCRAM-SHA-512, without channel binding, as Kafka's brokers speak it."""

    def __init__(self, name: str, username: str, password: str, nonce: str) -> None:
        self.name = name
        self.done = False
        self._hash = "sha" + name.rpartition("-")[2]
        self._password = password.encode()
        self._nonce = nonce
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def respond(self, challenge: bytes) -> bytes:
        fields = self._fields(challenge)
        if "e" in fields:
            raise AuthenticationFailed(f"the broker refused {self.name}: {fields['e']}")
        if self._server_signature:
            self._check(fields)
            return b""
        return self._proof(challenge.decode(), fields)

    def _proof(self, server_first: str, fields: dict[str, str]) -> bytes:
        nonce = fields.get("r", "")
        try:
            salt = base64.b64decode(fields["s"], validate=True)
            iterations = int(fields["i"])
        except (KeyError, ValueError, binascii.Error):
            raise self._garbled() from None
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationFailed(f"the broker's {self.name} nonce does not continue ours")
        if not 0 < iterations <= _MOST_ITERATIONS:
            raise AuthenticationFailed(f"the broker asks for {iterations} iterations of {self.name}")
        final = f"c=biws,r={nonce}"
        signed = f"{self._first_bare},{server_first},{final}".encode()
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{final},p={base64.b64encode(proof).decode()}".encode()

    def _check(self, fields: dict[str, str]) -> None:
        try:
            shown = base64.b64decode(fields["v"], validate=True)
        except (KeyError, binascii.Error):
            raise self._garbled() from None
        if not hmac.compare_digest(shown, self._server_signature):
            raise AuthenticationFailed("the broker does not know the password either: it may be an impostor")
        self.done = True

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)

    def _fields(self, message: bytes) -> dict[str, str]:
        try:
            return dict(part.split("=", 1) for part in message.decode().split(","))
        except (UnicodeDecodeError, ValueError):
            raise self._garbled() from None

    def _garbled(self) -> AuthenticationFailed:
        return AuthenticationFailed(f"the broker's {self.name} message cannot be read")
