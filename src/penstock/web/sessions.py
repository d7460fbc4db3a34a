"""Logins from a browser: a form, and a session cookie after the login.

A session is a random token in memory. It ends at logout, after `seconds`, with the process, and when the user
is removed from the users file or gets another password or other roles. The cookie is HttpOnly and
SameSite=Strict, so no script reads it and no page of another site can use it. Programs log in with the
Authorization header, as everywhere.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie

from penstock.credentials.users_file import User
from penstock.web.access import Principal, Role, ServerAccess, allows, forbidden
from penstock.web.guard import Headers, Refusal

_MOST = 10_000


class Sessions:
    """`Access` with sessions: who has a valid cookie is who logged in with it.

    public   paths that need no login
    form     where a browser without a login is sent
    """

    def __init__(
        self,
        access: ServerAccess,
        *,
        cookie: str,
        form: str = "/login",
        public: frozenset[str] = frozenset(),
        seconds: float = 12 * 3600.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cookie = cookie
        self._access = access
        self._form = form
        self._public = public | {form}
        self._seconds = seconds
        self._now = now
        self._open: dict[bytes, tuple[Principal, User, float]] = {}

    async def admit(
        self, headers: Headers, address: str, needed: Role, method: str = "GET", path: str = "/"
    ) -> Principal | Refusal:
        plain = path.partition("?")[0]
        principal = self.principal(headers)
        if plain in self._public:
            return self._access.over_rate(principal, address) or Principal("anonymous", None)
        if principal is None:
            found = await self._access.admit(headers, address, needed, method, path)
            is_browser = any(name == b"accept" and b"text/html" in value for name, value in headers)
            if isinstance(found, Refusal) and found.status == 401 and method == "GET" and is_browser:
                # Without the header that makes the browser show its own login dialog.
                return Refusal(303, "See Other", "Log in first", ((b"location", self._form.encode()),))
            return found
        refused = self._access.over_rate(principal, address)
        if refused is not None:
            return refused
        return principal if allows(principal, needed) else forbidden(principal, needed)

    async def log_in(self, name: str, password: str, address: str) -> str | Refusal:
        """The token of a new session, or a refusal."""
        basic = base64.b64encode(f"{name}:{password}".encode())
        found = await self._access.admit([(b"authorization", b"Basic " + basic)], address, Role.READ)
        if isinstance(found, Refusal):
            return found
        account = self._access.account(name)
        if account is None:
            return Refusal(401, "Unauthorized", "Unauthorized")  # the user was deleted a moment ago
        now = self._now()
        self._open = {key: each for key, each in self._open.items() if each[2] > now}
        while len(self._open) >= _MOST:
            self._open.pop(next(iter(self._open)))
        token = secrets.token_urlsafe(32)
        self._open[_digest(token)] = (found, account, now + self._seconds)
        return token

    def log_out(self, headers: Headers) -> None:
        self._open.pop(_digest(self._token(headers)), None)

    def principal(self, headers: Headers) -> Principal | None:
        """The principal of the cookie's session, while it is valid."""
        key = _digest(self._token(headers))
        principal, account, until = self._open.get(key, (None, None, 0.0))
        if principal is None:
            return None
        if self._now() < until and self._access.account(principal.name) == account:
            return principal
        del self._open[key]
        return None

    def _token(self, headers: Headers) -> str:
        for name, value in headers:
            if name == b"cookie":
                try:
                    found = SimpleCookie(value.decode("latin-1")).get(self.cookie)
                except CookieError:
                    continue
                if found is not None:
                    return found.value
        return ""


def _digest(token: str) -> bytes:
    # So that the time of the lookup reveals nothing about a token.
    return hashlib.sha256(token.encode()).digest()
