"""Accepts the connections of a server with TLS.

An event loop shows a connection to its server only after the handshake. Here it counts as a connection from
its beginning, so that handshakes that do not end use up neither the memory nor the files of the process.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any

from penstock.web.connections import HttpConnection, Place, make_room_for

log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
"""How long to wait if no connection can be accepted, because too many files are open."""


class Handshake(Place):
    """A connection until it is encrypted. It has as much time for it as for a request."""

    def __init__(self, connection: socket.socket, address: Any, now: float) -> None:
        self._socket = connection
        self._address: str = address[0] if isinstance(address, tuple) else ""
        self.heard_at = now
        self._is_closing = False

    @property
    def address(self) -> str:
        return self._address

    @property
    def is_waiting(self) -> bool:
        return True

    @property
    def is_closing(self) -> bool:
        return self._is_closing

    async def complete(self, make: Callable[[], HttpConnection], context: ssl.SSLContext) -> None:
        """Returns when the connection is one that `make` has made, or closed."""

        def served() -> HttpConnection:
            made = make()
            made.handshake = self
            return made

        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                served, self._socket, ssl=context, ssl_handshake_timeout=HttpConnection.wait_seconds
            )
        except OSError as error:  # ssl.SSLError is one
            log.debug("%s: TLS handshake failed: %s", self.address, error)

    def abort(self) -> None:
        self._is_closing = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # the handshake reads the end
        except OSError:
            pass  # closed meanwhile

    shutdown = abort  # called when the server stops


class TlsListener:
    """Has the methods of an `asyncio.Server` that uvicorn calls."""

    def __init__(
        self,
        listener: socket.socket,
        context: ssl.SSLContext,
        make: Callable[[], HttpConnection],
        connections: set[Any],
        backlog: int,
    ) -> None:
        """`connections` are those of the server, with the handshakes under way."""
        self._listener, self._context, self._make = listener, context, make
        self._connections = connections
        self._handshakes: set[asyncio.Task[None]] = set()
        listener.setblocking(False)
        listener.listen(backlog)
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    def close(self) -> None:
        self._accepting.cancel()
        self._listener.close()

    async def wait_closed(self) -> None:
        await asyncio.wait([self._accepting, *self._handshakes])

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(self._listener)
            except OSError as error:
                log.warning("cannot accept connections: %s", error.strerror or error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            handshake = Handshake(connection, address, loop.time())
            self._connections.add(handshake)
            make_room_for(handshake, self._connections)
            task = loop.create_task(self._shake(handshake))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)
            await asyncio.sleep(0)  # accepting one that waits already does not yield

    async def _shake(self, handshake: Handshake) -> None:
        try:
            await handshake.complete(self._make, self._context)
        finally:
            self._connections.discard(handshake)
