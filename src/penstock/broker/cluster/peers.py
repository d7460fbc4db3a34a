"""Connections from this broker to other brokers, with many requests in flight on each.

Brokers of a cluster run the same release, so versions are not negotiated: the caller chooses the version of
each request. When a connection fails its requests fail too, and the next request opens a new connection.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.broker.cluster.peer_login import PeerRefused
from penstock.errors import PeerUnavailable
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message, decode_response, encode_request
from penstock.wire.frame import Requests, request_frame, response_start

if TYPE_CHECKING:
    from penstock.broker.parts import HasConfig, HasController, HasId, HasLoop, HasPeerLogin

    class PeersParts(HasConfig, HasController, HasId, HasLoop, HasPeerLogin, Protocol): ...


_INT32 = struct.Struct(">i")
_LARGEST_ANSWER = 1 << 30
_FIRST_READ = 1 << 14
_CONNECT_SECONDS = 5.0
CLIENT_ID_OF_PEERS = "broker-"
"""The prefix of the client ids of brokers; the broker id follows."""


async def may_be_alive(host: str, port: int, tls: ssl.SSLContext | None = None) -> bool:
    """False if nothing listens at this address, or if the connection is closed without a response. A broker
    that cannot be reached counts as possibly alive."""
    writer = None
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, ssl=tls)
            writer.write(request_frame(ApiKey.API_VERSIONS, 0, 0, b"", b""))
            return bool(await reader.read(1))
    except (ConnectionRefusedError, ConnectionResetError, BrokenPipeError):
        return False
    except (OSError, TimeoutError):
        return True
    finally:
        if writer is not None:
            writer.transport.abort()


class _Waiting(NamedTuple):
    answer: asyncio.Future[bytearray]
    deadline: float
    api: ApiKey
    timeout: float


class PeerConnection(asyncio.BufferedProtocol):
    """Sends requests and receives responses. A small response arrives with one read; the rest of a larger one
    is received into a buffer of its own, without copies. The first response that times out closes the
    connection, because later responses could not be told apart from it."""

    def __init__(self, broker_id: int, client_id: str, loop: asyncio.AbstractEventLoop) -> None:
        self._broker_id = broker_id
        self._requests = Requests(client_id)
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, _Waiting] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._received = bytearray(_FIRST_READ)
        self._frame: bytearray | None = None
        self._filled = 0
        self.is_open = True

    def send(self, api: ApiKey, version: int, body: bytes, timeout: float) -> asyncio.Future[bytearray]:
        """Returns the response frame without its length: correlation id, rest of the header, body. Without a
        response within `timeout` seconds, all waiting requests fail with PeerUnavailable."""
        answer: asyncio.Future[bytearray] = self._loop.create_future()
        if self._transport is None or not self.is_open:
            answer.set_exception(PeerUnavailable(self._broker_id, "the connection is closed"))
            return answer
        correlation_id, frame = self._requests.frame(api, version, body)
        deadline = self._loop.time() + timeout
        self._waiting[correlation_id] = _Waiting(answer, deadline, api, timeout)
        if self._timer is None or self._timer.when() > deadline:
            self._arm(deadline)
        self._transport.write(frame)
        return answer

    def close(self, reason: str = "the connection is closed") -> None:
        self.is_open = False
        waiting, self._waiting = self._waiting, {}
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for answer, *_ in waiting.values():
            if not answer.done():
                answer.set_exception(PeerUnavailable(self._broker_id, reason, sent=True))
        if self._transport is not None:
            self._transport.abort()

    def _arm(self, deadline: float) -> None:
        """One timer serves many requests, because most responses arrive long before their timeout."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        first = min(self._waiting.values(), key=lambda one: one.deadline, default=None)
        if first is None:
            return
        if self._loop.time() < first.deadline:
            self._arm(first.deadline)
        else:
            self.close(f"no answer to {first.api.name} in {first.timeout:g} s")

    # called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        self.close(str(error or "it closed the connection"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._received if self._frame is None else self._frame)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        frame = self._frame
        if frame is None:
            self._split()
        elif self._filled == len(frame):
            self._frame, self._filled = None, 0
            self._answered(frame)

    def _split(self) -> None:
        """Splits received bytes into frames; the last one may be incomplete."""
        received, pos, end = self._received, 0, self._filled
        while end - pos >= 4:
            (size,) = _INT32.unpack_from(received, pos)
            if not 4 <= size <= _LARGEST_ANSWER:
                self.close(f"an answer of {size} bytes")
                return
            pos += 4
            if end - pos < size:
                self._frame, self._filled = bytearray(size), end - pos
                self._frame[: end - pos] = memoryview(received)[pos:end]
                return
            self._answered(received[pos : pos + size])
            pos += size
        received[: end - pos] = received[pos:end]
        self._filled = end - pos

    def _answered(self, frame: bytearray) -> None:
        waiting = self._waiting.pop(_INT32.unpack_from(frame)[0], None)
        if waiting is not None and not waiting.answer.done():
            waiting.answer.set_result(frame)


