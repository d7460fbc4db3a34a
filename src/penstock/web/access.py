"""Authentication, roles and rate limits of an HTTP server: users of a file (basic) and JSON web tokens
(bearer).

A request without a valid login gets 401, one whose role is not sufficient 403, and one above its rate 429. A
wrong user and a wrong password take the same work and get the same response. The guard has already rejected
requests that a web page could send.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import ipaddress
import logging
import math
import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.credentials import LoginFailed
from penstock.credentials.tokens import JwksTokens
from penstock.credentials.users_file import TooManyLogins, User, UsersFile
from penstock.web.guard import Headers, Refusal
from penstock.web.peers import SCHEME, PeerKey, signed_digest
from penstock.web.rates import RateLimit

log = logging.getLogger(__name__)

_FAILURES_A_SECOND, _FAILURES_AT_ONCE = 5.0, 50.0
_MOST_TOKENS = 1000
_TOKEN_SECONDS = 60.0
"""How long a checked token is accepted without checking it and its key again."""


class Role(enum.IntEnum):
    """Each role includes those before it, except PEER."""

    READ = 1
    WRITE = 2
    ADMIN = 3
    PEER = 4
    """Another server of the same group: may call what only servers may call, and nothing else. No user has
    this role.
    """

    @property
    def word(self) -> str:
        return self.name.lower()


ROLES = {role.word: role for role in Role if role is not Role.PEER}


@dataclass(frozen=True, slots=True)
class Principal:
    name: str
    role: Role | None
    """None if a token names no role: it has no permissions."""
    body_digest: str | None = None
    """The digest of the body that another server of the group has signed."""


ANYONE = Principal("anonymous", Role.ADMIN)
"""The user of a server that requires no login."""


PRINCIPAL = "penstock.principal"
"""The key in the ASGI scope under which an admitted request has its principal."""


def principal_of(scope: MutableMapping[str, Any]) -> Principal:
    """The sender of a request."""
    found: Principal = scope.get(PRINCIPAL, ANYONE)
    return found


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """What a server asks of who uses it.

    users_file   `name: password` or `name: hash`, and a role; without one, a user may do everything
    jwks         the keys of who issues tokens: a file, or a URL
    roles_claim  the claim of a token that names its role, or several
    rate         requests a second of one user, or of one address where nobody logs in; 0 for any
    """

    users_file: str | None = None
    jwks: str | None = None
    issuer: str | None = None
    audience: tuple[str, ...] = ()
    roles_claim: str = "roles"
    rate: float = 0.0

    @property
    def login(self) -> bool:
        return self.users_file is not None or self.jwks is not None


NOTHING_ASKED = AccessSettings()


class ServerAccess:
    """The access control of one server. For one event loop."""

    @classmethod
    def of(cls, settings: AccessSettings, realm: str, peer_key: PeerKey | None = None) -> ServerAccess | None:
        """None if no login is required."""
        return None if settings == NOTHING_ASKED else cls(settings, realm, peer_key=peer_key)

    def __init__(
        self,
        settings: AccessSettings,
        realm: str = "penstock",
        now: Callable[[], float] = time.monotonic,
        peer_key: PeerKey | None = None,
    ) -> None:
        """Raises ConfigError if the users or keys cannot be used. With `peer_key`, other servers log in with
        that key.
        """
        self._now = now
        self._peer_key = peer_key
        self._login = settings.login
        self._users = None
        if settings.users_file is not None:
            self._users = UsersFile(settings.users_file, setting="--auth-file", roles=ROLES)
        self._tokens = None
        if settings.jwks is not None:
            is_url = "://" in settings.jwks
            url = settings.jwks if is_url else Path(settings.jwks).absolute().as_uri()
            self._tokens = JwksTokens(
                url, setting="--jwks", issuer=settings.issuer, audience=settings.audience
            )
        self._roles_claim = settings.roles_claim
        self._checked: dict[bytes, tuple[Principal, float]] = {}
        self._failures = RateLimit(_FAILURES_A_SECOND, _FAILURES_AT_ONCE)
        self._rate = RateLimit(settings.rate, 2 * settings.rate) if settings.rate else None
        challenges = [("Basic", self._users), ("Bearer", self._tokens)]
        self._challenge = tuple(
            (b"www-authenticate", f'{kind} realm="{realm}"'.encode())
            for kind, served in challenges
            if served is not None
        )

    async def admit(
        self, headers: Headers, address: str, needed: Role, method: str = "GET", path: str = "/"
    ) -> Principal | Refusal:
        """The principal of a request, or a refusal. `path` includes the query."""
        principal = ANYONE
        if self._login:
            found = await self._identify(headers, address, method, path)
            if isinstance(found, Refusal):
                return found
            principal = found
        refused = self.over_rate(principal if self._login else None, address)
        if refused is not None:
            return refused
        if not self._login and needed is Role.PEER:
            return principal  # if no login is required, servers do not log in either
        return principal if allows(principal, needed) else forbidden(principal, needed)

    def account(self, name: str) -> User | None:
        """The user's current entry in the users file. It is another value if the password or the roles
        differ.
        """
        return None if self._users is None else self._users.user(name)

    def over_rate(self, principal: Principal | None, address: str) -> Refusal | None:
        """A refusal if the request is above its rate; otherwise counts it. None for requests without a
        login.
        """
        if self._rate is None or (principal is not None and principal.role is Role.PEER):
            return None
        key = f"address {_network(address)}" if principal is None else f"user {principal.name}"
        wait = self._rate.wait(key, self._now())
        if wait:
            return _too_often("Too many requests", wait)
        self._rate.take(key, self._now())
        return None

    def close(self) -> None:
        if self._users is not None:
            self._users.close()

    async def _identify(self, headers: Headers, address: str, method: str, path: str) -> Principal | Refusal:
        given = [value for name, value in headers if name == b"authorization"]
        if len(given) > 1:
            return Refusal(400, "Bad Request", "The request has more than one Authorization header")
        kind, _, text = given[0].decode("latin-1").strip().partition(" ") if given else ("", "", "")
        kind, text = kind.lower(), text.strip()
        basic = _basic(text) if kind == "basic" and self._users is not None else None
        if basic is not None and self._users is not None:
            roles = self._users.remembered(*basic)
            if roles is not None:
                return _user(basic[0], roles)
        network = _network(address)
        wait = self._failures.wait(network, self._now())
        if wait:
            return _too_often("Too many failed logins", wait)
        try:
            if basic is not None and self._users is not None:
                roles = await self._users.check(*basic)
                if roles is not None:
                    return _user(basic[0], roles)
            elif kind == "bearer" and self._tokens is not None:
                return await self._token(text)
            elif kind == SCHEME.lower() and self._peer_key is not None:
                digest = signed_digest(self._peer_key(), text, method, path, time.time())
                if digest is not None:
                    return Principal("another server of the group", Role.PEER, digest)
        except TooManyLogins:
            return _too_often("Too many logins", 1.0)
        except LoginFailed as error:
            log.info("authentication failed: %s", error)
        if given:
            self._failures.take(network, self._now())
        return Refusal(401, "Unauthorized", "Unauthorized", self._challenge)

    async def _token(self, token: str) -> Principal:
        digest = hashlib.sha256(token.encode("latin-1")).digest()
        known = self._checked.get(digest)
        if known is not None and self._now() < known[1]:
            return known[0]
        assert self._tokens is not None
        claims = await self._tokens.claims(token)
        principal = Principal(str(claims["sub"]), _role(claims.get(self._roles_claim)))
        lasts = min(_TOKEN_SECONDS, float(claims["exp"]) - time.time())
        if lasts > 0:
            if len(self._checked) >= _MOST_TOKENS:
                self._checked.clear()
            self._checked[digest] = (principal, self._now() + lasts)
        return principal


def allows(principal: Principal, needed: Role) -> bool:
    if Role.PEER in (principal.role, needed):
        return principal.role is needed
    return principal.role is not None and principal.role >= needed


def forbidden(principal: Principal, needed: Role) -> Refusal:
    if needed is Role.PEER:
        return Refusal(403, "Forbidden", "Only servers of the same group send this request")
    return Refusal(
        403, "Forbidden", f"User '{principal.name}' may not do this: it needs the role {needed.word}"
    )


def by_method(method: str, path: bytes) -> Role:
    """The role that a request needs by default, if the application does not say otherwise."""
    return Role.READ if method in ("GET", "HEAD", "OPTIONS") else Role.WRITE


def _user(name: str, roles: frozenset[str]) -> Principal:
    return Principal(name, max((ROLES[role] for role in roles), default=Role.ADMIN))


def _role(claim: Any) -> Role | None:
    """From a list, or from words separated by spaces as in OAuth's `scope`; `penstock:read` is `read`."""
    words = claim.split() if isinstance(claim, str) else claim if isinstance(claim, list) else []
    found = [ROLES.get(str(word).removeprefix("penstock:")) for word in words]
    return max((role for role in found if role is not None), default=None)


def _network(address: str) -> str:
    """The network that an address counts for: one machine can own a whole IPv6 /64."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(found) >> 64 << 64))


def _basic(text: str) -> tuple[str, str] | None:
    try:
        name, _, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return name, password


def _too_often(what: str, wait: float) -> Refusal:
    seconds = max(1, math.ceil(wait))
    return Refusal(
        429,
        "Too Many Requests",
        f"{what}: try again in {seconds} s",
        ((b"retry-after", str(seconds).encode()),),
    )
