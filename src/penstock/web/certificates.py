"""Certificate and key files, reloaded when they change. For all servers of `penstock.web`."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Sequence

from penstock.errors import ConfigError

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""How often the files are checked for changes."""


class Certificate:
    """`files`: the certificate, and the key if it is in a separate file."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = list(files)
        self._seen = _marks(self._files)

    def context(self) -> ssl.SSLContext:
        """Raises ConfigError if the files cannot be used."""
        found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            self._load(found)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"the certificate {self._files[0]} cannot be used: {error}") from error
        return found

    def renew(self, context: ssl.SSLContext) -> None:
        """Use a changed certificate for new connections. One that cannot be used is logged, and the old one
        stays.
        """
        now = _marks(self._files)
        if now == self._seen:
            return
        self._seen = now
        try:
            # Load into a new context first: a certificate and key that do not match must not reach the active
            # one.
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            self._load(context)
            log.info("Reloaded certificate %s", self._files[0])
        except (OSError, ssl.SSLError) as error:
            log.warning("Cannot load certificate %s, keeping the current one: %s", self._files[0], error)

    def _load(self, context: ssl.SSLContext) -> None:
        context.load_cert_chain(self._files[0], self._files[-1], password=lambda: "")


def _marks(paths: list[str]) -> list[tuple[int, int, int] | None]:
    found: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            state = os.stat(path)
        except OSError:
            found.append(None)
        else:
            found.append((state.st_mtime_ns, state.st_size, state.st_ino))
    return found