class Peers:
    def __init__(self, broker: PeersParts) -> None:
        self._broker = broker
        self._connections: dict[tuple[int, str], asyncio.Task[PeerConnection]] = {}
        self._last: dict[tuple[int, str], PeerConnection] = {}  # the last connection of each, possibly closed

    async def call(
        self,
        broker_id: int,
        api: ApiKey,
        version: int,
        request: Message,
        *,
        purpose: str = "requests",
        timeout_ms: int | None = None,
    ) -> Message:
        body = encode_request(api, version, request)
        frame, start = await self.exchange(
            broker_id, api, version, body, purpose=purpose, timeout_ms=timeout_ms
        )
        return decode_response(api, version, bytes(frame), start)

    async def exchange(
        self,
        broker_id: int,
        api: ApiKey,
        version: int,
        body: bytes,
        *,
        purpose: str = "requests",
        timeout_ms: int | None = None,
    ) -> tuple[bytearray, int]:
        """Returns the frame of the response and where its body starts. Each purpose has its own connection: a
        broker sends the responses of a connection in order, so a long-polling fetch would delay other
        requests."""
        timeout = (timeout_ms or self._broker.config.replica_socket_timeout_ms) / 1000
        key = (broker_id, purpose)
        connection = self._last.get(key)
        if connection is None or not connection.is_open:
            connection = self._last[key] = await self._connection(key)
        frame = await connection.send(api, version, body, timeout)
        return frame, response_start(api, version, frame)

    async def _connection(self, key: tuple[int, str]) -> PeerConnection:
        task = self._connections.get(key)
        if task is not None and task.done():
            if not task.cancelled() and task.exception() is None and task.result().is_open:
                return task.result()
            task = None
        if task is None:
            task = self._connections[key] = self._broker.loop.create_task(self._connect(*key))
            task.add_done_callback(_retrieve)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # the connection attempt was cancelled, not the waiting request
                raise PeerUnavailable(key[0], "its address has changed") from None
            raise

    async def _connect(self, broker_id: int, purpose: str) -> PeerConnection:
        broker = self._broker
        info = broker.controller.image.brokers.get(broker_id)
        if info is None:
            raise PeerUnavailable(broker_id, "it is not registered")
        address = info.address(broker.config.inter_broker_listener)
        if address is None:
            raise PeerUnavailable(broker_id, f"it has no listener {broker.config.inter_broker_listener}")
        host, port = address
        connection = PeerConnection(broker_id, f"{CLIENT_ID_OF_PEERS}{broker.id}-{purpose}", broker.loop)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await broker.loop.create_connection(lambda: connection, host, port, ssl=broker.peer_login.tls)
                await broker.peer_login.log_in(connection)
        except BaseException as error:
            connection.close()
            if isinstance(error, (OSError, TimeoutError, PeerRefused)):
                raise PeerUnavailable(broker_id, f"{host}:{port}: {error or 'no answer'}") from error
            raise
        return connection

    def forget(self, broker_id: int) -> None:
        """Closes the connections to a broker, because its address may have changed."""
        for key in [key for key in self._connections if key[0] == broker_id]:
            self._last.pop(key, None)
            self._drop(self._connections.pop(key))

    def close(self) -> None:
        for task in self._connections.values():
            self._drop(task)
        self._connections.clear()

    @staticmethod
    def _drop(task: asyncio.Task[PeerConnection]) -> None:
        if not task.done():
            task.cancel()
        elif not task.cancelled() and task.exception() is None:
            task.result().close()


def _retrieve(task: asyncio.Task[PeerConnection]) -> None:
    """Marks the exception as retrieved: the waiters get it, and asyncio would otherwise log it too."""
    if not task.cancelled():
        task.exception()
