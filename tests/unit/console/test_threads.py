"""What blocks, away from the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from penstock.admin.failure import CommandFailed
from penstock.console.threads import MOST_TAILS, SharedAnswer, in_own_thread, in_pool


@pytest.mark.promise("console", "Live views do not delay other pages; more than 32 are rejected")
def test_live_views_do_not_hold_up_reads() -> None:
    async def scenario() -> None:
        closed = threading.Event()

        def follow() -> None:
            closed.wait()

        tails = [asyncio.create_task(in_own_thread(follow)) for _ in range(MOST_TAILS)]
        try:
            assert await asyncio.wait_for(in_pool(lambda: "served"), 60) == "served"
            with pytest.raises(CommandFailed, match="32 live views are open already"):
                await in_own_thread(follow)
        finally:
            closed.set()
        await asyncio.wait_for(asyncio.gather(*tails), 60)
        await in_own_thread(follow)  # there is room again

    asyncio.run(scenario())


def test_the_failure_of_a_live_view_is_reported() -> None:
    def fail() -> None:
        raise ValueError("lost")

    async def scenario() -> None:
        for _ in range(MOST_TAILS + 1):
            with pytest.raises(ValueError, match="lost"):
                await in_own_thread(fail)

    asyncio.run(scenario())


def test_the_cluster_is_asked_once_for_many_who_ask_whether_it_is_ready() -> None:
    async def scenario() -> None:
        asked: list[float] = []
        answering = threading.Event()
        now = 100.0

        def ask() -> bool:
            answering.wait()
            asked.append(now)
            return True

        ready = SharedAnswer(ask, 1.0, lambda: now)
        many = [asyncio.create_task(ready.get()) for _ in range(50)]
        await asyncio.sleep(0)
        many[0].cancel()  # one who hangs up takes nothing from the others
        answering.set()
        assert await asyncio.gather(*many[1:]) == [True] * 49
        now = 100.9
        assert await ready.get() and asked == [100.0]
        now = 101.1
        assert await ready.get() and asked == [100.0, 101.1]

    asyncio.run(scenario())
