"""An event loop that uses the broker's clock.

Every timer of the broker (long polls, retention, idle connections) is a timer of the loop, so a loop whose
`time()` is the shifted clock makes them due as soon as a test advances it, without a hook in the broker.
uvloop keeps its own time; this is asyncio's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from penstock.clock import ShiftedClock

# The maximum number of chained callbacks of a due job between two pieces of work in a thread.
_QUIET_ROUNDS = 50


class ShiftedLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: ShiftedClock) -> None:
        self._clock = clock
        self._working: set[asyncio.Future[Any]] = set()
        super().__init__()

    def time(self) -> float:
        return self._clock.monotonic()

    def run_in_executor(  # type: ignore[override]  # typeshed's TypeVarTuple cannot be forwarded
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = super().run_in_executor(executor, func, *args)
        self._working.add(future)
        future.add_done_callback(self._working.discard)
        return future

    async def advance(self, ms: int) -> None:
        """Advances the clock, and returns when everything that became due has been done."""
        self._clock.advance(ms)
        quiet = 0
        while quiet < _QUIET_ROUNDS:
            if self._working:
                quiet = 0
                await asyncio.wait(set(self._working))
            quiet += 1
            await asyncio.sleep(0)
