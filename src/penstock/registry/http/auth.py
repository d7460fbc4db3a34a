"""Basic authentication from a file: one `name: password` a line, as Jetty's property files have them.

A password is in clear text or as `sha256:` and 64 hex digits. Roles after a comma are passed over.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from pathlib import Path

from penstock.elected.errors import CannotStart


class Users:
    """Who may use the registry."""

    def __init__(self, passwords: dict[str, str]) -> None:
        self._passwords = passwords
        self._good: set[str] = set()
        """Headers that were checked: comparing costs more than looking up."""

    @classmethod
    def read(cls, path: str) -> Users:
        passwords: dict[str, str] = {}
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise CannotStart(f"{path} cannot be read: {error}") from error
        for number, line in enumerate(lines, 1):
            line = line.strip()
            if not line or line[0] in "#!":
                continue
            name, colon, rest = line.partition(":")
            if not colon or not name.strip():
                raise CannotStart(f"{path}, line {number}: write `name: password`")
            passwords[name.strip()] = rest.strip().split(",")[0].strip()
        if not passwords:
            raise CannotStart(f"{path} names nobody: write `name: password`, one a line")
        return cls(passwords)

    def knows(self, header: str) -> bool:
        """Whether an Authorization header is of one of them."""
        if header in self._good:
            return True
        kind, _, encoded = header.partition(" ")
        if kind.lower() != "basic":
            return False
        try:
            name, _, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        expected = self._passwords.get(name)
        given = password.encode()
        if expected is None:
            hmac.compare_digest(given, b"?" * len(given))
            return False
        if expected.startswith("sha256:"):
            right = hmac.compare_digest(hashlib.sha256(given).hexdigest(), expected[7:].lower())
        else:
            right = hmac.compare_digest(given, expected.encode())
        if right and len(self._good) < 1000:
            self._good.add(header)
        return right
