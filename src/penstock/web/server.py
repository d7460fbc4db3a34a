"""uvicorn as the servers here run it: behind a guard, with logins if required, and with TLS."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import STARTUP_FAILURE

from penstock.web.access import PRINCIPAL, Principal, Role, by_method
from penstock.web.certificates import LOOK_SECONDS, Certificate
from penstock.web.connections import HttpConnection, ServerConfig
from penstock.web.guard import SECURE_HEADERS, Guard, Headers, Refusal
from penstock.web.handshakes import TlsListener
from penstock.web.log_limit import limit_warnings
from penstock.web.operator import Operated, Operator
from penstock.web.peers import BodyForged, checked

log = logging.getLogger(__name__)

Render = Callable[[Refusal], tuple[bytes, str]]
"""Makes the body of a refusal and its content type, in the format of the server's other errors."""


def render_json(refusal: Refusal) -> tuple[bytes, str]:
    body = {"error": refusal.reason.replace(" ", ""), "message": refusal.message}
    return json.dumps(body, ensure_ascii=False).encode() + b"\n", "application/json"


NOT_STORED = (b"cache-control", b"no-store")


class Admission(Protocol):
    """Decides who sends a request: `Access`, or one that also knows sessions."""

    async def admit(
        self, headers: Headers, address: str, needed: Role, method: str = "GET", path: str = "/"
    ) -> Principal | Refusal: ...


class Guarded:
    """An application behind its guard and its logins: what they refuse does not reach it.

    needs    which role a request needs, by its method and path
    secure   the security headers of every answer
    sockets  whether websockets are served; the same checks hold for each before it is accepted
    """

    def __init__(
        self,
        app: ASGIApp,
        guard: Guard,
        render: Render = render_json,
        access: Admission | None = None,
        needs: Callable[[str, bytes], Role] = by_method,
        secure: Headers = SECURE_HEADERS,
        sockets: bool = False,
    ) -> None:
        self._app = app
        self._sockets = sockets
        self._guard = guard
        self._render = render
        self._access = access
        self._needs = needs
        self._headers = [*secure, *([] if access is None else [NOT_STORED])]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and self._sockets:
            await self._serve_socket(scope, receive, send)
            return
        if scope["type"] == "lifespan":  # only if the server runs it
            await self._app(scope, receive, send)
            return
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
            admitted = await self._admit(self._access, scope, method)
            if isinstance(admitted, Refusal):
                await self._refuse(send, method, admitted, more)
                return
            scope[PRINCIPAL] = admitted
            if admitted.body_digest is not None:
                receive = checked(receive, admitted.body_digest)
        more = [*self._headers, *more]

        started = False

        async def send_readable(message: Message) -> None:
            nonlocal started
            started = True
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        try:
            await self._app(scope, receive, send_readable)
        except BodyForged as error:
            log.warning("%s %s of another server was refused: %s", method, scope["path"], error)
            await self._refuse(send, method, Refusal(401, "Unauthorized", "Unauthorized"), more)
        except Exception:
            if not started:  # uvicorn's own response has no security headers
                failed = Refusal(500, "Internal Server Error", "Internal Server Error")
                await self._refuse(send, method, failed)
            raise  # uvicorn logs it

    async def _serve_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Browsers send the page's Origin with it but no preflight, so it does not count as a safe method.
        refused: Principal | Refusal | None = self._guard.refusal("WEBSOCKET", scope["headers"])
        if refused is None and self._access is not None:
            refused = await self._admit(self._access, scope, "GET")
        if isinstance(refused, Refusal):
            await send({"type": "websocket.close", "code": 1008, "reason": refused.reason})
            return
        if refused is not None:
            scope[PRINCIPAL] = refused
        await self._app(scope, receive, send)

    async def _admit(self, access: Admission, scope: Scope, method: str) -> Principal | Refusal:
        client = scope.get("client")
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        path, query = raw.decode("latin-1"), scope["query_string"].decode("latin-1")
        address = client[0] if client else ""
        needed = self._needs(method, raw)
        return await access.admit(
            scope["headers"], address, needed, method, f"{path}?{query}" if query else path
        )

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


class Server(uvicorn.Server):
    """uvicorn with connection limits and without its signal handlers: it can be awaited, and it reloads a
    changed certificate.
    """

    certificate_seconds = LOOK_SECONDS

    def __init__(
        self,
        app: ASGIApp,
        guard: Guard,
        *,
        render: Render = render_json,
        access: Admission | None = None,
        needs: Callable[[str, bytes], Role] = by_method,
        certificate: str | None = None,
        key: str | None = None,
        secure: Headers = SECURE_HEADERS,
        sockets: bool = False,
        operator: Operator | None = None,
    ) -> None:
        """With `sockets`, websockets are served and the application's lifespan is run."""
        if operator is not None:
            app = Operated(app, operator)
        guarded: Any = Guarded(app, guard, render, access, needs, secure, sockets)
        served: type[asyncio.Protocol] | Literal["none"] = "none"
        if sockets:
            from penstock.web.websockets import WebSocket

            served = WebSocket
        config = ServerConfig(
            guarded,
            interface="asgi3",
            http=HttpConnection,
            ws=served,
            lifespan="on" if sockets else "off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,  # otherwise the client could choose the address for rate limits
            timeout_keep_alive=60,
            timeout_graceful_shutdown=5,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        config.secure = secure
        super().__init__(config)
        self._config = config
        limit_warnings(logging.getLogger("uvicorn.error"))
        self._listening = asyncio.Event()
        files = [path for path in (certificate, key) if path is not None]
        self._certificate = Certificate(files) if files else None
        self._reloading: asyncio.Task[None] | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        tls = self._config.tls
        if tls is None:
            await super().startup(sockets=sockets)
        else:
            await self._start_tls(sockets or [], tls)
        if self._certificate is not None:
            watching = self._reload_certificate(self._certificate)
            self._reloading = asyncio.get_running_loop().create_task(watching)
        self._listening.set()

    async def _start_tls(self, sockets: list[socket.socket], context: ssl.SSLContext) -> None:
        """As uvicorn's `startup`, but with the TLS handshakes among the connections."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        state = self.server_state

        def make() -> HttpConnection:
            return HttpConnection(config=self.config, server_state=state, app_state=self.lifespan.state)

        self.servers = [
            TlsListener(each, context, make, state.connections, self.config.backlog)  # type: ignore[misc]
            for each in sockets
        ]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._reloading is not None:
            self._reloading.cancel()
        await super().shutdown(sockets=sockets)

    async def _reload_certificate(self, certificate: Certificate) -> None:
        while True:
            await asyncio.sleep(self.certificate_seconds)
            if self._config.tls is not None:
                certificate.renew(self._config.tls)

    async def listening(self) -> None:
        await self._listening.wait()
