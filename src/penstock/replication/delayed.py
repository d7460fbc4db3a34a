"""Delayed operations: long-polling fetches, acks=all produces and coordinators, keyed by partition.

An append or a new high watermark wakes the operations of its partition, once per iteration of the event loop
however many appends there were. Each operation has at most one timer. It is checked when it begins to wait,
when it is woken and when it times out, so that no change is missed. The operation itself decides what
completing means.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

Key = tuple[str, int]
"""Topic and partition."""


log = logging.getLogger(__name__)


class DelayedOperation:
    """Waits until `is_satisfied` returns True, it times out, or it is removed. `complete` is called at most
    once for each `watch`."""

    __slots__ = ("keys", "timer", "waiting")

    keys: Collection[Key]
    timer: asyncio.TimerHandle | None
    waiting: bool

    def is_satisfied(self, key: Key) -> bool:
        """Called when partition `key` has changed. Returns whether the wait is over."""
        raise NotImplementedError

    def lost(self, key: Key) -> bool:
        """Called when partition `key` was removed or has another leader. Returns whether the wait is over."""
        return True

    def look(self) -> bool:
        """Called at the beginning and at the end of the wait. Returns whether the operation is satisfied by
        now."""
        return any(self.is_satisfied(key) for key in self.keys)

    def complete(self, expired: bool) -> None:
        raise NotImplementedError


class Watcher:
    """Is notified of every change of a partition immediately, until it is removed."""

    __slots__ = ()

    def changed(self, key: Key) -> None:
        raise NotImplementedError

    def grew(self, key: Key) -> None:
        """Records were appended that no client waits for."""
        raise NotImplementedError

    def lost(self, key: Key) -> None:
        """The partition was removed or has another leader."""
        raise NotImplementedError


class DelayedOperations:
    __slots__ = ("_loop", "_scheduled", "_watchers", "_woken", "waiters")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._scheduled = False
        self._woken: set[Key] = set()
        self.waiters: dict[Key, dict[DelayedOperation, None]] = {}
        self._watchers: dict[Key, tuple[Watcher, ...]] = {}

    def add_watcher(self, key: Key, watcher: Watcher) -> None:
        self._watchers[key] = (*self._watchers.get(key, ()), watcher)

    def remove_watcher(self, key: Key, watcher: Watcher) -> None:
        left = tuple(one for one in self._watchers.get(key, ()) if one is not watcher)
        if left:
            self._watchers[key] = left
        else:
            self._watchers.pop(key, None)

    def watch(self, operation: DelayedOperation, keys: Collection[Key], timeout_ms: float | None) -> None:
        """Completes `operation` now or later; a timeout of None waits without limit."""
        operation.keys = keys
        operation.timer = None
        operation.waiting = True
        for key in keys:
            self.waiters.setdefault(key, {})[operation] = None
        if operation.look():
            self._finish(operation, False)
        elif operation.waiting and timeout_ms is not None:
            operation.timer = self._loop.call_later(timeout_ms / 1000, self._expire, operation)

    def wake(self, key: Key) -> None:
        """The partition has changed. Cheap when no operation waits for it."""
        for watcher in self._watchers.get(key, ()):
            watcher.changed(key)
        if key in self.waiters:
            self._woken.add(key)
            if not self._scheduled:
                self._scheduled = True
                self._loop.call_soon(self._check_woken)

    def note(self, key: Key) -> None:
        """Records were appended that need not be replicated at once, but can be sent with later ones. Wakes
        no operation: the caller wakes the partition a little later, in case nothing else does."""
        for watcher in self._watchers.get(key, ()):
            watcher.grew(key)

    def complete_all(self, key: Key) -> None:
        """The partition was removed or has another leader: complete the operations that wait only for it."""
        for watcher in self._watchers.get(key, ()):
            watcher.lost(key)
        for operation in list(self.waiters.get(key, ())):
            if operation.waiting and operation.lost(key):
                self._finish(operation, False)

    def remove(self, operation: DelayedOperation) -> None:
        """Cancels the operation: its outcome is no longer needed."""
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
                if operation.waiting and self._is_over(operation, key):
                    self._finish(operation, False)

    @staticmethod
    def _is_over(operation: DelayedOperation, key: Key) -> bool:
        try:
            return operation.is_satisfied(key)
        except Exception:  # the border: other operations wait for this partition too. Complete this one
            log.exception("%s-%d: a delayed operation failed", *key)
            return True

    def _expire(self, operation: DelayedOperation) -> None:
        if operation.waiting:
            self._finish(operation, not operation.look())

    def _finish(self, operation: DelayedOperation, expired: bool) -> None:
        if operation.waiting:
            self.remove(operation)
            try:
                operation.complete(expired)
            except Exception:  # the border: other operations wait for this partition too
                log.exception("a delayed operation of %s failed", list(operation.keys)[:3])
