"""Users in a file: `name: password`, or `name: pbkdf2_sha256:iterations:salt:hash`; with roles, `…, role`.

One thread computes the hashes: a flood of logins waits there and delays nothing else. A successful login is
remembered by a keyed digest until the file changes, so that clients that reconnect cost little. Every failed
login takes the same work, whether or not the user exists and however its password is stored.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import os
import secrets
import threading
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from penstock.credentials import LoginFailed
from penstock.errors import ConfigError

log = logging.getLogger(__name__)

_SCHEME, _PLAIN_SHA = "pbkdf2_sha256", "sha256"
_MOST_ITERATIONS = 10_000_000
_MOST_REMEMBERED = 10_000
_MOST_WAITING = 256
_TRUSTED_SECONDS = 1.0
"""How long a remembered login is used before the file is checked for changes."""
_NOBODYS_SALT = bytes(16)


class TooManyLogins(LoginFailed):
    """More passwords are waiting to be checked than the thread can check soon."""


@dataclass(frozen=True, slots=True)
class User:
    """A line of the file."""

    password: str = field(repr=False)
    roles: frozenset[str]

    @property
    def iterations(self) -> int:
        scheme, _, rest = self.password.partition(":")
        return int(rest.split(":")[0]) if scheme == _SCHEME else 0


class UsersFile:
    """`path` is read when it has changed; ConfigError at the beginning where it cannot be.

    setting   what named the file, for errors
    roles     those that a line may name after its password, separated by commas; None: a comma is a part of
              the password, as in the files of brokers
    """

    def __init__(
        self,
        path: str,
        *,
        setting: str = "penstock.sasl.plain.users.file",
        roles: Collection[str] | None = None,
    ) -> None:
        self._path = path
        self._setting = setting
        self._known_roles = roles
        self._key = secrets.token_bytes(32)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="passwords")
        self._waiting = 0
        self._good: dict[bytes, frozenset[str]] = {}
        self._stamp: tuple[int, int, int] | None = None
        self._users: dict[str, User] = {}
        self._reading = threading.Lock()
        self._work = 0
        self._looked_at = float("-inf")
        self._refresh()
        if roles is not None and not self._users:
            raise ConfigError(f"{setting} {path} has no users: write one `name: password` on each line")
        if roles is not None:
            self._warn_of_weak()

    async def knows(self, user: str, password: str) -> bool:
        return await self.check(user, password) is not None

    async def check(self, user: str, password: str) -> frozenset[str] | None:
        """The roles of the user if the password is right, else None. Raises TooManyLogins if the check would
        take too long.
        """
        if self._waiting >= _MOST_WAITING:
            raise TooManyLogins("too many logins at once")
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._check, user, password)
        finally:
            self._waiting -= 1

    def remembered(self, user: str, password: str) -> frozenset[str] | None:
        """The roles of a recent successful login. Costs one digest."""
        if time.monotonic() - self._looked_at > _TRUSTED_SECONDS:
            return None
        return self._good.get(self._digest(user, password))

    def user(self, name: str) -> User | None:
        """The current entry of a user in the file. Looks at the file at most once a second."""
        if time.monotonic() - self._looked_at > _TRUSTED_SECONDS:
            self._look()
        return self._users.get(name)

    def close(self) -> None:
        self._thread.shutdown(wait=False)

    def _warn_of_weak(self) -> None:
        for name, user in self._users.items():
            if user.iterations == 0:
                log.warning(
                    "%s %s: the password of user '%s' is not a salted hash: make one with "
                    "`penstock users hash %s`",
                    self._setting, self._path, name, name,
                )  # fmt: skip

    def _look(self) -> None:
        try:
            with self._reading:
                self._refresh()
        except ConfigError:
            pass  # the users stay as they were
        self._looked_at = time.monotonic()

    # in the thread

    def _check(self, user: str, password: str) -> frozenset[str] | None:
        self._look()
        digest = self._digest(user, password)
        if digest in self._good:
            return self._good[digest]
        stored = self._users.get(user)
        right = _is_right(password, stored.password if stored is not None else secrets.token_hex(16))
        # The number of iterations that the slowest user needs, used for every user, known or not.
        rest = self._work - (0 if stored is None else stored.iterations)
        if rest:
            hashlib.pbkdf2_hmac("sha256", password.encode(), _NOBODYS_SALT, rest)
        if not right or stored is None:
            return None
        if len(self._good) < _MOST_REMEMBERED:
            self._good = {**self._good, digest: stored.roles}
        return stored.roles

    def _digest(self, user: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{len(user)}:{user}{password}".encode(), hashlib.sha256)

    def _refresh(self) -> None:
        try:
            stat = os.stat(self._path)
            stamp = stat.st_mtime_ns, stat.st_size, stat.st_ino
            if stamp == self._stamp:
                return
            with open(self._path, encoding="utf-8") as file:
                lines = file.read().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self._setting}={self._path} cannot be read: {error}") from None
        users: dict[str, User] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.lstrip()[0] in "#!":
                continue
            name, colon, value = (part.strip() for part in line.partition(":"))
            named: list[str] = []
            if self._known_roles is not None:
                value, *named = (part.strip() for part in value.split(","))
            if not name or not colon or not value or not _can_be_checked(value):
                raise ConfigError(f"{self._path}, line {number}: write `name: password`")
            for role in named:
                if role not in (self._known_roles or ()):
                    known = ", ".join(self._known_roles or ())
                    raise ConfigError(f"{self._path}, line {number}: no role '{role}': use one of {known}")
            users[name] = User(value, frozenset(named))
        self._stamp, self._users = stamp, users
        self._work = max((user.iterations for user in users.values()), default=0)
        self._good = {}


def hashed(password: str, iterations: int = 100_000) -> str:
    """The text to put into a users file for this password."""
    salt = secrets.token_bytes(16)
    digest = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    return f"{_SCHEME}:{iterations}:{base64.b64encode(salt).decode()}:{base64.b64encode(digest).decode()}"


def _can_be_checked(value: str) -> bool:
    scheme, _, rest = value.partition(":")
    if scheme != _SCHEME:
        return True
    parts = rest.split(":")
    try:
        return len(parts) == 3 and 0 < int(parts[0]) <= _MOST_ITERATIONS and all(map(_decoded, parts[1:]))
    except ValueError:
        return False


def _decoded(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _is_right(password: str, stored: str) -> bool:
    scheme, _, rest = stored.partition(":")
    if scheme == _SCHEME:
        iterations, salt, digest = rest.split(":")
        found = hashlib.pbkdf2_hmac("sha256", password.encode(), _decoded(salt), int(iterations))
        return hmac.compare_digest(found, _decoded(digest))
    given = password.encode()
    # The format of Confluent's registry: without a salt, so only for long random passwords.
    if scheme == _PLAIN_SHA and len(rest) == 64:
        return hmac.compare_digest(hashlib.sha256(given).hexdigest().encode(), rest.lower().encode())
    # Equal lengths, so that timing does not reveal the length.
    return hmac.compare_digest(hashlib.sha256(given).digest(), hashlib.sha256(stored.encode()).digest())
