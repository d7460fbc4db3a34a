"""Operations that wait: woken once in a turn, expired by their timer, gone when nobody wants them."""

from __future__ import annotations

import asyncio

import pytest

from penstock.replication.delayed import DelayedOperation, DelayedOperations, Key

A: Key = ("a", 0)
B: Key = ("b", 0)


class Waiter(DelayedOperation):
    def __init__(self, satisfied: bool = True) -> None:
        self.satisfied = satisfied
        self.checks: list[Key] = []
        self.completed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def is_satisfied(self, key: Key) -> bool:
        self.checks.append(key)
        return self.satisfied

    def complete(self, expired: bool) -> None:
        self.completed.set_result(expired)


def operations() -> DelayedOperations:
    return DelayedOperations(asyncio.get_running_loop())


def test_a_waiter_is_woken_once_for_many_appends_in_a_turn() -> None:
    async def main() -> None:
        delayed, waiter = operations(), Waiter(satisfied=False)
        delayed.watch(waiter, [A, B], 60_000)
        waiter.checks.clear()
        for _ in range(10):
            delayed.wake(A)
        await asyncio.sleep(0)
        assert waiter.checks == [A]
        delayed.remove(waiter)

    asyncio.run(main())


def test_a_satisfied_waiter_completes_and_leaves_every_key() -> None:
    async def main() -> None:
        delayed, waiter = operations(), Waiter(satisfied=False)
        delayed.watch(waiter, [A, B], 60_000)
        waiter.satisfied = True
        delayed.wake(B)
        assert await waiter.completed is False
        assert delayed.waiters == {}

    asyncio.run(main())


def test_time_that_is_over_completes_a_waiter_as_expired() -> None:
    async def main() -> None:
        delayed, waiter = operations(), Waiter(satisfied=False)
        delayed.watch(waiter, [A], 1)
        assert await waiter.completed is True
        assert delayed.waiters == {}

    asyncio.run(main())


def test_what_happened_before_the_wait_began_ends_it_at_once() -> None:
    async def main() -> None:
        delayed, waiter = operations(), Waiter()
        delayed.watch(waiter, [A, B], 60_000)
        assert waiter.completed.result() is False
        assert delayed.waiters == {}

    asyncio.run(main())


def test_what_nobody_was_woken_for_is_seen_when_the_time_is_over() -> None:
    async def main() -> None:
        delayed, waiter = operations(), Waiter(satisfied=False)
        delayed.watch(waiter, [A], 1)
        waiter.satisfied = True
        assert await waiter.completed is False

    asyncio.run(main())


def test_a_wait_without_an_end_has_no_timer() -> None:
    async def main() -> None:
        delayed, waiter = operations(), Waiter(satisfied=False)
        delayed.watch(waiter, [A], None)
        assert waiter.timer is None
        waiter.satisfied = True
        delayed.wake(A)
        assert await waiter.completed is False

    asyncio.run(main())


def test_a_partition_that_is_gone_completes_its_waiters_unasked() -> None:
    async def main() -> None:
        delayed, waiter, other = operations(), Waiter(satisfied=False), Waiter(satisfied=False)
        delayed.watch(waiter, [A], 60_000)
        delayed.watch(other, [B], 60_000)
        delayed.complete_all(A)
        assert await waiter.completed is False
        assert not other.completed.done()
        delayed.remove(other)

    asyncio.run(main())


class Broken(Waiter):
    def is_satisfied(self, key: Key) -> bool:
        if self.satisfied:
            raise ZeroDivisionError
        return False

    def complete(self, expired: bool) -> None:
        super().complete(expired)
        raise ZeroDivisionError


@pytest.mark.promise(
    "hostile input",
    "A delayed request or a response that fails closes only the connection of its own client and delays "
    "no other request",
)
def test_a_waiter_that_fails_keeps_no_other_from_being_woken() -> None:
    async def main() -> None:
        delayed = operations()
        waiters = [Waiter(satisfied=False), Broken(satisfied=False), Waiter(satisfied=False)]
        for waiter in waiters:
            delayed.watch(waiter, [A], 60_000)
            waiter.satisfied = True
        delayed.wake(A)
        assert [await asyncio.wait_for(waiter.completed, 30) for waiter in waiters] == [False] * 3
        assert delayed.waiters == {}

    asyncio.run(main())


def test_a_removed_waiter_is_never_completed() -> None:
    async def main() -> None:
        delayed, waiter = operations(), Waiter(satisfied=False)
        delayed.watch(waiter, [A], 1)
        waiter.satisfied = True
        delayed.wake(A)
        delayed.remove(waiter)
        await asyncio.sleep(0.01)
        assert not waiter.completed.done()
        delayed.remove(waiter)

    asyncio.run(main())


def test_waking_a_partition_that_nobody_waits_for_costs_nothing() -> None:
    async def main() -> None:
        delayed = operations()
        delayed.wake(A)
        assert delayed._woken == set()

    asyncio.run(main())
