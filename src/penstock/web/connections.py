"""Limits for connections to an HTTP server: no login is needed to open one.

uvicorn limits neither the size of a request head, nor the time to send one, nor the number of connections.
This closes a connection that sends 64 KiB without completing the head or a piece of the body, and one that
does not complete what it has started, or sends nothing, for a minute. Above 1,000 connections a new one
replaces one that is not being served: the oldest one of the address with the most connections.
"""

from __future__ import annotations

import asyncio
import resource
import ssl
from abc import ABC, abstractmethod
from collections import Counter
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock.web.guard import SECURE_HEADERS, Headers


class ServerConfig(uvicorn.Config):
    """`secure` are the security headers of every response, `tls` the context of a server with TLS."""

    secure: Headers = SECURE_HEADERS
    tls: ssl.SSLContext | None = None

    def load(self) -> None:
        super().load()
        # uvicorn would see a connection only after its handshake.
        self.tls, self.ssl = self.ssl, None


class Place(ABC):
    """What counts as a connection: one that is served, or a handshake."""

    heard_at: float

    @property
    @abstractmethod
    def address(self) -> str: ...

    @property
    @abstractmethod
    def is_waiting(self) -> bool:
        """Whether the client has not sent a whole request."""

    @property
    @abstractmethod
    def is_closing(self) -> bool: ...

    @abstractmethod
    def abort(self) -> None: ...


class HttpConnection(HttpToolsProtocol, Place):
    """The limits are attributes of the class.

    head_bytes      what may come without a whole head, a piece of the body, or the end of a request
    wait_seconds    how long a connection waits for the next whole head, or the next piece of a body
    most            connections of one server; at most half of the files that the process may open
    most_pipelined  requests that wait for the answers to those before them
    """

    head_bytes = 64 * 1024
    wait_seconds = 60.0
    most = 1000
    most_pipelined = 32

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._without_progress = 0
        self._in_head = True
        self._waits_since: float | None = None  # for a whole head; None while a request is being handled
        self.heard_at = 0.0
        self.handshake: Place | None = None  # which had its place before
        self._timer: asyncio.TimerHandle | None = None

    # Called by the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._waits_since = self.heard_at = self.loop.time()
        self._look()
        if self.handshake is not None:
            self.connections.discard(self.handshake)
        make_room_for(self, self.connections)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.heard_at = self.loop.time()
        self._without_progress += len(data)
        super().data_received(data)
        if self._without_progress > self.head_bytes and not self.transport.is_closing():
            self._close_with(b"431 Request Header Fields Too Large")

    def send_400_response(self, msg: str) -> None:
        self._close_with(b"400 Bad Request", msg.encode())

    def _close_with(self, status: bytes, body: bytes = b"") -> None:
        """Respond with an error, unless another response is due first, and close the connection."""
        if self._is_open or not (self.cycle.response_started or self.pipeline):
            secure = self.config.secure if isinstance(self.config, ServerConfig) else SECURE_HEADERS
            headers = [
                *self.server_state.default_headers,
                *secure,
                (b"content-type", b"text/plain; charset=utf-8"),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            lines = [b"HTTP/1.1 " + status, *(name + b": " + value for name, value in headers)]
            self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
        self.transport.close()

    def handle_websocket_upgrade(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().handle_websocket_upgrade()

    # Called by the parser

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= self.most_pipelined:
            raise ValueError("too many requests at once")  # the response is 400, and the connection closes
        super().on_message_begin()
        self._in_head = True
        if self._waits_since is not None:
            self._waits_since = self.heard_at

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # those after a body would be added to headers that were already checked
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._without_progress = 0
        self._in_head = False
        self._waits_since = None
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._without_progress = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._without_progress = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if not self.pipeline:
            self._waits_since = self.loop.time()
        super().on_response_complete()

    # Limits

    @property
    def _is_open(self) -> bool:
        """Whether the connection is idle."""
        return self.cycle is None or self.cycle.response_complete

    def _look(self) -> None:
        now = self.loop.time()
        if self._waits_since is not None:
            late = now - self._waits_since
        elif not self._is_open and self.cycle.more_body and not self.flow.read_paused:
            late = now - self.heard_at
        else:
            late = 0.0
        if late >= self.wait_seconds:
            self.transport.abort()
            return
        self._timer = self.loop.call_later(self.wait_seconds / 4, self._look)

    # As a `Place`

    @property
    def is_closing(self) -> bool:
        return self.transport.is_closing()

    def abort(self) -> None:
        self.transport.abort()

    @property
    def is_waiting(self) -> bool:
        return self._is_open or self.cycle.more_body

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""


def make_room_for(new: Place, connections: set[Any]) -> None:
    """Close a connection that waits for its client if there are more than `HttpConnection.most`."""
    most = min(HttpConnection.most, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
    if len(connections) <= most:
        return
    others: list[Place] = [each for each in connections if isinstance(each, Place) and each is not new]
    others = [each for each in others if not each.is_closing]
    if len(others) < most:
        return
    waiting = [each for each in others if each.is_waiting]
    if not waiting:
        new.abort()
        return
    many = Counter(each.address for each in waiting)
    oldest = min(waiting, key=lambda each: (-many[each.address], each.heard_at))
    oldest.abort()
