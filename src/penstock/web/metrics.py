"""An HTTP port for operators, in processes that serve no other HTTP.

GET /metrics           for Prometheus
GET /health            200 while the process works, /ready while it serves its clients
GET /admin/loggers     levels; PUT /admin/loggers/NAME {"level": "DEBUG"} changes one
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.client import responses
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from penstock.errors import ConfigError
from penstock.web.access import NOTHING_ASKED, AccessSettings, Role, ServerAccess
from penstock.web.certificates import LOOK_SECONDS, Certificate
from penstock.web.guard import SECURE_HEADERS, Guard, Headers, Refusal
from penstock.web.loggers import Loggers, UnknownLevel, UnknownLogger, level_in

log = logging.getLogger(__name__)

_LOGGERS = "/admin/loggers/"
_MOST_BODY = 4096

_TEXT = ("Content-Type", "text/plain; charset=utf-8")
# With a name of its own: by default wsgiref sends the version of Python.
_SECURE = [*((name.decode(), value.decode()) for name, value in SECURE_HEADERS), ("Server", "penstock")]

_CHECKED = {
    "HTTP_HOST": b"host",
    "HTTP_ORIGIN": b"origin",
    "HTTP_SEC_FETCH_SITE": b"sec-fetch-site",
    "CONTENT_LENGTH": b"content-length",
    "CONTENT_TYPE": b"content-type",
    "HTTP_TRANSFER_ENCODING": b"transfer-encoding",
    "HTTP_AUTHORIZATION": b"authorization",
}


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Where metrics are served, who may read them, and the certificate and key (PEM files) for TLS."""

    port: int
    access: AccessSettings = NOTHING_ASKED
    certificate: str | None = None
    key: str | None = None
    host: str = "127.0.0.1"


def serve_metrics(
    registry: CollectorRegistry, settings: MetricsSettings, is_ready: Callable[[], bool] = lambda: True
) -> WSGIServer:
    """Serve metrics in a thread; port 0 means any free port. `shutdown` and `server_close` end it.

    Raises ConfigError if the users, the keys or the certificate cannot be used, or the port is in use.
    """
    files = [path for path in (settings.certificate, settings.key) if path is not None]
    certificate = Certificate(files) if settings.certificate is not None else None
    context = None if certificate is None else certificate.context()
    logins = None if settings.access == NOTHING_ASKED else _Logins(settings.access)
    guard = Guard(bound=settings.host, adjustable=False)
    app = _guarded(_Pages(registry, is_ready), guard, logins)
    try:
        server = make_server(settings.host, settings.port, app, _server_class(settings.host), _Silent)
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        raise ConfigError(f"cannot serve metrics on {where}: {error.strerror or error}") from error
    assert isinstance(server, _Port)
    if certificate is not None and context is not None:
        server.use(certificate, context)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


