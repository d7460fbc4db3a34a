"""uvicorn as the servers here run it: behind a guard, with logins where they are asked for, and TLS."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.web.access import ANYONE, Access, Principal, Role, by_method
from penstock.web.guard import SECURE_HEADERS, Guard, Refusal

log = logging.getLogger(__name__)

Render = Callable[[Refusal], tuple[bytes, str]]
"""The body of a refusal and its type, in the shape of the server's other errors."""


def render_json(refusal: Refusal) -> tuple[bytes, str]:
    body = {"error": refusal.reason.replace(" ", ""), "message": refusal.message}
    return json.dumps(body, ensure_ascii=False).encode() + b"\n", "application/json"


_PRINCIPAL = "penstock.principal"
NOT_STORED = (b"cache-control", b"no-store")


def principal_of(scope: Scope) -> Principal:
    """Who sends this request."""
    found: Principal = scope.get(_PRINCIPAL, ANYONE)
    return found


class Guarded:
    """An application behind its guard and its logins: what they refuse does not reach it.

    `needs` says which role a request needs, by its method and path.
    """

    def __init__(
        self,
        app: ASGIApp,
        guard: Guard,
        render: Render = render_json,
        access: Access | None = None,
        needs: Callable[[str, bytes], Role] = by_method,
    ) -> None:
        self._app = app
        self._guard = guard
        self._render = render
        self._access = access
        self._needs = needs
        self._headers = [*SECURE_HEADERS, *([] if access is None else [NOT_STORED])]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served, not {scope['type']}")
        method, headers = scope["method"], scope["headers"]
        refusal = self._guard.refusal(method, headers)
        if refusal is not None:
            await self._refuse(send, method, refusal)
            return
        preflight = self._guard.preflight(method, headers)
        if preflight is not None:
            await _answer(send, 204, b"", preflight)
            return
        more = self._guard.cors(headers)
        if self._access is not None:
            client = scope.get("client")
            needed = self._needs(method, scope["raw_path"])
            path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
            admitted = await self._access.admit(
                headers, client[0] if client else "", needed, method, f"{path}?{query}" if query else path
            )
            if isinstance(admitted, Refusal):
                await self._refuse(send, method, admitted, more)
                return
            scope[_PRINCIPAL] = admitted
        more = [*self._headers, *more]

        async def send_readable(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        await self._app(scope, receive, send_readable)

    async def _refuse(
        self, send: Send, method: str, refusal: Refusal, more: list[tuple[bytes, bytes]] | None = None
    ) -> None:
        body, kind = self._render(refusal)
        headers = [(b"content-type", kind.encode()), *refusal.headers, *self._headers, *(more or [])]
        await _answer(send, refusal.status, body if method != "HEAD" else b"", headers)


async def _answer(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    length = [] if status == 204 else [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
    await send({"type": "http.response.body", "body": body})


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


def _load(context: ssl.SSLContext, paths: list[str]) -> None:
    context.load_cert_chain(paths[0], paths[-1], password=lambda: "")


class Server(uvicorn.Server):
    """uvicorn without its signal handlers: it can be waited for, and reloads a changed certificate."""

    certificate_seconds = 2.0
    """How often the files of the certificate are looked at."""

    def __init__(
        self,
        app: ASGIApp,
        guard: Guard,
        *,
        render: Render = render_json,
        access: Access | None = None,
        needs: Callable[[str, bytes], Role] = by_method,
        certificate: str | None = None,
        key: str | None = None,
    ) -> None:
        guarded: Any = Guarded(app, guard, render, access, needs)
        super().__init__(
            uvicorn.Config(
                guarded,
                interface="asgi3",
                http="httptools",
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                timeout_keep_alive=60,
                timeout_graceful_shutdown=5,
                ssl_certfile=certificate,
                ssl_keyfile=key,
            )
        )
        self._listening = asyncio.Event()
        self._files = [path for path in (certificate, key) if path is not None]
        self._reloading: asyncio.Task[None] | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self._files:
            self._reloading = asyncio.get_running_loop().create_task(self._reload_certificate())
        self._listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._reloading is not None:
            self._reloading.cancel()
        await super().shutdown(sockets=sockets)

    async def _reload_certificate(self) -> None:
        """New connections get a changed certificate; one that cannot be used is logged, and the old stays."""
        seen = _marks(self._files)
        while True:
            await asyncio.sleep(self.certificate_seconds)
            now = _marks(self._files)
            if now == seen or self.config.ssl is None:
                continue
            seen = now
            try:
                # A pair that does not fit must not be in the context that serves.
                _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self._files)
                _load(self.config.ssl, self._files)
                log.info("the certificate %s was read again", self._files[0])
            except (OSError, ssl.SSLError) as error:
                log.warning("the certificate %s cannot be used, the old one stays: %s", self._files[0], error)

    async def listening(self) -> None:
        await self._listening.wait()
