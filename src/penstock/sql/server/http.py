"""The HTTP endpoint: statements in, JSON lines out; what the shell and monitoring ask.

POST /sql runs a text of statements at the server that leads; another one passes the request on to it, and the
answer back as it comes. Each request has a thread, and what it gives goes through a pipe of limited size. A
client that goes away ends what was being computed for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from penstock import __version__
from penstock.elected.membership import Identity
from penstock.elected.process import soon
from penstock.errors import PenstockError
from penstock.sql.errors import SqlError, Unavailable
from penstock.sql.server.metrics import Metrics
from penstock.sql.server.pipe import Pipe
from penstock.sql.server.script import Executes, Script, line, user_of
from penstock.web.access import Principal, Role, principal_of
from penstock.web.body import BodyCutOff, BodyTooLarge, read_body
from penstock.web.operator import Operator

log = logging.getLogger(__name__)

NDJSON = "application/x-ndjson"
FORWARDED = "x-penstock-forwarded"
_NOT_LEADING = "x-penstock-not-leading"
_LOOK_SECONDS = 0.5
"""How often it is looked whether the cluster is away while nobody leads."""


class HttpEngine(Executes, Protocol):
    def describe_queries(self, user: str | None = None) -> list[dict[str, Any]]: ...
    def describe_query(self, query_id: str, user: str | None = None) -> dict[str, Any] | None: ...
    def describe_relations(self, user: str | None = None) -> list[dict[str, Any]]: ...
    def topics(self, user: str | None = None) -> list[str]: ...


class Leads(Protocol):
    """Who leads, as the server knows it."""

    url: str

    @property
    def leader(self) -> Identity | None: ...

    @property
    def runs(self) -> bool:
        """This server leads, and its engine has taken over."""

    def away(self) -> str | None:
        """Why the cluster is taken to be away. No server leads then, and each answers what it can."""

    async def known(self, timeout: float) -> bool:
        """Until this server runs statements, or another one is known to; False after the timeout."""


def needs(method: str, path: bytes) -> Role:
    """For a request as a whole; what each statement needs, its script says."""
    return Role.READ


def _login(headers: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """What the leader is shown of who asks: it checks it as this server does."""
    return {b"authorization": headers[b"authorization"]} if b"authorization" in headers else {}


class HttpError(Exception):
    def __init__(self, status: int, error: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.body = line({"error": error, "message": message})


class SqlApi:
    """The routes of one server."""

    def __init__(
        self,
        engine: HttpEngine,
        leads: Leads,
        *,
        cluster_id: str = "",
        max_body_bytes: int = 4 << 20,
        max_requests: int = 256,
        leader_wait: float = 30.0,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        self.metrics = Metrics()
        self._engine = engine
        self._leads = leads
        self._cluster_id = cluster_id
        self._max_body_bytes = max_body_bytes
        self._max_requests = max_requests
        self._leader_wait = leader_wait
        self._running: set[Script] = set()
        self._stopping = False
        self._client = httpx.AsyncClient(
            verify=verify,
            timeout=httpx.Timeout(None, connect=5.0),
            trust_env=False,
            limits=httpx.Limits(max_connections=None),
        )

    def application(self) -> Starlette:
        app = Starlette(
            routes=[
                Route("/", self._info),
                Route("/info", self._info),
                Route("/queries", self._passed_on(self._queries)),
                Route("/queries/{id}", self._passed_on(self._query)),
                Route("/relations", self._passed_on(self._relations)),
            ],
        )
        app.router.redirect_slashes = False
        inner = app.router.default

        async def default(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and scope["path"] == "/sql":
                await self._sql(scope, receive, send)
            elif scope["type"] == "http":
                paths = "POST /sql, GET /info, /health, /ready, /metrics, /queries, /queries/ID, /relations"
                error = HttpError(404, "NotFound", f"no such path {scope['path']}: {paths}")
                await _answer(send, error.status, error.body)
            else:
                await inner(scope, receive, send)

        app.router.default = default
        return app

    def stop(self) -> None:
        """End what is running; each client is notified."""
        self._stopping = True
        for script in list(self._running):
            script.cancel()

    async def close(self) -> None:
        await self._client.aclose()

    # Statements

    async def _sql(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        try:
            if scope["method"] != "POST":
                raise HttpError(405, "BadRequest", "statements are sent with POST", allow="POST")
            headers = dict(scope["headers"])
            body = await self._body(headers, receive)
            text, properties, variables = _request(body)
            forwarded = FORWARDED.encode() in headers
            deadline = time.monotonic() + self._leader_wait
            while True:
                if await self._here(deadline, forwarded):
                    script = Script(text, properties, variables, self._engine, principal_of(scope))
                    went_well = await self._run(script, receive, send)
                    self.metrics.count(went_well, time.perf_counter() - started)
                    return
                if await self._forward(body, headers, receive, send):
                    return
                await asyncio.sleep(0.1)
        except HttpError as error:
            self.metrics.count(False, time.perf_counter() - started)
            with contextlib.suppress(OSError):
                await _answer(send, error.status, error.body, error.headers)

    async def _here(self, deadline: float, forwarded: bool) -> bool:
        """Whether this server is to do it; HttpError when nobody can be found who does."""
        if self._stopping:
            raise HttpError(503, "Unavailable", "this server stops")
        if self._leads.runs or self._leads.away() is not None:
            return True
        if forwarded:
            # The one that sent it asks the group again.
            raise HttpError(
                503, "Unavailable", "this server is not the leader", x_penstock_not_leading="true"
            )
        while not await self._leads.known(min(_LOOK_SECONDS, max(0.0, deadline - time.monotonic()))):
            if self._leads.away() is not None:
                return True
            if time.monotonic() > deadline:
                raise HttpError(503, "Unavailable", "no server is the leader yet: try again in a moment")
        if time.monotonic() > deadline:
            raise HttpError(503, "Unavailable", "the leader does not respond: try again in a moment")
        return self._leads.runs

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        try:
            return await read_body(headers, receive, self._max_body_bytes)
        except BodyTooLarge as error:
            raise HttpError(413, "TooLarge", str(error)) from None
        except BodyCutOff as error:
            raise HttpError(400, "BadRequest", str(error)) from None

    async def _run(self, script: Script, receive: Receive, send: Send) -> bool:
        if len(self._running) >= self._max_requests:
            raise HttpError(503, "Unavailable", f"{self._max_requests} requests are running: try again later")
        pipe = Pipe()
        outcome: list[bool] = []
        loop = asyncio.get_running_loop()

        def work() -> None:
            try:
                outcome.append(script.run(pipe.put))
            finally:
                pipe.finish()
                soon(loop, lambda: self._count(script, running=False))

        self._count(script, running=True)
        watching = asyncio.ensure_future(self._until_gone(receive, script, pipe))
        threading.Thread(target=work, name="sql-request", daemon=True).start()
        try:
            first = await pipe.get()
            # The status says whether the first statement went well, where that is known at once.
            while first and first.count(b"\n") == 1 and first.startswith(b'{"statement"'):
                more = await pipe.get()
                first += more
                if not more:
                    break
            await send(_start(_status(first), NDJSON))
            while first:
                await send({"type": "http.response.body", "body": first, "more_body": True})
                first = await pipe.get()
            await send({"type": "http.response.body", "body": b""})
        except OSError:
            pass  # the client has gone
        finally:
            watching.cancel()
            pipe.close()
            if not outcome:
                self._cancel(script)
        return bool(outcome and outcome[0])

    def _count(self, script: Script, *, running: bool) -> None:
        """A request counts until its thread has ended, which may be after its client has gone."""
        (self._running.add if running else self._running.discard)(script)
        self.metrics.running = len(self._running)

    async def _until_gone(self, receive: Receive, script: Script, pipe: Pipe) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        pipe.close()
        self._cancel(script)

    def _cancel(self, script: Script) -> None:
        # Stopping a query of Spark takes time, which the loop does not have.
        threading.Thread(target=script.cancel, name="sql-cancel", daemon=True).start()

    # Passing on

    def _other(self) -> Identity | None:
        """Who leads, where that is another server, and one that may be shown a login that was sent here."""
        leader = self._leads.leader
        if leader is None or leader.url == self._leads.url:
            return None
        if not leader.is_as_safe_as(self._leads.url):
            log.error("the leader %s has no TLS: not forwarding a request that came over TLS", leader.url)
            return None
        return leader

    async def _forward(
        self, body: bytes, headers: Mapping[bytes, bytes], receive: Receive, send: Send
    ) -> bool:
        """Have the leader do it; False when it was not reached, or is the leader no more."""
        leader = self._other()
        if leader is None:
            return False
        request = self._client.build_request(
            "POST",
            leader.url + "/sql",
            content=body,
            headers={
                **_login(headers),
                FORWARDED.encode(): b"true",
                b"content-type": b"application/json",
            },
        )
        sent = asyncio.ensure_future(self._client.send(request, stream=True))
        gone = asyncio.ensure_future(_disconnected(receive))
        begun = False
        try:
            either: list[asyncio.Future[Any]] = [sent, gone]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                sent.cancel()
                return True
            answer = sent.result()
            try:
                if answer.status_code == 503 and _NOT_LEADING in answer.headers:
                    return False
                await send(_start(answer.status_code, answer.headers.get("content-type", NDJSON)))
                begun = True
                await self._pass_back(answer, gone, send)
            finally:
                await answer.aclose()
            return True
        except httpx.ConnectError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise HttpError(
                    503,
                    "Unavailable",
                    f"the certificate of the leader {leader.url} is not trusted: start this "
                    "server with --tls-ca FILE, the authority of the group's certificates",
                ) from None
            log.info("the leader %s is not reachable: %s", leader.url, error)
            return False
        except httpx.HTTPError as error:
            error_line = line(
                {
                    "error": "Unavailable",
                    "message": f"lost connection to the leader {leader.url} before its answer was complete "
                    f"({error!r}): run SHOW QUERIES to see what it has done, and try again",
                }
            )
            if not begun:
                raise HttpError(503, "Unavailable", json.loads(error_line)["message"]) from None
            await send({"type": "http.response.body", "body": error_line})
            return True
        except OSError:
            return True  # the client has gone
        finally:
            gone.cancel()

    async def _pass_back(self, answer: httpx.Response, gone: asyncio.Future[None], send: Send) -> None:
        parts = answer.aiter_raw()
        while True:
            part: asyncio.Future[bytes | None] = asyncio.ensure_future(anext(parts, None))
            either: list[asyncio.Future[Any]] = [part, gone]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                part.cancel()
                with contextlib.suppress(asyncio.CancelledError, httpx.HTTPError):
                    await part
                return
            data = part.result()
            if data is None:
                await send({"type": "http.response.body", "body": b""})
                return
            await send({"type": "http.response.body", "body": data, "more_body": True})

    def _passed_on(self, endpoint: Callable[[Request], Any]) -> Callable[[Request], Any]:
        """A GET that only the leader can answer."""

        async def handler(request: Request) -> Response:
            deadline = time.monotonic() + self._leader_wait
            try:
                while not await self._here(deadline, FORWARDED in request.headers):
                    leader = self._other()
                    if leader is not None:
                        try:
                            answer = await self._client.get(
                                leader.url + request.url.path,
                                headers={**_login(dict(request.headers.raw)), FORWARDED.encode(): b"true"},
                            )
                        except httpx.HTTPError as error:
                            log.info("the leader %s is not reachable: %r", leader.url, error)
                        else:
                            if _NOT_LEADING not in answer.headers:
                                kind = answer.headers.get("content-type", "application/json")
                                return Response(answer.content, answer.status_code, media_type=kind)
                    await asyncio.sleep(0.1)
                response: Response = await endpoint(request)
                return response
            except HttpError as error:
                return Response(error.body, error.status, error.headers, "application/json")
            except SqlError as error:
                status = 503 if isinstance(error, Unavailable) else 400
                return JSONResponse(error.as_json(), status)
            except PenstockError as error:
                return JSONResponse({"error": type(error).__name__, "message": str(error)}, 500)

        return handler

    # What else is asked

    async def _info(self, request: Request) -> Response:
        leader = self._leads.leader
        return JSONResponse(
            {
                "server": "penstock sql",
                "version": __version__,
                "url": self._leads.url,
                "leader": None if leader is None else leader.url,
                "leads": self._leads.runs,
                "cluster": self._cluster_id,
                "running": len(self._running),
            }
        )

    def operator(self) -> Operator:
        return Operator(self._ready, self._metrics)

    async def _ready(self) -> bool:
        return not self._stopping and await self._leads.known(0.0)

    async def _metrics(self, principal: Principal) -> bytes:
        """Of the queries that its user may see."""
        self.metrics.leads = self._leads.runs
        queries: list[dict[str, Any]] = []
        if self._leads.runs:
            with contextlib.suppress(SqlError):  # what a user may see cannot be asked now: of no query
                queries = await _in_thread(lambda: self._engine.describe_queries(user_of(principal)))
        return self.metrics.text(queries)

    async def _queries(self, request: Request) -> Response:
        user = user_of(principal_of(request.scope))
        return JSONResponse(await _in_thread(lambda: self._engine.describe_queries(user)))

    async def _query(self, request: Request) -> Response:
        query_id, user = request.path_params["id"], user_of(principal_of(request.scope))
        found = await _in_thread(lambda: self._engine.describe_query(query_id, user))
        if found is None:
            raise HttpError(404, "Unknown", f"no query `{query_id}`")
        return JSONResponse(found)

    async def _relations(self, request: Request) -> Response:
        user = user_of(principal_of(request.scope))
        relations = await _in_thread(lambda: self._engine.describe_relations(user))
        topics = await _in_thread(lambda: self._engine.topics(user))
        return JSONResponse({"relations": relations, "topics": topics})


async def _in_thread(work: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, work)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _request(body: bytes) -> tuple[str, dict[str, str], dict[str, str]]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HttpError(400, "BadRequest", f"the body is not JSON: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("sql"), str):
        raise HttpError(
            400, "BadRequest", 'the body must be {"sql": "…", "properties": {…}, "variables": {…}}'
        )
    given = []
    for name in ("properties", "variables"):
        pairs = {} if value.get(name) is None else value[name]
        if not isinstance(pairs, dict) or not all(
            isinstance(each, (str, int, float)) for each in pairs.values()
        ):
            raise HttpError(400, "BadRequest", f"{name} must be an object of names and values")
        given.append({key: _as_text(each) for key, each in pairs.items()})
    if unknown := value.keys() - {"sql", "properties", "variables"}:
        raise HttpError(400, "BadRequest", f"unknown field `{min(unknown)}` in the body")
    return value["sql"], given[0], given[1]


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _status(first: bytes) -> int:
    """Of an answer that begins with these lines."""
    lines = first.split(b"\n", 2)
    result = lines[1] if first.startswith(b'{"statement"') and len(lines) > 1 else lines[0]
    if not result.startswith(b'{"error"'):
        return 200
    error = json.loads(result)["error"]
    return {"Unavailable": 503, "Internal": 500, "NotAllowed": 403}.get(error, 400)


def _start(status: int, content_type: str) -> Message:
    # What proxies hold back would not be a stream.
    headers = [
        (b"content-type", content_type.encode()),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
    ]
    return {"type": "http.response.start", "status": status, "headers": headers}


async def _answer(send: Send, status: int, body: bytes, more: Mapping[str, str] | None = None) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.encode(), value.encode()) for name, value in (more or {}).items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