class _Port(ThreadingWSGIServer):
    """Limits the number of connections, each of which has a thread: a new one replaces the oldest.

    A response takes milliseconds, and a connection has one request, so the oldest connection is one that
    sends nothing.
    """

    certificate_seconds = LOOK_SECONDS
    most_connections = 32

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self._open: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        self._certificate: Certificate | None = None
        self._context: ssl.SSLContext | None = None
        self._look_at = 0.0
        super().__init__(*arguments, **more)

    def use(self, certificate: Certificate, context: ssl.SSLContext) -> None:
        self._certificate, self._context = certificate, context

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        if self._certificate is not None and self._context is not None:
            if time.monotonic() >= self._look_at:
                self._certificate.renew(self._context)
                self._look_at = time.monotonic() + self.certificate_seconds
            # The TLS handshake happens in the connection's thread, on its first read.
            connection = self._context.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        return connection, address

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            oldest = next(iter(self._open)) if len(self._open) >= self.most_connections else None
            if oldest is not None:
                del self._open[oldest]
            self._open[request] = None
        if oldest is not None:
            _cut_off(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores clients that disconnect; logs anything else, without a traceback for each."""
        error = sys.exception()
        if not isinstance(error, OSError):
            log.warning("a request to the metrics port failed: %r", error)


def _cut_off(connection: socket.socket) -> None:
    """Shut the connection down: its thread reads the end and closes it."""
    try:
        # Not SSLSocket's method: that one removes TLS first, while the thread may be writing.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
    except OSError:
        pass  # it has ended in the meantime


def _server_class(host: str) -> type[WSGIServer]:
    class Server(_Port):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    return Server


class _Pages:
    """The pages of the port, as a WSGI application."""

    def __init__(self, registry: CollectorRegistry, is_ready: Callable[[], bool]) -> None:
        self._metrics = make_wsgi_app(registry)
        self._is_ready = is_ready
        self._loggers = Loggers()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if path == "/metrics" and method in ("GET", "HEAD"):
            answer: Iterable[bytes] = self._metrics(environ, start_response)
            return answer
        status, body = self._answer(method, path, environ)
        text = json.dumps(body).encode() + b"\n"
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(text)))]
        start_response(f"{status} {responses[status]}", headers)
        return [b""] if method == "HEAD" else [text]

    def _answer(self, method: str, path: str, environ: dict[str, Any]) -> tuple[int, object]:
        try:
            if method == "PUT" and path.startswith(_LOGGERS):
                return 200, self._loggers.set(path.removeprefix(_LOGGERS), _level(environ))
            if method not in ("GET", "HEAD"):
                return 405, {"message": f"{method} {path} is not served"}
            if path == "/health":
                return 200, {"status": "healthy"}
            if path == "/ready":
                ready = self._is_ready()
                return (200 if ready else 503), {"status": "ready" if ready else "starting"}
            if path == "/admin/loggers":
                return 200, self._loggers.all()
            if path.startswith(_LOGGERS):
                return 200, self._loggers.one(path.removeprefix(_LOGGERS))
        except (UnknownLogger, UnknownLevel) as error:
            return 404, {"message": str(error)}
        except ValueError as error:
            return 400, {"message": str(error)}
        return 404, {"message": f"{path} is not served: ask for /metrics, /health, /ready or /admin/loggers"}


def _level(environ: dict[str, Any]) -> str:
    """Raises ValueError if the body is not {"level": …}."""
    length = environ.get("CONTENT_LENGTH") or "0"
    if not length.isdigit() or int(length) > _MOST_BODY:
        raise ValueError(f"the body may have {_MOST_BODY} bytes, not {length}")
    return level_in(environ["wsgi.input"].read(int(length)))


class _Logins:
    """`Access` for threads: it has its own event loop."""

    def __init__(self, settings: AccessSettings) -> None:
        self._access = ServerAccess(settings, "penstock metrics")
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="metrics-logins", daemon=True).start()

    def refusal(self, headers: Headers, address: str, method: str, path: str) -> Refusal | None:
        needed = Role.READ if method in ("GET", "HEAD", "OPTIONS") else Role.ADMIN
        asked = self._access.admit(headers, address, needed, method, path)
        found = asyncio.run_coroutine_threadsafe(asked, self._loop).result()
        return found if isinstance(found, Refusal) else None


def _guarded(
    app: Callable[..., Iterable[bytes]], guard: Guard, logins: _Logins | None
) -> Callable[..., Iterable[bytes]]:
    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        headers = [
            (name, str(environ[key]).encode("latin-1", "replace"))
            for key, name in _CHECKED.items()
            if environ.get(key)
        ]
        refusal = guard.refusal(environ["REQUEST_METHOD"], headers)
        if refusal is None and logins is not None:
            refusal = logins.refusal(
                headers, environ.get("REMOTE_ADDR", ""), environ["REQUEST_METHOD"], environ["PATH_INFO"]
            )

        def secured(status: str, given: list[tuple[str, str]], *rest: Any) -> Any:
            return start_response(status, [*given, *_SECURE], *rest)

        if refusal is None:
            return app(environ, secured)
        body = f"{refusal.message}\n".encode()
        told = [(name.decode(), value.decode()) for name, value in refusal.headers]
        secured(
            f"{refusal.status} {responses[refusal.status]}",
            [_TEXT, ("Content-Length", str(len(body))), *told],
        )
        return [body]

    return guarded


class _Silent(WSGIRequestHandler):
    timeout = 10  # for clients that stop in the middle of a request: they hold a thread

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """The response to a request that cannot be read, with the security headers and without its text."""
        body = f"{responses[code]}\n".encode()
        self.close_connection = True
        self.request_version = self.protocol_version  # what was parsed so far may be HTTP/0.9, without a head
        self.send_response_only(code)
        length = ("Content-Length", str(len(body)))
        for name, value in [*_SECURE, _TEXT, length, ("Connection", "close")]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
