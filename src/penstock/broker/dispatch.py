"""From the bytes of a request to the bytes of its answer: header, lookup, handler, encoding, errors.

Bytes that are no request raise WireError, and cost the client its connection. A handler that fails
unexpectedly is answered with UNKNOWN_SERVER_ERROR, and logged: it costs nobody else anything.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from penstock.broker.context import RequestContext
from penstock.broker.interceptor import Action, Interceptor
from penstock.broker.registry import Api, load_apis
from penstock.broker.writer import Chunk
from penstock.errors import ApiError, PenstockError, UnknownServerError, UnsupportedVersion, WireError
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message, decode_request, encode_response, response_header_version
from penstock.wire.frame import parse_request_header

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

log = logging.getLogger(__name__)

Answer = bytes | list[Chunk] | None
"""What is sent for a request, with length and header; None for nothing (acks=0)."""

_KEY_VERSION_CORRELATION = struct.Struct(">hhi")
_HEADER_V0 = struct.Struct(">ii").pack
_HEADER_V1 = struct.Struct(">iib").pack


class CloseConnection(Exception):
    """The only answer left is to close the connection; the text says why."""


class Route:
    """An API in one version, and whether the header of its answers has tagged fields."""

    __slots__ = ("api", "flexible_header", "handle", "in_place")

    def __init__(self, api: Api, flexible_header: bool) -> None:
        self.api = api
        self.handle = api.handle
        self.in_place = api.parse is not None
        self.flexible_header = flexible_header


class Pending:
    """An answer that is not there yet."""

    __slots__ = ("_convert", "_future", "cancellable", "exclusive")

    def __init__(
        self,
        future: asyncio.Future[Any],
        convert: Callable[[asyncio.Future[Any]], Answer | CloseConnection],
        *,
        exclusive: bool,
        cancellable: bool,
    ) -> None:
        self._future = future
        self._convert = convert
        self.exclusive = exclusive
        self.cancellable = cancellable

    def when_done(self, callback: Callable[[Answer | CloseConnection], None]) -> None:
        def done(future: asyncio.Future[Any]) -> None:
            if not future.cancelled():
                callback(self._convert(future))

        self._future.add_done_callback(done)

    def without_answer(self, reason: str) -> Pending:
        """The same wait, at the end of which the connection is closed."""
        return Pending(
            self._future,
            lambda done: CloseConnection(reason),
            exclusive=self.exclusive,
            cancellable=self.cancellable,
        )

    def abandon(self) -> None:
        """The client is gone. A wait is ended; work that changes something is left to finish."""
        if self.cancellable:
            self._future.cancel()


class Dispatcher:
    def __init__(self, broker: Broker, interceptor: Interceptor | None) -> None:
        self._broker = broker
        self._apis = load_apis()
        self._interceptor = interceptor
        self._routes: dict[int, dict[int, Route]] = {
            key: {version: Route(api, response_header_version(key, version) > 0) for version in api.versions}
            for key, api in self._apis.items()
        }
        # A task that nobody refers to may be collected before it ends.
        self._tasks: set[asyncio.Task[Any]] = set()

    def dispatch(self, peer: str, buf: bytearray, pos: int, end: int) -> Pending | Answer:
        """Handle the request in buf[pos:end]. Nothing keeps a reference into `buf` after this returns."""
        if end - pos < 8:
            raise WireError(f"a request of {end - pos} bytes is too short for a header")
        key, version, correlation_id = _KEY_VERSION_CORRELATION.unpack_from(buf, pos)
        try:
            route = self._routes[key][version]
        except KeyError:
            return self._unserved(key, version, correlation_id)
        _, _, _, client_id, pos = parse_request_header(buf, pos, end)
        context = RequestContext(key, version, correlation_id, client_id, peer)
        if self._interceptor is None:
            return self._handle(route, context, buf, pos, end)
        return self._intercepted(self._interceptor, route, context, buf, pos, end)

    def _unserved(self, key: int, version: int, correlation_id: int) -> Answer:
        api = self._apis.get(key)
        if api is None:
            raise WireError(f"API key {key} is not served")
        if key == ApiKey.API_VERSIONS:
            return self._unsupported_api_versions(api, correlation_id)
        raise WireError(f"{api.key.name} version {version} is not served")

    async def drain(self) -> None:
        """Waits for the requests that were begun."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def _handle(
        self, route: Route, context: RequestContext, buf: bytearray, pos: int, end: int
    ) -> Pending | Answer:
        request: Any = None
        try:
            if route.in_place:
                result = route.handle(self._broker, context, buf, pos, end)
                if type(result) is bytes:
                    if route.flexible_header:
                        return _HEADER_V1(len(result) + 5, context.correlation_id, 0) + result
                    return _HEADER_V0(len(result) + 4, context.correlation_id) + result
            else:
                request = _decode(route.api, context, buf, pos, end)
                result = route.handle(self._broker, context, request)
        except (WireError, CloseConnection):
            raise
        except ApiError as failure:
            result = self._refused(route, context, request, failure, buf, pos, end)
        except Exception:  # the border: a bug in a handler must not take the broker down
            log.exception("%s failed: %s", route.api.key.name, context)
            result = self._refused(route, context, request, UnknownServerError(), buf, pos, end)
        if isinstance(result, asyncio.Future):
            return self._pending(route, context, request, result)
        if asyncio.iscoroutine(result):
            return self._pending(route, context, request, self._start(result))
        return _encoded(route, context, result)

    def _start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self._broker.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _pending(
        self, route: Route, context: RequestContext, request: Any, future: asyncio.Future[Any]
    ) -> Pending:
        api = route.api

        def convert(done: asyncio.Future[Any]) -> Answer | CloseConnection:
            failure = done.exception()
            if failure is None:
                return _encoded(route, context, done.result())
            if isinstance(failure, CloseConnection):
                return failure
            if not isinstance(failure, ApiError):
                log.error("%s failed: %s", api.key.name, context, exc_info=failure)
                failure = UnknownServerError()
            if request is None:
                return CloseConnection(f"{api.key.name}: {failure}")
            return _encoded(route, context, api.error_response(context, request, failure.code))

        return Pending(future, convert, exclusive=not api.concurrent, cancellable=api.concurrent)

    def _refused(
        self,
        route: Route,
        context: RequestContext,
        request: Any,
        failure: ApiError,
        buf: bytearray,
        pos: int,
        end: int,
    ) -> Any:
        try:
            if request is None:
                request = _decode(route.api, context, buf, pos, end)
            return route.api.error_response(context, request, failure.code)
        except (PenstockError, CloseConnection):
            raise
        except Exception:  # the border again: what cannot even be refused costs the client its connection
            log.exception("%s could not be refused: %s", route.api.key.name, context)
            raise CloseConnection("a request that could not be answered") from None

    def _unsupported_api_versions(self, api: Api, correlation_id: int) -> bytes:
        """KIP-511: the answer that a client of any version can read, so that it can ask again."""
        context = RequestContext(api.key, 0, correlation_id, None, "")
        answer = api.error_response(context, None, UnsupportedVersion.code)
        body = encode_response(api.key, 0, answer)
        return _HEADER_V0(len(body) + 4, correlation_id) + body

    # -- faults on demand

    def _intercepted(
        self,
        interceptor: Interceptor,
        route: Route,
        context: RequestContext,
        buf: bytearray,
        pos: int,
        end: int,
    ) -> Pending | Answer:
        action = interceptor.intercept(context)
        if action is None:
            return self._handle(route, context, buf, pos, end)
        if isinstance(action, Action) and not action.delay_ms:
            return self._act(action, route, context, buf, pos, end)
        # The buffer is the connection's again when this returns.
        copy = bytearray(memoryview(buf)[pos:end])

        async def later() -> Answer:
            decided = action if isinstance(action, Action) else await action
            if decided is None:
                response = self._handle(route, context, copy, 0, len(copy))
            else:
                if decided.delay_ms:
                    await asyncio.sleep(decided.delay_ms / 1000)
                response = self._act(decided, route, context, copy, 0, len(copy))
            if not isinstance(response, Pending):
                return response
            waiter: asyncio.Future[Answer | CloseConnection] = self._broker.loop.create_future()
            response.when_done(lambda answer: None if waiter.done() else waiter.set_result(answer))
            answer = await waiter
            if isinstance(answer, CloseConnection):
                raise answer
            return answer

        def convert(done: asyncio.Future[Any]) -> Answer | CloseConnection:
            failure = done.exception()
            if failure is None:
                answer: Answer = done.result()
                return answer
            return failure if isinstance(failure, CloseConnection) else CloseConnection(str(failure))

        return Pending(self._start(later()), convert, exclusive=True, cancellable=False)

    def _act(
        self, action: Action, route: Route, context: RequestContext, buf: bytearray, pos: int, end: int
    ) -> Pending | Answer:
        if action.drop:
            raise CloseConnection("a fault on demand: dropped")
        if action.error_code:
            request = _decode(route.api, context, buf, pos, end)
            return _encoded(route, context, route.api.error_response(context, request, action.error_code))
        response = self._handle(route, context, buf, pos, end)
        if not action.drop_after:
            return response
        if isinstance(response, Pending):
            return response.without_answer("a fault on demand: the answer is lost")
        raise CloseConnection("a fault on demand: the answer is lost")


def _decode(api: Api, context: RequestContext, buf: bytearray, pos: int, end: int) -> Any:
    if api.parse is not None:
        return api.parse(buf, pos, end, context.version)
    return decode_request(api.key, context.version, bytes(memoryview(buf)[pos:end]), 0)


def _encoded(route: Route, context: RequestContext, result: Any) -> Answer:
    if result is None:
        return None
    if isinstance(result, Message):
        result = encode_response(context.api_key, context.version, result)
    return _framed(route, context, result)


def _framed(route: Route, context: RequestContext, body: bytes | list[Chunk]) -> bytes | list[Chunk]:
    """With length and header."""
    if isinstance(body, bytes):
        if route.flexible_header:
            return _HEADER_V1(len(body) + 5, context.correlation_id, 0) + body
        return _HEADER_V0(len(body) + 4, context.correlation_id) + body
    size = sum([len(chunk) for chunk in body])
    if route.flexible_header:
        return [_HEADER_V1(size + 5, context.correlation_id, 0), *body]
    return [_HEADER_V0(size + 4, context.correlation_id), *body]
