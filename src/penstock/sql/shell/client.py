"""A client of a SQL server: sends statements, yields the lines of the response, and keeps SET and DEFINE.

The server has no sessions: each request contains the values of SET and DEFINE.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import cached_property
from typing import Any

import httpx

from penstock.errors import PenstockError

Line = dict[str, Any]


class Unreachable(PenstockError):
    """No SQL server responds at the address."""


class _Server:
    """A server, and what a session keeps between two requests."""

    def __init__(
        self,
        url: str,
        properties: dict[str, str] | None = None,
        variables: dict[str, str] | None = None,
        *,
        user: str | None = None,
        token: str | None = None,
        ca: str | None = None,
        read_timeout: float | None = None,
        option: str = "--server",
    ) -> None:
        """`user` is NAME:PASSWORD, `ca` a PEM file, `option` the one by which a user names the server.
        `read_timeout` is how many seconds the server may send nothing; by default without limit, as a push
        query may have no rows for days."""
        self._option = option
        self.url = url.rstrip("/")
        self.properties = dict(properties or {})
        self.variables = dict(variables or {})
        name, _, password = (user or "").partition(":")
        try:
            verify = ssl.create_default_context(cafile=ca) if ca is not None else True
        except (OSError, ssl.SSLError) as error:
            raise Unreachable(f"the authority of the SQL server, {ca}: {error}") from error
        self._options: dict[str, Any] = {
            "auth": (name, password) if user else None,
            "headers": {"authorization": f"Bearer {token}"} if token and not user else {},
            "verify": verify,
            "timeout": httpx.Timeout(None, connect=10.0, read=read_timeout),
            "trust_env": False,
        }

    def _body(self, text: str) -> dict[str, Any]:
        return {"sql": text, "properties": self.properties, "variables": self.variables}

    def _check(self, answer: httpx.Response) -> None:
        if answer.status_code == 401:
            raise Unreachable(
                f"the SQL server at {self.url} does not accept this login: give {self._option}-user "
                "NAME:PASSWORD, or a token in PENSTOCK_SQL_TOKEN"
            )

    def _line(self, text: str, answer: httpx.Response) -> Line:
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if not isinstance(line, dict):
            raise Unreachable(f"the server at {self.url} is not a SQL server (HTTP {answer.status_code})")
        self._keep(line)
        return line

    def _keep(self, line: Line) -> None:
        for name, into in (("properties", self.properties), ("variables", self.variables)):
            for key, value in (line.get(name) or {}).items() if "done" in line else ():
                if value is None:
                    into.pop(key, None)
                else:
                    into[key] = value

    def _told(self, error: Exception) -> str:
        return (
            f"no SQL server answers at {self.url} ({str(error) or type(error).__name__}): start one with "
            f"`penstock sql serve`, or leave out {self._option}"
        )


class AsyncSession(_Server):
    """One user's, in an event loop."""

    @asynccontextmanager
    async def run(self, text: str) -> AsyncIterator[AsyncIterator[Line]]:
        """The lines of the answer; leaving the block ends what still runs. Unreachable if none comes."""
        try:
            async with (
                httpx.AsyncClient(**self._options) as http,
                http.stream("POST", f"{self.url}/sql", json=self._body(text)) as answer,
            ):
                self._check(answer)
                yield (self._line(each, answer) async for each in answer.aiter_lines() if each.strip())
        except httpx.TransportError as error:
            raise Unreachable(self._told(error)) from error


class Session(_Server):
    """One user's. For one thread."""

    @cached_property
    def _http(self) -> httpx.Client:
        return httpx.Client(**self._options)

    def close(self) -> None:
        self._http.close()

    @contextmanager
    def run(self, text: str) -> Iterator[Iterator[Line]]:
        """The lines of the answer; leaving the block ends what still runs. Unreachable if none comes."""
        try:
            with self._http.stream("POST", f"{self.url}/sql", json=self._body(text)) as answer:
                with closing(self._lines(answer)) as lines:
                    yield lines
        except httpx.TransportError as error:
            raise Unreachable(self._told(error)) from error

    def _lines(self, answer: httpx.Response) -> Generator[Line, None, None]:
        self._check(answer)
        for text in answer.iter_lines():
            if text.strip():
                yield self._line(text, answer)

    def ask(self, path: str, timeout: float = 10.0) -> Any:
        """A GET, as JSON."""
        try:
            answer = self._http.get(self.url + path, timeout=timeout)
            self._check(answer)
            return answer.json()
        except httpx.TransportError as error:
            raise Unreachable(self._told(error)) from error
        except ValueError:
            raise Unreachable(f"the server at {self.url} is not a SQL server") from None
