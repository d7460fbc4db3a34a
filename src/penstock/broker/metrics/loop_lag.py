"""Measures how late the event loop runs, with a timer that is due twice a second."""

from __future__ import annotations

import asyncio

from penstock.broker.metrics.request_times import Histogram, RequestTimes

_INTERVAL_S = 0.5


class LoopLag:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._times = RequestTimes()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def histogram(self) -> Histogram:
        return self._times.total

    def start(self) -> None:
        due = self._loop.time() + _INTERVAL_S
        self._timer = self._loop.call_at(due, self._fired, due)

    def _fired(self, due: float) -> None:
        self._times.waited(max(0.0, self._loop.time() - due))
        self.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
