"""The listening sockets and their connections: limits, idle and stalled connections, the shared buffer."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from penstock.broker.net.budget import Budget
from penstock.broker.net.connection import Connection
from penstock.broker.net.context import RequestContext
from penstock.broker.net.dispatch import Answer, Pending
from penstock.broker.net.places import Places
from penstock.broker.net.session import Session
from penstock.broker.net.tls import TlsConnection
from penstock.broker.security.authentication.listener import ListenerSecurity
from penstock.broker.security.quotas.quotas import ConnectionQuotas
from penstock.clock import Clock
from penstock.errors import ConfigError

log = logging.getLogger(__name__)

_RECEIVE_BUFFER = 4 * 1024 * 1024
# The size of a read while the memory budget is spent: enough for small requests to continue.
_SMALL_READ = 4 * 1024
# How many buffers connections may borrow, and how many are kept when they are not borrowed.
_MAX_LENT = 6
_MAX_SPARE = 2
_BACKLOG = 4096
# The size of a read on a TLS connection.
_CIPHERTEXT_BUFFER = 256 * 1024
_HANDSHAKE_THREADS = 1
# How many client ids of brokers are remembered; the least recently seen are forgotten.
_MAX_BROKERS = 1000
# How many log lines about bad clients are written per second; more are only counted.
_COMPLAINTS_PER_S = 10

Dispatch = Callable[[Session, bytearray, int, int], Pending | Answer]
"""dispatch(session, buf, pos, end): handles the request in buf[pos:end]."""


class ReceiveBuffer:
    """The buffer that the next read of any connection fills."""

    __slots__ = ("data", "small_view", "view")

    def __init__(self) -> None:
        self.data = bytearray(_RECEIVE_BUFFER)
        self.view = memoryview(self.data)
        self.small_view = self.view[:_SMALL_READ]


class Server:
    def __init__(
        self,
        dispatch: Dispatch,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        *,
        max_frame: int,
        queued_bytes: int,
        max_connections: int,
        max_idle_ms: int,
        on_lost: Callable[[str], None] | None = None,
        between_brokers: str | None = None,
    ) -> None:
        """`on_lost(peer)` is called when a connection has ended. `between_brokers` is the inter-broker
        listener if clients have other listeners."""
        self.dispatch = dispatch
        self.loop = loop
        self.monotonic = clock.monotonic
        self.max_frame = max_frame
        self.places = Places(max_connections, between_brokers)
        self.max_idle_ms = max_idle_ms
        self._on_lost = on_lost
        self.connection_quotas = ConnectionQuotas(lambda: clock.monotonic() * 1000)
        self.budget = Budget(queued_bytes if queued_bytes >= 0 else 1 << 62)
        self.receiving = ReceiveBuffer()
        self._spare: list[ReceiveBuffer] = []
        self._lent = 0
        self.connections: set[Connection] = set()
        self._accepted = 0
        self._newest: dict[str, int] = {}  # by client id of another broker: its latest connection
        self._bound: list[tuple[ListenerSecurity, socket.socket]] = []
        self.ciphertext = memoryview(bytearray(_CIPHERTEXT_BUFFER))
        # A handshake takes milliseconds of CPU. Few threads do them, so that a core is left for other work.
        self.handshakes = ThreadPoolExecutor(_HANDSHAKE_THREADS, thread_name_prefix="tls")
        self._listening: list[asyncio.Server] = []
        self._complaints_since = 0.0
        self._complaints = 0
        self._emptied: asyncio.Event = asyncio.Event()

    def bind(self, host: str, port: int, listener: ListenerSecurity) -> int:
        """Bind host:port (0 for any free port) without accepting connections yet; returns the port."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        endpoint = socket.socket(family, socket.SOCK_STREAM)
        try:
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            endpoint.bind((host, port))
        except OSError as error:
            endpoint.close()
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}") from error
        self._bound.append((listener, endpoint))
        bound: int = endpoint.getsockname()[1]
        return bound

    async def serve(self) -> None:
        for listener, endpoint in self._bound:
            accept = partial(Connection if listener.tls is None else TlsConnection, self, listener)
            self._listening.append(await self.loop.create_server(accept, sock=endpoint, backlog=_BACKLOG))

    async def stop(self) -> None:
        """Stop listening and close every connection."""
        for server in self._listening:
            server.close()
        for _, endpoint in self._bound:
            endpoint.close()
        for connection in list(self.connections):
            connection.close(None)
        if self.connections:
            self._emptied.clear()
            await self._emptied.wait()
        self.handshakes.shutdown(wait=False)

    def opened(self, connection: Connection) -> None:
        self._accepted += 1
        connection.session.connection = self._accepted
        self.connections.add(connection)
        if connection.session.login is not None:
            connection.session.on_login = partial(self.places.authenticated, connection)
        is_protected = self.places.is_protected(connection)
        stays, wait_ms = self.connection_quotas.opened(connection.address, is_protected=is_protected)
        taken, most = len(self.connections), self.places.most
        if (taken > most and not stays) or (stays and not self.places.admits(connection, taken)):
            connection.close(f"more than max.connections={most} connections")
        elif stays:
            if wait_ms:
                connection.mute(wait_ms)
        elif wait_ms:
            connection.mute(wait_ms)
            self.loop.call_later(wait_ms / 1000, connection.close, "connection_creation_rate of its address")
        else:
            connection.close("more than max.connections.per.ip connections of its address")

    def lost(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.places.lost(connection)
        connection.session.on_login = None
        self.connection_quotas.closed(connection.address)
        if self._on_lost is not None:
            self._on_lost(connection.peer)
        if not self.connections:
            self._emptied.set()

    def is_replaced(self, context: RequestContext) -> bool:
        """Whether this is a stale connection of another broker: the broker has opened a later one with the
        same client id, and a request of that one was handled."""
        client = context.client_id or ""
        newest = max(self._newest.pop(client, 0), context.connection)
        self._newest[client] = newest  # moves it to the end
        if len(self._newest) > _MAX_BROKERS:
            del self._newest[next(iter(self._newest))]
        return context.connection < newest

    def lend(self) -> ReceiveBuffer | None:
        """Lends the receive buffer to a connection that has an incomplete frame in it, and replaces it; None
        if too many are lent."""
        if self._lent >= _MAX_LENT:
            return None
        self._lent += 1
        lent = self.receiving
        self.receiving = self._spare.pop() if self._spare else ReceiveBuffer()
        return lent

    def give_back(self, lent: ReceiveBuffer) -> None:
        self._lent -= 1
        if len(self._spare) < _MAX_SPARE:
            self._spare.append(lent)

    def reap(self) -> int:
        """Close idle connections and those stalled in the middle of a frame; returns how many."""
        now = self.monotonic()
        closed = 0
        for connection in list(self.connections):
            if connection.stalled(now):
                connection.close("stalled within a request")
            elif self.max_idle_ms >= 0 and (now - connection.last_active) * 1000 > self.max_idle_ms:
                log.debug("%s: idle, closed", connection.peer)
                connection.close(None)
            else:
                continue
            closed += 1
        return closed

    def complain(self, peer: str, reason: str) -> None:
        """Log a line about a bad client; the number of lines per second is limited."""
        now = self.monotonic()
        if now - self._complaints_since >= 1.0:
            if self._complaints > _COMPLAINTS_PER_S:
                log.warning("%d more connections closed", self._complaints - _COMPLAINTS_PER_S)
            self._complaints_since = now
            self._complaints = 0
        self._complaints += 1
        if self._complaints <= _COMPLAINTS_PER_S:
            log.warning("%s: closed: %s", peer, reason)
