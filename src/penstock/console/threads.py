"""Threads of a console: a pool for short requests, and one thread for each live view.

The event loop's own pool has only a few threads on a small machine: a few live views would use it up.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from penstock.admin.failure import CommandFailed

MOST_READS = 32
MOST_TAILS = 32

T = TypeVar("T")

_pool = ThreadPoolExecutor(MOST_READS, thread_name_prefix="console-read")
_tails = threading.BoundedSemaphore(MOST_TAILS)


async def in_pool(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run `function`, which blocks for a short time, and return its result."""
    run = functools.partial(contextvars.copy_context().run, function, *arguments, **named)
    return await asyncio.get_running_loop().run_in_executor(_pool, run)


async def in_own_thread(function: Callable[[], None]) -> None:
    """Run `function`, which blocks for as long as the page is open. Raises CommandFailed if there are too
    many.
    """
    if not _tails.acquire(blocking=False):
        raise CommandFailed(f"{MOST_TAILS} live views are open already: close one, or wait.")
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def finish(error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        failure: BaseException | None = None
        try:
            function()
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            failure = error
        finally:
            _tails.release()
        try:
            loop.call_soon_threadsafe(finish, failure)
        except RuntimeError:
            pass  # the console has stopped, and nobody waits

    thread = threading.Thread(target=run, name="console-tail", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        _tails.release()
        raise
    await done


class SharedAnswer:
    """A response that many users request: requested once at a time, and cached for `seconds`."""

    def __init__(self, ask: Callable[[], bool], seconds: float, clock: Callable[[], float]) -> None:
        self._ask = ask
        self._seconds = seconds
        self._clock = clock
        self._until = 0.0
        self._asking: asyncio.Task[bool] | None = None

    async def get(self) -> bool:
        if self._asking is None or (self._asking.done() and self._clock() >= self._until):
            self._asking = asyncio.create_task(self._fetch())
        return await asyncio.shield(self._asking)

    async def _fetch(self) -> bool:
        try:
            return await in_pool(self._ask)
        finally:
            self._until = self._clock() + self._seconds
