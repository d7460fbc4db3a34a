"""Passes lines from the thread that computes them to the event loop that sends them, in a bounded buffer.

The thread waits while the buffer is full; the loop waits while it is empty. Each side notifies the other of
its end: the thread with `finish`, the loop with `close` when the client disconnects.
"""

from __future__ import annotations

import asyncio
import threading

MOST_BYTES = 1 << 20


class Gone(Exception):
    """The reader has closed the pipe."""


class Pipe:
    """Created in the loop; `put` and `finish` are for one thread, `get` and `close` for the loop."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._loop = asyncio.get_running_loop()
        self._most = most_bytes
        self._news = asyncio.Event()
        self._room = threading.Condition()
        self._parts: list[bytes] = []
        self._size = 0
        self._finished = False
        self._closed = False

    # The thread

    def put(self, data: bytes) -> None:
        """Raises Gone if the reader has closed."""
        with self._room:
            self._room.wait_for(lambda: self._closed or self._size < self._most)
            if self._closed:
                raise Gone
            first = not self._parts
            self._parts.append(data)
            self._size += len(data)
        if first:
            self._tell()

    def finish(self) -> None:
        with self._room:
            self._finished = True
        self._tell()

    def _tell(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._news.set)
        except RuntimeError:
            pass  # the loop is closed: this process ends

    @property
    def closed(self) -> bool:
        return self._closed

    # The loop

    async def get(self) -> bytes:
        """All available lines, or the next one; empty at the end."""
        while True:
            self._news.clear()
            with self._room:
                if self._parts:
                    data, self._parts, self._size = b"".join(self._parts), [], 0
                    self._room.notify()
                    return data
                if self._finished or self._closed:
                    return b""
            await self._news.wait()

    def close(self) -> None:
        with self._room:
            self._closed = True
            self._parts, self._size = [], 0
            self._room.notify()
        self._news.set()
