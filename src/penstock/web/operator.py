"""/health, /ready and /metrics of a server, as brokers have them on their metrics port.

GET /health    200 {"status": "healthy"} while the process works
GET /ready     200 {"status": "ready"}, or 503 {"status": "starting"} while it cannot serve its clients
GET /metrics   for Prometheus: the server's own, and the process's (memory, processor time, open files)

They stand behind the guard and the logins of the server, like its other paths.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.web.access import Principal, principal_of

PATHS = frozenset(("/health", "/ready", "/metrics"))


async def _nothing(principal: Principal) -> bytes:
    return b""


@dataclass(frozen=True, slots=True)
class Operator:
    """What a server says about itself.

    ready    whether it serves its clients now
    metrics  its metrics in Prometheus' text format, without those of the process: what the user may see
    left     paths that the application itself answers
    """

    ready: Callable[[], Awaitable[bool]]
    metrics: Callable[[Principal], Awaitable[bytes]] = _nothing
    left: frozenset[str] = frozenset()


class Operated:
    """An application, and the paths for operators before it."""

    def __init__(self, app: ASGIApp, operator: Operator) -> None:
        self._app = app
        self._operator = operator
        self._paths = PATHS - operator.left
        self._process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._process)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        served = scope["type"] == "http" and scope["path"] in self._paths
        if not served or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        status, kind = 200, "application/json"
        if scope["path"] == "/metrics":
            body, kind = (
                await self._operator.metrics(principal_of(scope)) + generate_latest(self._process),
                CONTENT_TYPE_PLAIN_0_0_4,
            )
        elif scope["path"] == "/ready":
            ready = await self._operator.ready()
            status, body = (200, _status("ready")) if ready else (503, _status("starting"))
        else:
            body = _status("healthy")
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def _status(word: str) -> bytes:
    return json.dumps({"status": word}).encode() + b"\n"
