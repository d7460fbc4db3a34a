"""A client of a Connect worker's REST API, for the commands and the console."""

from __future__ import annotations

import ssl
from typing import Any

from penstock.admin.failure import CommandFailed, needs_extra

_TIMEOUT = 120.0
_CONFLICT = 409


class Conflict(CommandFailed):
    """409: the workers are rebalancing, or a connector of this name exists."""


class ConnectWorker:
    """A worker at `url`.

    user   `NAME:PASSWORD`, where the worker asks for a login
    ca     the PEM file of the authority to trust; by default those of the system
    hint   how to name another worker, for the error when this one does not respond
    """

    def __init__(
        self,
        url: str,
        user: str | None = None,
        ca: str | None = None,
        *,
        hint: str = "name another",
        timeout: float = _TIMEOUT,
    ) -> None:
        self.url = url
        self._user, self._ca, self._hint, self._timeout = user, ca, hint, timeout

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of the response. CommandFailed has the worker's own message if it rejects the request."""
        with needs_extra("this command", "connect"):
            import httpx
        name, _, password = (self._user or "").partition(":")
        try:
            answer = httpx.request(
                method,
                self.url.rstrip("/") + path,
                json=body,
                timeout=self._timeout,
                trust_env=False,
                auth=(name, password) if name else None,
                verify=self._trusted(),
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CommandFailed(
                f"no Connect worker answers at {self.url} ({error}). Start one with `penstock connect`, or "
                f"{self._hint}."
            ) from error
        try:
            found = answer.json() if answer.content else None
        except ValueError:
            raise CommandFailed(f"{self.url} is not a Connect worker: its answer is not JSON") from None
        if answer.status_code >= 400:
            message = found.get("message") if isinstance(found, dict) else None
            failed = Conflict if answer.status_code == _CONFLICT else CommandFailed
            raise failed(message or f"the worker answered {answer.status_code}")
        return found

    def _trusted(self) -> ssl.SSLContext | bool:
        try:
            return ssl.create_default_context(cafile=self._ca) if self._ca else True
        except (OSError, ssl.SSLError) as error:
            raise CommandFailed(f"the authority of the Connect worker, {self._ca}: {error}") from error
