"""Connections from this broker to the others: requests and answers, many under way at once on each.

Brokers of a cluster run the same release, so there is no table of versions: each request says its own.
A connection that fails takes its requests with it, and the next request makes a new one.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.wire.api_keys import ApiKey, request_header_version, response_header_version
from penstock.wire.codec import Message, decode_response, encode_request
from penstock.wire.primitives import skip_tags

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

_HEADER = struct.Struct(">ihhih")
_INT32 = struct.Struct(">i")
_LARGEST_ANSWER = 1 << 30
_CONNECT_SECONDS = 5.0
CLIENT_ID_OF_PEERS = "broker-"
"""How the client ids of brokers begin; the id of the broker follows."""


class PeerUnavailable(PenstockError):
    """Another broker cannot be reached, or does not answer."""

    def __init__(self, broker_id: int, reason: str) -> None:
        super().__init__(f"broker {broker_id}: {reason}")
        self.broker_id = broker_id


async def may_be_alive(host: str, port: int) -> bool:
    """False where nobody listens, or nobody is behind who does; who cannot be reached may live."""
    writer = None
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(_HEADER.pack(_HEADER.size - 4, ApiKey.API_VERSIONS, 0, 0, 0))
            return bool(await reader.read(1))
    except (ConnectionRefusedError, ConnectionResetError, BrokenPipeError):
        return False
    except (OSError, TimeoutError):
        return True
    finally:
        if writer is not None:
            writer.transport.abort()


class PeerConnection(asyncio.BufferedProtocol):
    """Frames out, frames in. An answer is received into one buffer of its own, without copies."""

    def __init__(self, broker_id: int, client_id: str, loop: asyncio.AbstractEventLoop) -> None:
        self._broker_id = broker_id
        self._client_id = client_id.encode()
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[bytearray]] = {}
        self._correlation_id = 0
        self._length = bytearray(4)
        self._frame: bytearray | None = None
        self._filled = 0
        self.is_open = True

    def send(self, api: ApiKey, version: int, body: bytes) -> asyncio.Future[bytearray]:
        """The answer's frame after its length: the correlation id, the header's rest and the body."""
        answer: asyncio.Future[bytearray] = self._loop.create_future()
        if self._transport is None or not self.is_open:
            answer.set_exception(PeerUnavailable(self._broker_id, "the connection is closed"))
            return answer
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        tags = b"\0" if request_header_version(api, version) >= 2 else b""
        size = _HEADER.size - 4 + len(self._client_id) + len(tags) + len(body)
        header = _HEADER.pack(size, api, version, self._correlation_id, len(self._client_id))
        self._waiting[self._correlation_id] = answer
        self._transport.write(header + self._client_id + tags + body)
        return answer

    def close(self, reason: str = "the connection is closed") -> None:
        self.is_open = False
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(PeerUnavailable(self._broker_id, reason))
        if self._transport is not None:
            self._transport.abort()

    # the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        self.close(str(error or "it closed the connection"))

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is None:
            return memoryview(self._length)[self._filled :]
        return memoryview(self._frame)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._frame is None:
            if self._filled == 4:
                (size,) = _INT32.unpack(self._length)
                if not 4 <= size <= _LARGEST_ANSWER:
                    self.close(f"an answer of {size} bytes")
                    return
                self._frame, self._filled = bytearray(size), 0
        elif self._filled == len(self._frame):
            frame, self._frame, self._filled = self._frame, None, 0
            answer = self._waiting.pop(_INT32.unpack_from(frame)[0], None)
            if answer is not None and not answer.done():
                answer.set_result(frame)


class Peers:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._connections: dict[tuple[int, str], asyncio.Task[PeerConnection]] = {}

    async def call(
        self, broker_id: int, api: ApiKey, version: int, request: Message, *, timeout_ms: int | None = None
    ) -> Message:
        frame, start = await self.exchange(
            broker_id, api, version, encode_request(api, version, request), timeout_ms=timeout_ms
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
        """The frame of the answer and where its body starts. Each purpose has a connection of its own, since
        a broker answers those of one connection in order: a fetch that waits would hold up the others."""
        timeout = (timeout_ms or self._broker.config.replica_socket_timeout_ms) / 1000
        key = (broker_id, purpose)
        connection = await self._connection(key)
        try:
            frame = await asyncio.wait_for(connection.send(api, version, body), timeout)
        except TimeoutError:
            # What comes after a lost answer cannot be told from it, and the next request needs a fresh start.
            connection.close("it does not answer")
            raise PeerUnavailable(broker_id, f"no answer to {api.name} in {timeout:g} s") from None
        start = 4
        if response_header_version(api, version) >= 1:
            start = skip_tags(frame, start, len(frame))
        return frame, start

    async def _connection(self, key: tuple[int, str]) -> PeerConnection:
        task = self._connections.get(key)
        if task is not None and task.done():
            if task.cancelled() or task.exception() or not task.result().is_open:
                task = None
        if task is None:
            task = self._connections[key] = self._broker.loop.create_task(self._connect(*key))
            task.add_done_callback(_retrieve)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # the connection was given up, not the one who waits for it
                raise PeerUnavailable(key[0], "its address has changed") from None
            raise

    async def _connect(self, broker_id: int, purpose: str) -> PeerConnection:
        broker = self._broker
        info = broker.controller.image.brokers.get(broker_id)
        if info is None:
            raise PeerUnavailable(broker_id, "it is not registered")
        host, port = info.peer_address
        try:
            _, connection = await asyncio.wait_for(
                broker.loop.create_connection(
                    lambda: PeerConnection(
                        broker_id, f"{CLIENT_ID_OF_PEERS}{broker.id}-{purpose}", broker.loop
                    ),
                    host,
                    port,
                ),
                _CONNECT_SECONDS,
            )
        except (OSError, TimeoutError) as error:
            raise PeerUnavailable(broker_id, f"{host}:{port}: {error or 'no answer'}") from error
        return connection

    def forget(self, broker_id: int) -> None:
        """Its address may have changed."""
        for key in [key for key in self._connections if key[0] == broker_id]:
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
    """The error is for whoever waits; without this it would be told once more as never retrieved."""
    if not task.cancelled():
        task.exception()
