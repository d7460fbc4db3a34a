"""fsync in threads: each log has at most one flush running and one waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.log.partition_log import PartitionLog

InThread = Callable[[Callable[[], None]], Awaitable[None]]


class Flusher:
    def __init__(self, loop: asyncio.AbstractEventLoop, in_thread: InThread) -> None:
        self._loop = loop
        self._in_thread = in_thread
        self._running: dict[PartitionLog, asyncio.Task[None]] = {}
        self._next: dict[PartitionLog, asyncio.Task[None]] = {}

    def flush(self, log: PartitionLog) -> asyncio.Task[None]:
        """Done when everything appended before this call is on disk."""
        # The running flush may have started before the append, so all calls meanwhile share the next flush,
        # even if the first has ended and the next has not started yet.
        waiting = self._next.get(log)
        if waiting is not None:
            return waiting
        running = self._running.get(log)
        if running is None:
            task = self._running[log] = self._loop.create_task(self._flush(log))
            return task
        waiting = self._next[log] = self._loop.create_task(self._after(running, log))
        return waiting

    async def drain(self) -> None:
        while self._running or self._next:
            await asyncio.wait([*self._running.values(), *self._next.values()])

    async def _after(self, running: asyncio.Task[None], log: PartitionLog) -> None:
        await asyncio.wait([running])
        task = asyncio.current_task()
        assert task is not None
        self._next.pop(log, None)
        self._running[log] = task
        await self._flush(log)

    async def _flush(self, log: PartitionLog) -> None:
        try:
            await self._in_thread(log.flush)
        finally:
            self._running.pop(log, None)
