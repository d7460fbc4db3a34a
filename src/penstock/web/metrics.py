"""A port with metrics for Prometheus and nothing else, for processes that serve no other HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from http.client import responses
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from penstock.web.guard import Guard

_CHECKED = {
    "HTTP_HOST": b"host",
    "HTTP_ORIGIN": b"origin",
    "HTTP_SEC_FETCH_SITE": b"sec-fetch-site",
    "CONTENT_LENGTH": b"content-length",
    "HTTP_TRANSFER_ENCODING": b"transfer-encoding",
}


def serve_metrics(registry: CollectorRegistry, port: int) -> WSGIServer:
    """Listens on 127.0.0.1, in a thread; 0 is any free port. `shutdown` and `server_close` end it."""
    app = _guarded(make_wsgi_app(registry), Guard(types=(), adjustable=False))
    server = make_server("127.0.0.1", port, app, ThreadingWSGIServer, _Silent)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def _guarded(app: Callable[..., Iterable[bytes]], guard: Guard) -> Callable[..., Iterable[bytes]]:
    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        headers = [
            (name, str(environ[key]).encode("latin-1", "replace"))
            for key, name in _CHECKED.items()
            if environ.get(key)
        ]
        refusal = guard.refusal(environ["REQUEST_METHOD"], headers)
        if refusal is None:
            return app(environ, start_response)
        body = f"{refusal.message}\n".encode()
        start_response(
            f"{refusal.status} {responses[refusal.status]}",
            [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))],
        )
        return [body]

    return guarded


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass
