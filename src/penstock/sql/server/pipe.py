"""Lines from a thread that computes them to the event loop that sends them, never more than fit.

The thread waits while the client does not read; the loop waits while there is nothing. Whoever ends first
notifies the other: `finish` by the thread, `close` by the loop when the client has gone away.
"""

from __future__ import annotations

import asyncio
import threading

MOST_BYTES = 1 << 20


class Gone(Exception):
    """Nobody reads the pipe any more."""


class Pipe:
    """Made in the loop; `put` and `finish` are for one thread, `get` and `close` for the loop."""

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
        """Gone if nobody reads."""
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
        """All that is there, or the next that comes; nothing at the end."""
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
