"""Periodic jobs: due by the clock, one failure harms nobody, settings are asked again."""

from __future__ import annotations

import asyncio

from penstock.broker.maintenance.jobs import Jobs
from penstock.clock import ManualClock


def test_a_job_runs_when_the_clock_says_so_and_not_before() -> None:
    async def main() -> None:
        clock = ManualClock()
        jobs = Jobs(clock, asyncio.get_running_loop())
        ran: list[str] = []
        jobs.add("often", lambda: 1_000, lambda: ran.append("often"))
        jobs.add("seldom", lambda: 60_000, lambda: ran.append("seldom"))
        assert await jobs.run_due() == []
        clock.advance(1_000)
        assert await jobs.run_due() == ["often"]
        assert await jobs.run_due() == []
        clock.advance(59_000)
        assert await jobs.run_due() == ["often", "seldom"]
        assert ran == ["often", "often", "seldom"]

    asyncio.run(main())


def test_a_failing_job_is_tried_again_and_stops_no_other() -> None:
    async def main() -> None:
        clock = ManualClock()
        jobs = Jobs(clock, asyncio.get_running_loop())
        ran: list[int] = []

        async def fails() -> None:
            raise OSError("disk")

        jobs.add("fails", lambda: 1_000, fails)
        jobs.add("works", lambda: 1_000, lambda: ran.append(1))
        for _ in range(2):
            clock.advance(1_000)
            assert await jobs.run_due() == ["fails", "works"]
        assert ran == [1, 1]

    asyncio.run(main())


def test_a_changed_interval_counts_from_the_next_turn() -> None:
    async def main() -> None:
        clock = ManualClock()
        jobs = Jobs(clock, asyncio.get_running_loop())
        interval = [10_000]
        jobs.add("job", lambda: interval[0], lambda: None)
        interval[0] = 1_000
        clock.advance(10_000)
        assert await jobs.run_due() == ["job"]
        clock.advance(1_000)
        assert await jobs.run_due() == ["job"]

    asyncio.run(main())


def test_started_jobs_run_by_themselves_and_stop_waits_for_them() -> None:
    async def main() -> None:
        from penstock.clock import SystemClock

        jobs = Jobs(SystemClock(), asyncio.get_running_loop())
        began, finish, finished = asyncio.Event(), asyncio.Event(), []

        async def work() -> None:
            began.set()
            await finish.wait()
            finished.append(1)

        jobs.add("job", lambda: 1, work)
        jobs.start()
        await began.wait()
        asyncio.get_running_loop().call_soon(finish.set)
        await jobs.stop()
        assert finished == [1]

    asyncio.run(main())


def test_a_job_never_overlaps_itself() -> None:
    async def main() -> None:
        clock = ManualClock()
        jobs = Jobs(clock, asyncio.get_running_loop())
        finish = asyncio.Event()
        jobs.add("slow", lambda: 1_000, finish.wait)
        clock.advance(1_000)
        first = asyncio.ensure_future(jobs.run_due())
        await asyncio.sleep(0)
        clock.advance(5_000)
        assert await jobs.run_due() == []
        finish.set()
        assert await first == ["slow"]

    asyncio.run(main())
