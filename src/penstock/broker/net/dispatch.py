"""From the bytes of a request to the bytes of its response: header, lookup, handler, encoding, errors.

Bytes that are not a valid request raise WireError and close the connection. An unexpected failure of a
handler is logged, and the response is UNKNOWN_SERVER_ERROR: other requests are not affected.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from penstock.broker.api_table import Api, load_apis
from penstock.broker.metrics.request_times import RequestTimes
from penstock.broker.net.budget import Budget
from penstock.broker.net.context import RequestContext
from penstock.broker.net.interceptor import Action, Interceptor
from penstock.broker.net.session import Session
from penstock.broker.net.writer import Chunk
from penstock.broker.security.authorization.guard import guarded
from penstock.broker.security.quotas.metering import Metered, metered
from penstock.broker.security.quotas.throttle import throttle_ms, throttle_place, with_throttle
from penstock.errors import ApiError, PenstockError, UnknownServerError, UnsupportedVersion, WireError
from penstock.wire.api_keys import ApiKey, api_name
from penstock.wire.codec import Message, decode_request, encode_response, prepare, response_header_version
from penstock.wire.frame import parse_request_header

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

log = logging.getLogger(__name__)

Answer = bytes | list[Chunk] | None
"""The response frame with length and header; None if there is no response (acks=0)."""

_KEY_VERSION_CORRELATION = struct.Struct(">hhi")
_HEADER_V0 = struct.Struct(">ii").pack
_HEADER_V1 = struct.Struct(">iib").pack


class CloseConnection(Exception):
    """The connection must be closed; the text says why. `answer` is sent before that."""

    def __init__(self, reason: str, answer: Answer = None) -> None:
        super().__init__(reason)
        self.answer = answer


class LastAnswer:
    """Returned by a handler whose response is the last one of the connection; the reason is logged."""

    def __init__(self, message: Message, reason: str) -> None:
        self.message = message
        self.reason = reason


class Route:
    """One version of an API, and whether its response header has tagged fields. The codec is generated when
    it is first used; APIs that are parsed in place have none."""

    __slots__ = ("api", "flexible_header", "handle", "in_place", "is_prepared", "throttle_place", "times")

    def __init__(
        self,
        api: Api,
        flexible_header: bool,
        times: RequestTimes,
        guard: Callable[..., Any] | None = None,
    ) -> None:
        """`guard` handles decoded requests instead of the API's own handler."""
        self.api = api
        self.times = times
        self.handle = api.handle if guard is None else guard
        self.in_place = api.parse is not None and guard is None
        self.is_prepared = api.parse is not None
        self.flexible_header = flexible_header
        self.throttle_place: int | None | str = ""  # looked up at the first use


class Pending:
    """A response that is not ready yet. `held` is the number of bytes of the request that it keeps
    meanwhile."""

    __slots__ = (
        "_abandoned",
        "_begun",
        "_convert",
        "_future",
        "_then",
        "cancellable",
        "exclusive",
        "held",
        "on_begun",
    )

    def __init__(
        self,
        future: asyncio.Future[Any],
        convert: Callable[[asyncio.Future[Any]], Answer | CloseConnection],
        *,
        exclusive: bool,
        cancellable: bool,
        held: int = 0,
    ) -> None:
        self._future = future
        self._convert = convert
        self._begun: Pending | None = None
        self._abandoned = False
        self.on_begun: Callable[[], None] | None = None
        self._then: Callable[[Answer], Answer] | None = None
        self.exclusive = exclusive
        self.cancellable = cancellable
        self.held = held

    def hold(self, budget: Budget) -> None:
        """Charges the held bytes until the response is ready, even if the connection is closed before."""

        def release(_: asyncio.Future[Any]) -> None:
            budget.release(self.held)
            budget.finished(self)

        budget.charge(self.held)
        self._future.add_done_callback(release)

    def when_done(self, callback: Callable[[Answer | CloseConnection], None]) -> None:
        def done(future: asyncio.Future[Any]) -> None:
            if future.cancelled():
                if not self._abandoned:  # still connected: without this, later responses would wait forever
                    callback(CloseConnection("a request whose work was ended"))
                return
            try:
                answer = self._convert(future)
                if self._then is not None and not isinstance(answer, CloseConnection):
                    answer = self._then(answer)
            except Exception:  # the border: without a response, later ones would wait forever
                log.exception("could not encode a response")
                answer = CloseConnection("a request that could not be answered")
            callback(answer)

        self._future.add_done_callback(done)

    def then(self, change: Callable[[Answer], Answer]) -> None:
        """Apply `change` to the response before it is sent."""
        self._then = change

    def meter(self, context: RequestContext, monotonic: Callable[[], float]) -> None:
        """Add the time to encode the response to the time of the request."""
        self._convert = metered(context, self._convert, monotonic)

    def measure(self, times: RequestTimes, started: float, monotonic: Callable[[], float]) -> None:
        """Record the request time when the response is ready."""
        self._future.add_done_callback(lambda _: times.waited(monotonic() - started))

    def without_answer(self, reason: str) -> Pending:
        """The same wait, but it ends with closing the connection."""
        return Pending(
            self._future,
            lambda done: CloseConnection(reason),
            exclusive=self.exclusive,
            cancellable=self.cancellable,
            held=self.held,
        )

    def begin(self, request: Pending) -> None:
        """The preparation is done: from now on this waits for `request`."""
        self._begun = request
        self.cancellable = request.cancellable
        if self._abandoned:
            self.abandon()
            return
        if self.exclusive and not request.exclusive:
            self.exclusive = False
            if self.on_begun is not None:
                self.on_begun()

    def abandon(self) -> None:
        """The client has disconnected: cancel a mere wait, but let work that changes something finish."""
        self._abandoned = True
        if self.cancellable:
            if self._begun is not None:
                self._begun.abandon()
            self._future.cancel()


