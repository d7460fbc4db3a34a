"""Something that is read again and again in a thread of its own, while somebody looks."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.admin.failure import CommandFailed
from penstock.errors import PenstockError

log = logging.getLogger(__name__)

PAUSE_SECONDS = 2.0
_COST = 20
"""The pause after an expensive sample, as a multiple of its duration."""
_CHEAP_SECONDS = 0.5
_LONGEST_PAUSE = 30.0
_WATCHED_SECONDS = 30.0
"""How long after its last request a page counts as being looked at."""

T = TypeVar("T")


def pause_after(cost: float) -> float:
    """Seconds until the next sample, after one that took `cost` seconds."""
    return min(max(PAUSE_SECONDS, _COST * (cost - _CHEAP_SECONDS)), _LONGEST_PAUSE)


class Repeated(ABC, Generic[T]):
    """`last` is the newest sample, `before` the one before it, `failure` why the last attempt failed."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._wanted_until = 0.0
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._fresh = threading.Condition(self._lock)
        self.last: T | None = None
        self.before: T | None = None
        self.failure: str | None = None

    @abstractmethod
    def take(self, now: float) -> T:
        """One sample. CommandFailed says why there is none."""

    def keep(self, old: T, new: T) -> None:
        """For what becomes of two samples; called under the lock."""

    def rest(self) -> None:
        """Nobody looks any more: the thread that has taken the samples calls it as its last."""

    def watch(self) -> None:
        """Keep sampling for a while, because somebody looks."""
        with self._lock:
            self._wanted_until = self._clock() + _WATCHED_SECONDS
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="console-samples", daemon=True)
                self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait until there is a first sample, or a failure."""
        with self._fresh:
            self._fresh.wait_for(lambda: self.last is not None or self.failure is not None, seconds)

    def close(self) -> None:
        self._closed.set()

    def _run(self) -> None:
        try:
            self._sample_on()
        finally:
            self.rest()

    def _sample_on(self) -> None:
        while not self._closed.is_set():
            begun = time.monotonic()
            try:
                sample: T | None = self.take(self._clock())
                failure = None
            except (CommandFailed, PenstockError) as error:
                sample, failure = None, getattr(error, "message", None) or str(error)
            except Exception as error:  # if the thread died, a page would wait forever
                log.exception("a sample failed")
                sample, failure = None, str(error)
            cost = time.monotonic() - begun
            with self._fresh:
                self.failure = failure
                if sample is not None:
                    if self.last is not None:
                        self.keep(self.last, sample)
                    self.before, self.last = self.last, sample
                self._fresh.notify_all()
                if self._clock() > self._wanted_until:
                    self._thread = None
                    self.before = None  # a rate over the time when nobody looked is outdated
                    return
            self._closed.wait(pause_after(cost) if self.before is not None else PAUSE_SECONDS)
