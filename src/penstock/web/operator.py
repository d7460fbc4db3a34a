"""/health, /ready and /metrics of a server, as brokers have them on their metrics port.

GET /health    200 {"status": "healthy"} while the process works
GET /ready     200 {"status": "ready"}, or 503 {"status": "starting"} while it cannot serve its clients
GET /metrics   for Prometheus: the server's own, and the process's (memory, processor time, open files)
GET /admin/loggers   levels; PUT /admin/loggers/NAME {"level": "DEBUG"} changes one, for the role ADMIN

They stand behind the guard and the logins of the server, like its other paths.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.web.access import Principal, Role, allows, principal_of
from penstock.web.body import BodyCutOff, BodyTooLarge, read_body
from penstock.web.loggers import Loggers, UnknownLevel, UnknownLogger, level_in

PATHS = frozenset(("/health", "/ready", "/metrics"))
LOGGERS = "/admin/loggers"
_MOST_BODY = 4096
_JSON = "application/json"


async def _nothing(principal: Principal) -> bytes:
    return b""


@dataclass(frozen=True, slots=True)
class Operator:
    """What a server reports about itself.

    ready    whether it serves its clients now
    metrics  its metrics in Prometheus' text format, without those of the process: what the user may see
    left     paths that the application itself answers
    """

    ready: Callable[[], Awaitable[bool]]
    metrics: Callable[[Principal], Awaitable[bytes]] = _nothing
    left: frozenset[str] = frozenset()


class Operated:
    """An application, with the operator paths in front of it."""

    def __init__(self, app: ASGIApp, operator: Operator) -> None:
        self._app = app
        self._operator = operator
        self._paths = PATHS - operator.left
        self._loggers = None if LOGGERS in operator.left else Loggers()
        self._process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._process)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path, method = scope["path"], scope["method"]
            if self._loggers is not None and (path == LOGGERS or path.startswith(f"{LOGGERS}/")):
                status, found = await self._levels(self._loggers, scope, receive)
                await _send(send, method, status, json.dumps(found).encode() + b"\n")
                return
            if path in self._paths and method in ("GET", "HEAD"):
                await self._serve(scope, send)
                return
        await self._app(scope, receive, send)

    async def _serve(self, scope: Scope, send: Send) -> None:
        status, kind = 200, _JSON
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
        await _send(send, scope["method"], status, body, kind)

    async def _levels(self, loggers: Loggers, scope: Scope, receive: Receive) -> tuple[int, object]:
        """The status and the body of a response about loggers."""
        name, method = scope["path"].removeprefix(LOGGERS).removeprefix("/"), scope["method"]
        try:
            if method in ("GET", "HEAD"):
                return 200, loggers.one(name) if name else loggers.all()
            if method != "PUT" or not name:
                return 405, {"message": f"{method} {scope['path']} is not served"}
            principal = principal_of(scope)
            if not allows(principal, Role.ADMIN):
                return 403, {"message": f"user '{principal.name}' needs the role {Role.ADMIN.word}"}
            body = await read_body(dict(scope["headers"]), receive, _MOST_BODY)
            return 200, loggers.set(name, level_in(body))
        except (UnknownLogger, UnknownLevel) as error:
            return 404, {"message": str(error)}
        except (ValueError, BodyTooLarge, BodyCutOff) as error:
            return 400, {"message": str(error)}


async def _send(send: Send, method: str, status: int, body: bytes, kind: str = _JSON) -> None:
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})


def _status(word: str) -> bytes:
    return json.dumps({"status": word}).encode() + b"\n"
