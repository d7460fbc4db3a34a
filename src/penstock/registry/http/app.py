"""The registry as an ASGI application: Starlette for its pages, and the API.

The API finds routes itself, because a subject may contain an encoded slash, which Starlette decodes too
early; and it serves the most frequent request, GET /schemas/ids/{id}, from cached bytes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from penstock.elected.errors import ElectedError
from penstock.elected.forwarding import Forwarder
from penstock.registry import rendering
from penstock.registry.errors import HttpError, RegistryError, RestError, ServerTrouble, unknown_route
from penstock.registry.http.call import (
    JSON_TYPES,
    V1_JSON,
    Answer,
    Call,
    below_context,
    dump,
    parse_query,
    split_path,
)
from penstock.registry.http.docs import openapi, page
from penstock.registry.http.metrics import Metrics
from penstock.registry.http.routes import Router
from penstock.registry.service import Service, rest_error
from penstock.registry.subjects import DEFAULT_CONTEXT
from penstock.web.access import Role
from penstock.web.body import BodyCutOff, BodyTooLarge, read_body
from penstock.web.guard import Refusal

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_BY_ID = b"/schemas/ids/"
_UNKNOWN_FIELDS = (b"confluent-accept-unknown-properties", b"true")


class RegistryApi:
    """Handles the routes of the API; all errors have Confluent's format."""

    def __init__(
        self,
        service: Service,
        forwarder: Forwarder,
        *,
        cluster_id: str,
        group: str,
        max_body_bytes: int,
    ) -> None:
        self.service = service
        self.forwarder = forwarder
        self.cluster_id = cluster_id
        self.group = group
        self.metrics = Metrics(service)
        self._max_body_bytes = max_body_bytes
        self._router = Router()
        self._by_id: dict[tuple[int, bool], list[Any]] = {}
        self._accepted: dict[bytes, str | None] = {}

    def forget(self, context: str, schema_id: int) -> None:
        """The schema of this id changed: drop its cached bytes."""
        if context == DEFAULT_CONTEXT:
            self._by_id.pop((schema_id, True), None)
            self._by_id.pop((schema_id, False), None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        method = scope["method"]
        if method == "GET" and not scope["query_string"]:
            raw_path: bytes = scope["raw_path"]
            if raw_path.startswith(_BY_ID) and await self._answer_by_id(scope, raw_path, send):
                self.metrics.count("GET", "/schemas/ids/{id}", 200, time.perf_counter() - started)
                return
        route_path, answer, content_type = "unknown", Answer(), V1_JSON
        try:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            content_type = self._content_type(headers)
            segments = split_path(scope["raw_path"])
            query = parse_query(scope["query_string"])
            segments, query = below_context(segments, query)
            found = self._router.find(segments)
            if found is None:
                raise unknown_route()
            methods, values = found
            route = methods.get("GET" if method == "HEAD" else method)
            route_path = next(iter(methods.values())).path
            if route is None:
                raise _wrong_method(methods)
            body = await self._body(scope, receive)
            call = Call(self, method, _target(scope), segments, query, headers, body, values)
            self._replace_alias(call)
            answer = await route.handler(call)
        except RestError as error:
            answer = _error(error)
        except (RegistryError, ElectedError) as error:
            answer = _error(rest_error(error))
        except Exception:
            log.exception("%s %s failed", method, scope["path"])
            answer = _error(ServerTrouble("Internal Server Error"))
        await _send(send, answer, content_type, head=method == "HEAD")
        self.metrics.count(method, route_path, answer.status, time.perf_counter() - started)

    async def _answer_by_id(self, scope: Scope, raw_path: bytes, send: Send) -> bool:
        """From cached bytes, for a known schema and a client that accepts the default type."""
        digits = raw_path[len(_BY_ID) :]
        if not digits.isdigit() or len(digits) > 10:
            return False
        headers = scope["headers"]
        for name, value in headers:
            if name == b"accept" and self._negotiated(value) != V1_JSON:
                return False
        key = (int(digits), _UNKNOWN_FIELDS in headers)
        messages = self._by_id.get(key)
        if messages is None:
            entry = self.service.state.by_id(key[0])
            if entry is None:
                return False
            body = dump(rendering.by_id(entry, key[1]))
            messages = self._by_id[key] = [_start(200, V1_JSON, len(body), []), _body(body)]
        await send(messages[0])
        await send(messages[1])
        return True

    def _content_type(self, headers: dict[str, str]) -> str:
        accept = headers.get("accept")
        if accept is None:
            return V1_JSON
        chosen = self._negotiated(accept.encode("latin-1"))
        if chosen is None:
            raise HttpError(406, "Not Acceptable")
        return chosen

    def _negotiated(self, accept: bytes) -> str | None:
        if accept not in self._accepted:
            if len(self._accepted) > 1000:
                self._accepted.clear()
            self._accepted[accept] = _negotiate(accept.decode("latin-1"))
        return self._accepted[accept]

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        try:
            return await read_body(dict(scope["headers"]), receive, self._max_body_bytes)
        except BodyTooLarge as error:
            raise HttpError(413, "Request Entity Too Large", str(error)) from None
        except BodyCutOff as error:
            raise HttpError(400, "Bad Request", str(error)) from None

    def needs(self, method: str, raw_path: bytes) -> Role:
        """The role that a request needs, by the route that answers it."""
        try:
            segments, _ = below_context(split_path(raw_path), parse_query(b""))
        except RestError:
            return Role.READ  # which is answered with that error
        found = self._router.find(segments)
        route = None if found is None else found[0].get("GET" if method == "HEAD" else method)
        return Role.READ if route is None else route.role

    def _replace_alias(self, call: Call) -> None:
        """A subject in a path may be an alias, except in /config and /mode."""
        if "subject" in call.path and "subjects" in call.segments:
            call.path["subject"] = self.service.state.resolve_alias(call.path["subject"])


def application(api: RegistryApi) -> Starlette:
    """The API with its pages."""

    async def description(request: Request) -> Response:
        return JSONResponse(openapi())

    async def documentation(request: Request) -> Response:
        return HTMLResponse(page())

    app = Starlette(
        routes=[
            Route("/openapi.json", description),
            Route("/docs", documentation),
        ]
    )
    # Not as a Mount, whose pattern does not match line breaks: every path must get a response in this format.
    app.router.redirect_slashes = False
    app.router.default = api
    return app


def render_refusal(refusal: Refusal) -> tuple[bytes, str]:
    """An error response of the guard in front of the registry, in Confluent's format."""
    return dump({"error_code": refusal.status, "message": refusal.message}), V1_JSON


def _error(error: RestError) -> Answer:
    headers = []
    if isinstance(error, _WrongMethod):
        headers.append((b"allow", error.allowed))
    return Answer({"error_code": error.code, "message": error.message}, error.status, headers=headers)


class _WrongMethod(HttpError):
    def __init__(self, allowed: bytes) -> None:
        super().__init__(405, "Method Not Allowed")
        self.allowed = allowed


def _wrong_method(methods: dict[str, Any]) -> _WrongMethod:
    names = sorted({*methods, *(["HEAD"] if "GET" in methods else [])})
    return _WrongMethod(", ".join(names).encode())


def _target(scope: Scope) -> str:
    query: bytes = scope["query_string"]
    path: bytes = scope["raw_path"]
    return (path + (b"?" + query if query else b"")).decode("ascii", "replace")


def _negotiate(accept: str) -> str | None:
    """The response type that the client prefers; None if it accepts none of them."""
    best, best_quality = None, 0.0
    for part in accept.split(","):
        name, *parameters = (word.strip().lower() for word in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        # As in Jersey, a wildcard matches any subtype; old clients send `*` (Java's URLConnection).
        if name in ("*", "application/*", "") or name.startswith("*/"):
            chosen: str | None = V1_JSON
        else:
            chosen = name if name in JSON_TYPES else None
        if chosen is not None and quality > best_quality:
            best, best_quality = chosen, quality
    return best


def _start(status: int, content_type: str, length: int, extra: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    headers = [
        (b"content-type", content_type.encode()),
        (b"content-length", str(length).encode()),
        *extra,
    ]
    return {"type": "http.response.start", "status": status, "headers": headers}


def _body(data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data}


async def _send(send: Send, answer: Answer, content_type: str, *, head: bool) -> None:
    body = b"" if answer.status == 204 else answer.body()
    await send(_start(answer.status, answer.content_type or content_type, len(body), answer.headers))
    await send(_body(b"" if head else body))
