"""The users of PLAIN in a file: `name: password`, or `name: pbkdf2_sha256:iterations:salt:hash`.

Hashes are computed in one thread: a flood of logins waits there, and holds nobody else up. A login that was
right once is remembered by a keyed digest until the file changes, so that reconnecting clients cost little.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import secrets
from concurrent.futures import ThreadPoolExecutor

from penstock.errors import ConfigError

_SCHEME = "pbkdf2_sha256"
_MOST_ITERATIONS = 10_000_000
_MOST_REMEMBERED = 10_000


class UsersFile:
    """`path` is read when it has changed; ConfigError at the beginning where it cannot be."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._key = secrets.token_bytes(32)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="passwords")
        self._good: set[bytes] = set()
        self._stamp: tuple[int, int, int] | None = None
        self._users: dict[str, str] = {}
        self._refresh()

    async def knows(self, user: str, password: str) -> bool:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._knows, user, password)

    def close(self) -> None:
        self._thread.shutdown(wait=False)

    # in the thread

    def _knows(self, user: str, password: str) -> bool:
        try:
            self._refresh()
        except ConfigError:
            pass  # who was known stays so
        digest = hmac.digest(self._key, f"{len(user)}:{user}{password}".encode(), hashlib.sha256)
        if digest in self._good:
            return True
        stored = self._users.get(user)
        right = _is_right(password, stored or self._like_the_others())
        if not right or stored is None:
            return False
        if len(self._good) < _MOST_REMEMBERED:
            self._good.add(digest)
        return True

    def _like_the_others(self) -> str:
        """Something that takes as long to check for a user that is not known."""
        some = next((value for value in self._users.values() if value.startswith(_SCHEME)), "")
        parts = some.split(":")
        salt = base64.b64encode(bytes(16)).decode()
        wrong = base64.b64encode(secrets.token_bytes(32)).decode()
        return f"{_SCHEME}:{parts[1]}:{salt}:{wrong}" if len(parts) == 4 else secrets.token_hex(16)

    def _refresh(self) -> None:
        try:
            stat = os.stat(self._path)
            stamp = stat.st_mtime_ns, stat.st_size, stat.st_ino
            if stamp == self._stamp:
                return
            with open(self._path, encoding="utf-8") as file:
                lines = file.read().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"penstock.sasl.plain.users.file={self._path} cannot be read: {error}"
            ) from None
        users: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.lstrip()[0] in "#!":
                continue
            name, colon, value = (part.strip() for part in line.partition(":"))
            if not name or not colon or not value or not _can_be_checked(value):
                raise ConfigError(f"{self._path}, line {number}: write `name: password`")
            users[name] = value
        self._stamp, self._users = stamp, users
        self._good.clear()


def hashed(password: str, iterations: int = 100_000) -> str:
    """What a users file has for this password."""
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
    if scheme != _SCHEME:
        return hmac.compare_digest(password.encode(), stored.encode())
    iterations, salt, digest = rest.split(":")
    found = hashlib.pbkdf2_hmac("sha256", password.encode(), _decoded(salt), int(iterations))
    return hmac.compare_digest(found, _decoded(digest))
