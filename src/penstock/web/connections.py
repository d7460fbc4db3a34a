"""Limits for connections to an HTTP server: no login is needed to open one.

uvicorn limits neither the size of a request head, nor the time to send one, nor the number of connections.
This closes a connection that sends 64 KiB without completing the head or a piece of the body, and one that
does not complete what it has started, or sends nothing, for a minute. Above 1,000 connections a new one
replaces one that is not being served: the oldest one of the address with the most connections.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class HttpConnection(HttpToolsProtocol):
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
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # Called by the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._waits_since = self._heard_at = self.loop.time()
        self._look()
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self.loop.time()
        self._without_progress += len(data)
        super().data_received(data)
        if self._without_progress > self.head_bytes and not self.transport.is_closing():
            if self._is_open:
                self.transport.write(_TOO_LARGE)
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
            self._waits_since = self._heard_at

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
            late = now - self._heard_at
        else:
            late = 0.0
        if late >= self.wait_seconds:
            self.transport.abort()
            return
        self._timer = self.loop.call_later(self.wait_seconds / 4, self._look)

    def _make_room(self) -> None:
        most = min(self.most, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        if len(self.connections) <= most:
            return
        others = [each for each in self.connections if isinstance(each, HttpConnection) and each is not self]
        others = [each for each in others if not each.transport.is_closing()]
        if len(others) < most:
            return
        # Connections that have not sent a whole request.
        waiting = [each for each in others if each._is_open or each.cycle.more_body]
        if not waiting:
            self.transport.abort()
            return
        many = Counter(each._address for each in waiting)
        oldest = min(waiting, key=lambda each: (-many[each._address], each._heard_at))
        oldest.transport.abort()

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""
