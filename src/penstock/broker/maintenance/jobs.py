"""The periodic jobs of a broker, on one timer. A job that still runs is not started again.

A job that fails is logged and runs again at its next interval. Tests advance the clock and call `run_due`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from penstock.clock import Clock

log = logging.getLogger(__name__)

Work = Callable[[], Awaitable[object] | object]


class Job:
    __slots__ = ("due", "interval", "name", "running", "work")

    def __init__(self, name: str, interval: Callable[[], float], work: Work, due: float) -> None:
        self.name = name
        self.interval = interval
        self.work = work
        self.due = due
        self.running = False


class Jobs:
    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._clock = clock
        self._loop = loop
        self._jobs: list[Job] = []
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = False

    def add(self, name: str, interval_ms: Callable[[], int], work: Work) -> None:
        """`interval_ms` is called before each run, because settings may change while the broker runs."""

        def interval() -> float:
            return interval_ms() / 1000

        self._jobs.append(Job(name, interval, work, self._clock.monotonic() + interval()))

    def start(self) -> None:
        self._started = True
        self._arm()

    async def stop(self) -> None:
        """Start no more jobs, and wait for the running ones."""
        self._started = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def run_due(self) -> list[str]:
        """Run the jobs that are due now; returns their names."""
        now = self._clock.monotonic()
        due = [job for job in self._jobs if job.due <= now and not job.running]
        for job in due:
            job.running = True
        await asyncio.gather(*(self._run(job) for job in due))
        return [job.name for job in due]

    async def _run(self, job: Job) -> None:
        try:
            outcome = job.work()
            if isinstance(outcome, Awaitable):
                await outcome
        except Exception:  # the border: a failed job must not stop other jobs, or its own next run
            log.exception("background job %s failed and will be retried", job.name)
        finally:
            job.running = False
            job.due = self._clock.monotonic() + job.interval()
            self._arm()

    def _arm(self) -> None:
        if not self._started or not self._jobs:
            return
        waiting = [job.due for job in self._jobs if not job.running]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if waiting:
            delay = max(min(waiting) - self._clock.monotonic(), 0.0)
            self._timer = self._loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        task = self._loop.create_task(self._due_now())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _due_now(self) -> None:
        if not await self.run_due():
            self._arm()
