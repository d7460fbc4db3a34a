"""Operations that wait: long-polling fetches and acks=all produces, keyed by the partitions they wait for.

An append or a new high watermark wakes the waiters of its partition, once in a turn of the loop however
many appends there were; each waiter has one timer of its own. Completing is the waiter's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

Key = tuple[str, int]
"""Topic and partition."""


class DelayedOperation:
    """Waits until `is_satisfied`, its time is over, or it is removed; `complete` is called at most once."""

    __slots__ = ("keys", "timer", "waiting")

    keys: Collection[Key]
    timer: asyncio.TimerHandle | None
    waiting: bool

    def is_satisfied(self, key: Key) -> bool:
        """Something happened in partition `key`: is the wait over?"""
        raise NotImplementedError

    def complete(self, expired: bool) -> None:
        raise NotImplementedError


class DelayedOperations:
    __slots__ = ("_loop", "_scheduled", "_woken", "waiters")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._scheduled = False
        self._woken: set[Key] = set()
        self.waiters: dict[Key, dict[DelayedOperation, None]] = {}

    def watch(self, operation: DelayedOperation, keys: Collection[Key], timeout_ms: int) -> None:
        operation.keys = keys
        operation.waiting = True
        for key in keys:
            self.waiters.setdefault(key, {})[operation] = None
        operation.timer = self._loop.call_later(timeout_ms / 1000, self._finish, operation, True)

    def wake(self, key: Key) -> None:
        """Something happened in this partition. Cheap when nobody waits for it."""
        if key in self.waiters:
            self._woken.add(key)
            if not self._scheduled:
                self._scheduled = True
                self._loop.call_soon(self._check_woken)

    def complete_all(self, key: Key) -> None:
        """The partition is gone or has changed hands: what waits for it is answered with what there is."""
        for operation in list(self.waiters.get(key, ())):
            self._finish(operation, False)

    def remove(self, operation: DelayedOperation) -> None:
        """Nobody wants the outcome any more."""
        if not operation.waiting:
            return
        operation.waiting = False
        if operation.timer is not None:
            operation.timer.cancel()
            operation.timer = None
        waiters = self.waiters
        for key in operation.keys:
            others = waiters.get(key)
            if others is not None:
                others.pop(operation, None)
                if not others:
                    del waiters[key]

    def _check_woken(self) -> None:
        self._scheduled = False
        woken, self._woken = self._woken, set()
        for key in woken:
            for operation in list(self.waiters.get(key, ())):
                if operation.waiting and operation.is_satisfied(key):
                    self._finish(operation, False)

    def _finish(self, operation: DelayedOperation, expired: bool) -> None:
        if operation.waiting:
            self.remove(operation)
            operation.complete(expired)
