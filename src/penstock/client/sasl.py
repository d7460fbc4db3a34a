"""The SASL mechanism of the client's settings; of them OAUTHBEARER (RFC 7628), without a socket."""

from __future__ import annotations

from penstock.client.errors import AuthenticationFailed
from penstock.client.oauth import Token, TokenSource, current, forget
from penstock.client.security import Security
from penstock.wire.login import ClientMechanism, by_password


def mechanism(security: Security) -> ClientMechanism:
    """The mechanism of these settings."""
    if security.tokens is not None:
        return OAuthBearer(security.tokens)
    return by_password(security.mechanism, security.username, security.password, is_token=security.is_token)


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

    def rejected(self) -> None:
        if not self.done:
            self.respond(b"refused")