class Dispatcher:
    def __init__(self, broker: Broker, interceptor: Interceptor | None) -> None:
        self._broker = broker
        self._apis = load_apis()
        self._interceptor = interceptor
        self._quotas = broker.quotas
        authorizer = broker.authorizer
        self._monotonic = broker.clock.monotonic
        self.times: dict[str, RequestTimes] = {}  # by API name
        self._routes: dict[int, dict[int, Route]] = {}
        for key, api in self._apis.items():
            times = self.times[api_name(api.key)] = RequestTimes()
            guard = None if authorizer is None else guarded(api, authorizer)
            if broker.audit is not None:
                guard = broker.audit.watched(api, guard)
            self._routes[key] = {
                version: Route(api, response_header_version(key, version) > 0, times, guard)
                for version in api.versions
            }
        # A task without a reference may be garbage collected before it ends.
        self._tasks: set[asyncio.Task[Any]] = set()

    def dispatch(self, session: Session, buf: bytearray, pos: int, end: int) -> Pending | Answer:
        """Handle the request in buf[pos:end]. Nothing keeps a reference into `buf` after this returns."""
        if end - pos < 8:
            raise WireError(f"a request of {end - pos} bytes is too short for a header")
        key, version, correlation_id = _KEY_VERSION_CORRELATION.unpack_from(buf, pos)
        try:
            route = self._routes[key][version]
        except KeyError:
            return self._unserved(key, version, correlation_id)
        # Injected faults are decided when the request arrives, so with an interceptor nothing is deferred.
        if not route.is_prepared and self._interceptor is None:
            return self._when_prepared(route, session, version, bytearray(memoryview(buf)[pos:end]))
        _, _, _, client_id, pos = parse_request_header(buf, pos, end)
        context = RequestContext(
            key, version, correlation_id, client_id,
            session.peer, session.connection, session.principal, session.listener, session,
        )  # fmt: skip
        started = self._monotonic()
        if self._quotas.is_active:
            response = self._metered(session, route, context, buf, pos, end)
        elif self._interceptor is None:
            response = self._handle(route, context, buf, pos, end)
        else:
            response = self._intercepted(self._interceptor, route, context, buf, pos, end)
        spent = self._monotonic() - started
        times = route.times
        if type(response) is Pending:
            times.begun(spent)
            response.measure(times, started, self._monotonic)
        else:  # as RequestTimes does it, without a call
            times.buckets[int(spent * 1e6).bit_length()] += 1
            times.seconds += spent
        return response

    def _when_prepared(self, route: Route, session: Session, version: int, request: bytearray) -> Pending:
        """The first request of an API waits while a thread generates its codec; other requests do not
        wait."""
        answer: asyncio.Future[Answer | CloseConnection] = self._broker.loop.create_future()

        def completed(found: Answer | CloseConnection) -> None:
            if not answer.done():
                answer.set_result(found)

        async def later() -> None:
            try:
                await self._broker.in_thread(prepare, route.api.key, version)
                route.is_prepared = True
                response = self.dispatch(session, request, 0, len(request))
            except (WireError, CloseConnection) as error:
                completed(CloseConnection(str(error)))
            except Exception:  # the border: without a response, later ones would wait forever
                log.exception("could not decode %s version %d", route.api.key.name, version)
                completed(CloseConnection("a request that could not be answered"))
            else:
                if isinstance(response, Pending):
                    response.when_done(completed)
                    pending.begin(response)
                else:
                    completed(response)

        pending = Pending(
            answer, lambda done: done.result(), exclusive=True, cancellable=False, held=len(request)
        )
        self._start(later())
        return pending

    def _metered(
        self, session: Session, route: Route, context: RequestContext, buf: bytearray, pos: int, end: int
    ) -> Pending | Answer:
        """Handles the request and counts its time and bytes for the client's quotas."""
        context.throttle_ms, context.is_from_follower, context.spent_s = 0, False, 0.0
        monotonic = self._monotonic
        started, received = monotonic(), end - pos
        if self._interceptor is None:
            response = self._handle(route, context, buf, pos, end)
        else:
            response = self._intercepted(self._interceptor, route, context, buf, pos, end)
        context.spent_s += monotonic() - started

        def throttled(answer: Answer) -> Answer:
            wait = throttle_ms(self._quotas, self._broker.authorizer, context, received, answer)
            if not wait:
                return answer
            session.mute_ms = max(session.mute_ms, wait)
            if isinstance(route.throttle_place, str):
                route.throttle_place = throttle_place(context.api_key, context.version)
            header = 9 if route.flexible_header else 8
            place = route.throttle_place
            return with_throttle(answer, context.api_key, context.version, place, header, wait)

        if not isinstance(response, Pending):
            return throttled(response)
        response.meter(context, monotonic)
        response.then(throttled)
        return response

    def _unserved(self, key: int, version: int, correlation_id: int) -> Answer:
        api = self._apis.get(key)
        if api is None:
            raise WireError(f"API key {key} is not served")
        if key == ApiKey.API_VERSIONS:
            return self._unsupported_api_versions(api, correlation_id)
        raise WireError(f"{api.key.name} version {version} is not served")

    async def drain(self) -> None:
        """Waits for the requests in flight."""
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
            # A request that is parsed in place does not keep its bytes.
            held = 0 if route.in_place else end - pos
            return self._pending(route, context, request, result, held)
        if asyncio.iscoroutine(result):
            if hasattr(context, "spent_s"):
                result = Metered(context, result, self._monotonic)
            return self._pending(route, context, request, self._start(result), end - pos)
        return _encoded(route, context, result)

    def _start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self._broker.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _pending(
        self, route: Route, context: RequestContext, request: Any, future: asyncio.Future[Any], held: int
    ) -> Pending:
        api = route.api

        def convert(done: asyncio.Future[Any]) -> Answer | CloseConnection:
            failure = done.exception()
            if failure is None:
                result = done.result()
                if isinstance(result, LastAnswer):
                    return CloseConnection(result.reason, _encoded(route, context, result.message))
                return _encoded(route, context, result)
            if isinstance(failure, CloseConnection):
                return failure
            if not isinstance(failure, ApiError):
                log.error("%s failed: %s", api.key.name, context, exc_info=failure)
                failure = UnknownServerError()
            if request is None:
                return CloseConnection(f"{api.key.name}: {failure}")
            return _encoded(route, context, api.error_response(context, request, failure.code))

        return Pending(future, convert, exclusive=not api.concurrent, cancellable=api.concurrent, held=held)

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
        except Exception:  # the border: if even the error response fails, the connection is closed
            log.exception("could not send the error response of %s: %s", route.api.key.name, context)
            raise CloseConnection("a request that could not be answered") from None

    def _unsupported_api_versions(self, api: Api, correlation_id: int) -> bytes:
        """KIP-511: a response that clients of any version can read, so that the client can retry."""
        context = RequestContext(api.key, 0, correlation_id, None, "")
        answer = api.error_response(context, None, UnsupportedVersion.code)
        body = encode_response(api.key, 0, answer)
        return _HEADER_V0(len(body) + 4, correlation_id) + body

    # -- injected faults

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
        # The connection reuses the buffer when this returns.
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

        return Pending(self._start(later()), convert, exclusive=True, cancellable=False, held=len(copy))

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
    """The body with length and header."""
    if isinstance(body, bytes):
        if route.flexible_header:
            return _HEADER_V1(len(body) + 5, context.correlation_id, 0) + body
        return _HEADER_V0(len(body) + 4, context.correlation_id) + body
    size = sum([len(chunk) for chunk in body])
    if route.flexible_header:
        return [_HEADER_V1(size + 5, context.correlation_id, 0), *body]
    return [_HEADER_V0(size + 4, context.correlation_id), *body]
