"""The event loop of the fixture: what becomes due by an advance of the clock has been done after it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from penstock.clock import ShiftedClock
from penstock.testing.loop import ShiftedLoop

HOUR = 3_600_000


def run(test: Coroutine[Any, Any, None], loop: ShiftedLoop) -> None:
    try:
        loop.run_until_complete(asyncio.wait_for(test, None))
    finally:
        loop.close()


def test_timers_fire_when_the_clock_has_come_there_and_not_before() -> None:
    loop = ShiftedLoop(ShiftedClock())
    fired: list[str] = []

    async def test() -> None:
        loop.call_later(3600, fired.append, "an hour")
        loop.call_later(7200, fired.append, "two hours")
        await loop.advance(HOUR - 60_000)
        assert fired == []
        await loop.advance(120_000)
        assert fired == ["an hour"]
        await loop.advance(HOUR)
        assert fired == ["an hour", "two hours"]

    run(test(), loop)


def test_a_due_job_that_works_in_threads_is_finished_when_the_advance_returns() -> None:
    loop = ShiftedLoop(ShiftedClock())
    release = threading.Event()
    done: list[int] = []

    async def job() -> None:
        await asyncio.sleep(60)
        loop.call_soon(release.set)
        for step in range(3):
            await asyncio.to_thread(release.wait, 10)
            done.append(step)

    async def test() -> None:
        task = loop.create_task(job())
        await asyncio.sleep(0)
        await loop.advance(61_000)
        assert done == [0, 1, 2]
        assert task.done()

    run(test(), loop)


def test_a_periodic_job_runs_once_for_one_advance() -> None:
    loop = ShiftedLoop(ShiftedClock())
    runs: list[float] = []

    async def periodic() -> None:
        while True:
            await asyncio.sleep(10)
            runs.append(loop.time())

    async def test() -> None:
        task = loop.create_task(periodic())
        await asyncio.sleep(0)
        await loop.advance(HOUR)
        assert len(runs) == 1
        await loop.advance(11_000)
        assert len(runs) == 2
        task.cancel()

    run(test(), loop)
