"""The timers of a shard, in one heap.

Postponing a timer (as every heartbeat does) is only an assignment: its old heap entry stays, and when that is
due the timer is queued again with its new deadline. So the heap has one entry for each timer, not for each
heartbeat. Entries of cancelled timers are removed when they are the majority.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable
from typing import Any

from penstock.coordinator import Outcome, Reply
from penstock.errors import CoordinatorNotAvailable

log = logging.getLogger(__name__)

_SMALL = 256
_AGAIN_MS = 10_000
"""The delay before a failed action is retried."""


class Timer:
    """An action at a time: `action(*args, outcome, now_ms)`. Created once, set many times."""

    __slots__ = ("action", "args", "at", "queued")

    def __init__(self, action: Callable[..., None], *args: Any) -> None:
        self.action = action
        self.args = args
        self.at: int | None = None
        self.queued: int | None = None  # the time of its valid entry in the heap

    def cancel(self) -> None:
        self.at = None


class Timers:
    __slots__ = ("_clean_at", "_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._count = 0
        self._clean_at = _SMALL

    def set(self, timer: Timer, at: int) -> None:
        timer.at = at
        if timer.queued is None or timer.queued > at:
            self._queue(timer, at)

    def _queue(self, timer: Timer, at: int) -> None:
        timer.queued = at
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, timer))
        if len(self._heap) >= self._clean_at:
            self._clean()

    def _clean(self) -> None:
        live = []
        for entry in self._heap:
            queued, _, timer = entry
            if timer.queued == queued:
                if timer.at is None:
                    timer.queued = None
                else:
                    live.append(entry)
        heapq.heapify(live)
        self._heap[:] = live  # in place: `fire` may be iterating over it
        self._clean_at = max(_SMALL, 2 * len(live))

    def next_deadline(self) -> int | None:
        """A time not later than the next timer. Cancelled timers at the top of the heap are dropped, others
        may remain.
        """
        heap = self._heap
        while heap:
            queued, _, timer = heap[0]
            if timer.queued == queued:
                if timer.at is not None:
                    return queued
                timer.queued = None
            heapq.heappop(heap)
        return None

    def fire(self, now_ms: int, outcome: Outcome) -> None:
        """Run the actions that are due. Timers that an action sets to now or earlier fire in the same call.

        A failed action does not affect the decisions of others.
        """
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            queued, _, timer = heapq.heappop(heap)
            if timer.queued != queued:
                continue
            timer.queued = None
            at = timer.at
            if at is None:
                continue
            if at > now_ms:
                self._queue(timer, at)
                continue
            timer.at = None
            self._act(timer, outcome, now_ms)

    def _act(self, timer: Timer, outcome: Outcome, now_ms: int) -> None:
        decided = Outcome()
        try:
            timer.action(*timer.args, decided, now_ms)
        except Exception:  # an error must not affect other groups, which share the shard and its timers
            log.exception("a timer of group %s failed", _group_of(timer))
            # Clients that waited must retry: their responses may depend on the failed decision.
            failure = CoordinatorNotAvailable("the group's timer failed")
            outcome.replies += [Reply(reply.token, failure) for reply in decided.replies]
            if timer.at is None:
                self.set(timer, now_ms + _AGAIN_MS)
            return
        outcome.add(decided)

    def __len__(self) -> int:
        return len(self._heap)


def _group_of(timer: Timer) -> str:
    """For log messages: timers of a group have its id as their first argument."""
    return ascii(getattr(timer.args[0], "group_id", timer.args[0]))[:300] if timer.args else "(all)"
