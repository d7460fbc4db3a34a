"""A console as a process: the port, the pages behind guard and logins, signals and the ready file."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal

from fastapi import FastAPI
from nicegui import app as nicegui_app
from nicegui import ui

from penstock.console.login import PUBLIC, endpoints, operator
from penstock.console.pages import register
from penstock.console.settings import Settings
from penstock.console.site import Site
from penstock.console.uploads import LimitedBodies
from penstock.elected.process import guard, identify, listen, loop_factory, write_ready
from penstock.web.access import Role, ServerAccess
from penstock.web.guard import SECURE_HEADERS, Headers
from penstock.web.log_output import set_up_logging
from penstock.web.server import Server
from penstock.web.sessions import Sessions

log = logging.getLogger(__name__)

Announce = Callable[[dict[str, Any]], object]

# A page loads everything from this server, so it works without internet. Vue compiles templates in the
# browser.
_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'self'; "
    "frame-ancestors 'none'"
)
# Forms of other sites have these types, too; their Origin is rejected.
_BODIES = ("application/x-www-form-urlencoded", "multipart/form-data", "application/json")
# Only websockets: socket.io's other transport sends requests with bodies of any content type.
_TRANSPORT: Literal["websocket"] = "websocket"
_ICON = (
    "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'><rect width='32' height='32' rx='7' "
    "fill='#0f766e'/><path d='M6 11h13a6 6 0 0 1 6 6v9h-6v-8a2 2 0 0 0-2-2H6z' fill='white'/></svg>"
)


def run(
    settings: Settings,
    *,
    ready_file: str | None = None,
    announce: Announce | None = None,
    parent: int | None = None,
) -> int:
    """Run a console until SIGTERM or SIGINT, or until `parent`, a pipe, is closed. Returns the exit code."""
    set_up_logging("httpx", "nicegui", "socketio", "engineio", "uvicorn")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(settings, ready_file, announce or (lambda ready: None), parent))


async def _serve(settings: Settings, ready_file: str | None, announce: Announce, parent: int | None) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if parent is not None:
        loop.add_reader(parent, lambda: stopping.set() if not os.read(parent, 4096) else None)
    access = ServerAccess.of(settings.access, "penstock console")
    with _listener(settings) as listener:
        scheme = "https" if settings.tls_certificate else "http"
        identity = identify(listener, settings.host, settings.advertised_url, scheme=scheme)
        allowed = guard(
            identity, settings.host, settings.allowed_hosts, settings.allowed_origins, types=_BODIES
        )
        sessions = None
        if access is not None:
            sessions = Sessions(access, cookie=f"penstock_console_{identity.port}", public=PUBLIC)
        site = Site.of(settings, sessions if settings.access.login else None)
        server = Server(
            _application(site),
            allowed,
            access=sessions,
            needs=lambda method, path: Role.READ,  # each page checks its own actions: see viewer.py
            certificate=settings.tls_certificate,
            key=settings.tls_key,
            secure=_headers(),
            sockets=True,
            operator=operator(site),
        )
        serving = loop.create_task(server.serve(sockets=[listener]))
        try:
            listening = loop.create_task(server.listening())
            await asyncio.wait([listening, serving], return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                listening.cancel()
                return 1
            ready: dict[str, Any] = {"console": identity.url, "pid": os.getpid()}
            if ready_file is not None:
                write_ready(ready_file, ready)
            announce(ready)
            site.sampler.watch()  # so that the first page has something to show
            waiting = loop.create_task(stopping.wait())
            await asyncio.wait([waiting, serving], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        finally:
            server.should_exit = True
            await serving
            site.close()
            if access is not None:
                access.close()
            if ready_file is not None and os.path.exists(ready_file):
                os.unlink(ready_file)
        return 0


def _listener(settings: Settings) -> AbstractContextManager[socket.socket]:
    if settings.listener is not None:
        return socket.socket(fileno=settings.listener)
    return listen(settings.host, settings.port)


def _headers() -> Headers:
    # With `no-referrer`, browsers send `Origin: null` with forms, which the guard refuses: nobody could log
    # in.
    own = {b"content-security-policy": _POLICY.encode(), b"referrer-policy": b"same-origin"}
    return [*(each for each in SECURE_HEADERS if each[0] not in own), *own.items()]


def _application(site: Site) -> Any:
    outer = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    outer.add_middleware(LimitedBodies)
    for path, endpoint in endpoints(site).items():
        outer.add_route(path, endpoint, methods=["GET", "POST"] if path in ("/login", "/logout") else ["GET"])
    register(site)
    nicegui_app.config.socket_io_js_transports = [_TRANSPORT]
    ui.run_with(
        outer,
        title="Penstock",
        favicon=_ICON,
        dark=None,
        binding_refresh_interval=None,
        show_welcome_message=False,
        reconnect_timeout=30.0,
    )
    return outer
