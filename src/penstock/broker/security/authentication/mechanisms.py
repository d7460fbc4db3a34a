"""The server side of the SASL mechanisms: PLAIN (RFC 4616), SCRAM (RFC 5802), OAUTHBEARER (RFC 7628)."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from penstock.broker.security.authentication.sasl import Mechanism
from penstock.broker.security.authentication.unknown_users import Credentials, UnknownUsers
from penstock.credentials import LoginFailed
from penstock.credentials.scram import ScramCredential, ScramFailed, ServerScram
from penstock.metadata.tokens import DelegationToken


class PlainUsers(Protocol):
    async def knows(self, user: str, password: str) -> bool:
        """Whether the password is correct. Takes the same time for unknown users."""
        ...


class Tokens(Protocol):
    async def check(self, token: str) -> tuple[str, int]:
        """The user of a token, and its expiry in milliseconds; LoginFailed if it is not valid."""
        ...


TokenLogins = Callable[[str, str], Awaitable[tuple[DelegationToken, ScramCredential] | None]]
"""Of a mechanism and the id of a delegation token."""


class Mechanisms:
    """The mechanisms of a listener, and what each of them needs."""

    def __init__(
        self,
        enabled: tuple[str, ...],
        *,
        users: PlainUsers | None,
        credentials: Credentials,
        salt_key: bytes,
        tokens: Tokens | None,
        token_logins: TokenLogins | None = None,
    ) -> None:
        self.enabled = enabled
        self._users = users
        self._credentials = credentials
        self._unknown = UnknownUsers(salt_key, credentials)
        self._tokens = tokens
        self._token_logins = token_logins

    def begin(self, name: str) -> Mechanism:
        if name == "PLAIN":
            assert self._users is not None
            return _Plain(self._users)
        if name == "OAUTHBEARER":
            assert self._tokens is not None
            return _OAuthBearer(self._tokens)
        return _Scram(name, self._credentials, self._unknown, self._token_logins)


class _Plain:
    def __init__(self, users: PlainUsers) -> None:
        self._users = users
        self.user = ""
        self.is_done = False
        self.expires_ms: int | None = None
        self.by_token = False

    async def respond(self, message: bytes) -> bytes:
        try:
            authzid, user, password = message.decode().split("\0")
        except ValueError:  # not text, or not three parts
            raise LoginFailed("a message that cannot be read") from None
        known = await self._users.knows(user, password)
        if not known or not user or (authzid and authzid != user):
            raise LoginFailed("wrong user or password")
        self.user = user
        self.is_done = True
        return b""


class _Scram:
    def __init__(
        self, name: str, credentials: Credentials, unknown: UnknownUsers, token_logins: TokenLogins | None
    ) -> None:
        self._name = name
        self._credentials = credentials
        self._unknown = unknown
        self._imagined = b"", 0
        self._token_logins = token_logins
        self._token: tuple[DelegationToken, ScramCredential] | None = None
        self._exchange = ServerScram(
            name,
            self._find,
            lambda user: self._imagined,
            secrets.token_urlsafe(24),
        )
        self._begun = False
        self.user = ""
        self.is_done = False
        self.expires_ms: int | None = None
        self.by_token = False

    async def respond(self, message: bytes) -> bytes:
        try:
            if not self._begun:
                self._begun = True
                token_id = ServerScram.token_of(message)
                self.by_token = token_id is not None
                if token_id is not None and self._token_logins is not None:
                    self._token = await self._token_logins(self._name, token_id)
                return self._exchange.first(message)
            answer = self._exchange.final(message)
        except ScramFailed as error:
            raise LoginFailed(str(error)) from None
        self.user = self._exchange.user
        if self._token is not None:
            self.user = self._token[0].owner.partition(":")[2]
            self.expires_ms = self._token[0].expires_ms
        self.is_done = True
        return answer

    def _find(self, user: str) -> ScramCredential | None:
        # Computed for existing users too, so that both cases take the same time.
        shown = self._unknown.shown_token if self.by_token else self._unknown.shown
        self._imagined = shown(self._name, user)
        if self.by_token:  # never check a user's password, even if a user has the name of the token
            return None if self._token is None else self._token[1]
        return self._credentials().get((self._name, user))


class _OAuthBearer:
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._failed: LoginFailed | None = None
        self.user = ""
        self.is_done = False
        self.expires_ms: int | None = None
        self.by_token = False

    async def respond(self, message: bytes) -> bytes:
        if self._failed is not None:
            # RFC 7628, 3.2.3: the client answers a failure with one byte, then the login ends.
            raise self._failed
        try:
            user, self.expires_ms = await self._tokens.check(_bearer(message))
        except LoginFailed as error:
            self._failed = error
            return json.dumps({"status": "invalid_token"}).encode()
        self.user = user
        self.is_done = True
        return b""


def _bearer(message: bytes) -> str:
    """`n,a=user,\\x01auth=Bearer token\\x01key=value\\x01\\x01`"""
    try:
        header, *pairs = message.decode("ascii").split("\x01")
    except UnicodeDecodeError:
        raise LoginFailed("a message that cannot be read") from None
    fields = dict(pair.partition("=")[::2] for pair in pairs if pair)
    kind, _, token = fields.get("auth", "").partition(" ")
    if not header.startswith(("n,", "y,")) or kind.lower() != "bearer" or not token:
        raise LoginFailed("a message without a bearer token")
    return token.strip()


class FixedUsers:
    """The users of a JAAS config: `user_alice="password"`."""

    def __init__(self, options: Callable[[], Mapping[str, str]]) -> None:
        self._options = options
        self._key = secrets.token_bytes(32)

    async def knows(self, user: str, password: str) -> bool:
        expected = self._options().get(f"user_{user}")
        compared = secrets.token_hex(8) if expected is None else expected
        right = hmac.compare_digest(self._digest(password), self._digest(compared))
        return right and expected is not None

    def _digest(self, password: str) -> bytes:
        # Digests have equal lengths, so that the comparison time does not reveal the length of the password.
        return hmac.digest(self._key, password.encode(), hashlib.sha256)
