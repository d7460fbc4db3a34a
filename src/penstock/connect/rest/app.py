"""The API as an ASGI application: finds routes, forwards changes to the leader, and formats responses as
Connect does.

Routes are matched on the raw path, because a connector's name may contain an encoded slash.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from penstock.connect.errors import ConnectError
from penstock.connect.rest.errors import (
    NOT_LEADER_MESSAGE,
    RestError,
    bad_request,
    no_route,
    not_the_leader,
    rebalancing,
    wrong_method,
)
from penstock.connect.worker.herder import Herder
from penstock.connect.worker.processes import ScoutFailed
from penstock.elected.errors import ElectedError, NoLongerLeader
from penstock.elected.forwarding import FORWARDED, OFFSET, Forwarder
from penstock.web.access import Role, allows, principal_of
from penstock.web.body import BodyCutOff, BodyTooLarge, read_body
from penstock.web.guard import Refusal
from penstock.web.peers import BodyForged

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
JSON = "application/json"
_LOOKING = ("GET", "HEAD", "OPTIONS")
_STEERING = ("pause", "resume", "stop", "restart")


@dataclass(slots=True)
class RestCall:
    """One request."""

    method: str
    target: str
    path: dict[str, str]
    query: list[tuple[str, str]]
    headers: dict[str, str]
    body: bytes
    may_administer: bool = False

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise bad_request(f"The body is not JSON: {error}") from None

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.query if key == name]

    def flag(self, name: str, default: bool = False) -> bool:
        found = self.values(name)
        return found[-1].lower() == "true" if found else default


@dataclass(slots=True)
class RestAnswer:
    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    offset: int | None = None
    """For a change: its offset in the config topic."""
    forwarded: bool = False
    """Whether another worker carried it out."""

    def data(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        return b"" if self.body is None else json.dumps(self.body, separators=(",", ":")).encode()


Handler = Callable[[RestCall], Awaitable[RestAnswer]]


@dataclass(frozen=True, slots=True)
class RestRoute:
    method: str
    path: str
    handler: Handler
    by_leader: bool | Callable[[RestCall], bool] = False
    """Whether only the leader carries it out; other workers forward it."""
    repeatable: bool = True
    """Whether to retry at the next leader if one died without a response."""


class ConnectApi:
    """`routes` come from `resources`; the herder knows the leader."""

    def __init__(
        self,
        herder: Herder,
        forwarder: Forwarder | None,
        routes: list[RestRoute],
        *,
        max_body_bytes: int,
        leader_wait: float,
    ) -> None:
        self._herder = herder
        self._forwarder = forwarder
        self._max_body_bytes = max_body_bytes
        self._leader_wait = leader_wait
        self._routes = [(tuple(each.path.strip("/").split("/")), each) for each in routes]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        try:
            answer = await self._answer(scope, receive)
        except RestError as error:
            answer = RestAnswer({"error_code": error.status, "message": error.message}, error.status)
        except BodyForged:
            raise  # the server rejects it, as any request with a wrong signature
        except NoLongerLeader:
            answer = RestAnswer({"error_code": 503, "message": NOT_LEADER_MESSAGE}, 503)
        except (ConnectError, ElectedError, ScoutFailed) as error:
            answer = RestAnswer({"error_code": 500, "message": str(error)}, 500)
        except Exception as error:
            log.exception("%s %s failed", method, scope["path"])
            answer = RestAnswer({"error_code": 500, "message": f"{type(error).__name__}: {error}"}, 500)
        body = answer.data()
        if method not in _LOOKING and not answer.forwarded:
            who, target = principal_of(scope), scope["raw_path"].decode("latin-1")
            by = who.name if who.role is Role.PEER else f"user {who.name!r}"
            log.info("%s %s by %s: %d", method, target, by, answer.status)
        headers = {"content-type": JSON, **answer.headers}
        if answer.status != 204:
            headers["content-length"] = str(len(body))
        if answer.offset is not None:
            headers[OFFSET] = str(answer.offset)
        start = {"type": "http.response.start", "status": answer.status}
        await send(
            {**start, "headers": [(k.encode(), v.encode("latin-1", "replace")) for k, v in headers.items()]}
        )
        await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})

    async def _answer(self, scope: Scope, receive: Receive) -> RestAnswer:
        raw: bytes = scope["raw_path"]
        segments = _segments(raw)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        route, path = self._find(method, segments)
        query: bytes = scope["query_string"]
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        call = RestCall(
            method,
            (raw + (b"?" + query if query else b"")).decode("latin-1"),
            path,
            parse_qsl(query.decode("latin-1"), keep_blank_values=True),
            headers,
            await self._body(dict(scope["headers"]), receive),
            allows(principal_of(scope), Role.ADMIN),
        )
        by_leader = route.by_leader(call) if callable(route.by_leader) else route.by_leader
        if by_leader:
            return await self._by_leader(route, call)
        return await route.handler(call)

    def _find(self, method: str, segments: list[str]) -> tuple[RestRoute, dict[str, str]]:
        there = False
        for pattern, route in self._routes:
            if len(pattern) != len(segments):
                continue
            values = {}
            for wanted, given in zip(pattern, segments, strict=True):
                if wanted.startswith("{"):
                    values[wanted.strip("{}")] = given
                elif wanted != given:
                    break
            else:
                if route.method == method:
                    return route, values
                there = True
        raise wrong_method() if there else no_route()

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        try:
            return await read_body(headers, receive, self._max_body_bytes)
        except BodyTooLarge as error:
            raise RestError(413, str(error)) from None
        except BodyCutOff as error:
            raise bad_request(str(error)) from None

    async def _by_leader(self, route: RestRoute, call: RestCall) -> RestAnswer:
        """Handle the request here, or forward it to the leader; waits while there is none."""
        loop, cluster = asyncio.get_running_loop(), self._herder.cluster
        deadline = loop.time() + self._leader_wait
        while True:
            if not await cluster.known(deadline):
                raise rebalancing()
            try:
                if cluster.leads:
                    return await route.handler(call)
            except NoLongerLeader:
                pass
            leader = cluster.leader
            if leader is not None and not cluster.leads and self._forwarder is not None:
                if FORWARDED in call.headers:
                    raise not_the_leader()  # one hop only: the sender asks the group again
                answer = await self._forwarder.send(
                    leader, call.method, call.target, call.headers, call.body, repeatable=route.repeatable
                )
                if answer is not None:
                    if answer.offset is not None:
                        await cluster.applied(answer.offset, self._leader_wait)
                    return RestAnswer(answer.body, answer.status, forwarded=True)
            if loop.time() > deadline:
                raise rebalancing()
            await asyncio.sleep(0.05)


def is_not_leader(status: int, body: bytes) -> bool:
    return status == 503 and NOT_LEADER_MESSAGE.encode() in body


def needed_role(method: str, path: bytes) -> Role:
    """A connector's configuration names code that the worker runs, so only administrators may change one."""
    if method in _LOOKING:
        return Role.READ
    segments = _segments(path)
    if method == "POST" and len(segments) == 3 and segments[2] == "tasks":
        return Role.PEER  # from a worker whose connector has divided its work
    # Of two segments the last is a connector's name, which may be any word.
    return Role.WRITE if len(segments) > 2 and segments[-1] in _STEERING else Role.ADMIN


def _segments(raw_path: bytes) -> list[str]:
    return [unquote(part) for part in raw_path.decode("latin-1").strip("/").split("/")]


def render_refusal(refusal: Refusal) -> tuple[bytes, str]:
    """A refusal by the guard in front of the worker, in Connect's format."""
    return json.dumps({"error_code": refusal.status, "message": refusal.message}).encode(), JSON
