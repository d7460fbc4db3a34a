"""A port with metrics for Prometheus and nothing else, for processes that serve no other HTTP."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.client import responses
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from penstock.errors import ConfigError
from penstock.web.access import NOTHING_ASKED, Access, AccessSettings, Role
from penstock.web.guard import SECURE_HEADERS, Guard, Headers, Refusal

_CHECKED = {
    "HTTP_HOST": b"host",
    "HTTP_ORIGIN": b"origin",
    "HTTP_SEC_FETCH_SITE": b"sec-fetch-site",
    "CONTENT_LENGTH": b"content-length",
    "HTTP_TRANSFER_ENCODING": b"transfer-encoding",
    "HTTP_AUTHORIZATION": b"authorization",
}


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Where metrics are served, to whom, and with which certificate and key (PEM files) if over TLS."""

    port: int
    access: AccessSettings = NOTHING_ASKED
    certificate: str | None = None
    key: str | None = None


def serve_metrics(registry: CollectorRegistry, settings: MetricsSettings) -> WSGIServer:
    """Listens on 127.0.0.1, in a thread; port 0 is any free one. `shutdown` and `server_close` end it.

    ConfigError where the users, the keys or the certificate cannot be used.
    """
    tls = _tls(settings)
    logins = None if settings.access == NOTHING_ASKED else _Logins(settings.access)
    app = _guarded(make_wsgi_app(registry), Guard(types=(), adjustable=False), logins)
    server = make_server("127.0.0.1", settings.port, app, ThreadingWSGIServer, _Silent)
    if tls is not None:
        # The handshake is done by the thread of the connection, when it reads.
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def _tls(settings: MetricsSettings) -> ssl.SSLContext | None:
    if settings.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(settings.certificate, settings.key, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"the certificate {settings.certificate} cannot be used: {error}") from error
    return context


class _Logins:
    """Access, for threads: it has an event loop of its own."""

    def __init__(self, settings: AccessSettings) -> None:
        self._access = Access(settings, "penstock metrics")
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="metrics-logins", daemon=True).start()

    def refusal(self, headers: Headers, address: str) -> Refusal | None:
        asked = self._access.admit(headers, address, Role.READ)
        found = asyncio.run_coroutine_threadsafe(asked, self._loop).result()
        return found if isinstance(found, Refusal) else None


def _guarded(
    app: Callable[..., Iterable[bytes]], guard: Guard, logins: _Logins | None
) -> Callable[..., Iterable[bytes]]:
    secure = [(name.decode(), value.decode()) for name, value in SECURE_HEADERS]

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        headers = [
            (name, str(environ[key]).encode("latin-1", "replace"))
            for key, name in _CHECKED.items()
            if environ.get(key)
        ]
        refusal = guard.refusal(environ["REQUEST_METHOD"], headers)
        if refusal is None and logins is not None:
            refusal = logins.refusal(headers, environ.get("REMOTE_ADDR", ""))

        def secured(status: str, given: list[tuple[str, str]], *rest: Any) -> Any:
            return start_response(status, [*given, *secure], *rest)

        if refusal is None:
            return app(environ, secured)
        body = f"{refusal.message}\n".encode()
        told = [(name.decode(), value.decode()) for name, value in refusal.headers]
        secured(
            f"{refusal.status} {responses[refusal.status]}",
            [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body))), *told],
        )
        return [body]

    return guarded


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass
