"""The context of a task's process: its identity, its requests, and how it waits."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.connect.concealment import conceal
from penstock.connect.runtime.channel import Channel
from penstock.connect.runtime.clients import WorkerSettings

_LONGEST_PAUSE = 60.0
_STOP_GRACE_SECONDS = 4.0


@dataclass(slots=True)
class TaskSpec:
    connector: str
    task: int
    connector_config: Mapping[str, str]
    config: Mapping[str, str]
    worker: WorkerSettings
    channel: Channel
    stopping: threading.Event = field(default_factory=threading.Event)
    paused: threading.Event = field(default_factory=threading.Event)
    stopped_at: float | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def stop(self) -> None:
        self.stopped_at = time.monotonic()
        self.stopping.set()
        self._tell()

    def pause(self, paused: bool) -> None:
        if paused:
            self.paused.set()
        else:
            self.paused.clear()
        self._tell()

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def wait_while_paused(self) -> None:
        self.channel.send("paused")
        with self._changed:
            while self.paused.is_set() and not self.stopping.is_set():
                self._changed.wait()
        if not self.stopping.is_set():
            self.channel.send("running")

    def abandoned(self) -> bool:
        """Whether the task was asked to stop so long ago that it no longer waits."""
        return self.stopped_at is not None and time.monotonic() - self.stopped_at > _STOP_GRACE_SECONDS


class RetriedCalls:
    """The backoff between calls that raise RetriableError; the status shows the error until one succeeds."""

    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec
        self._failures = 0

    def pause(self, error: Exception) -> float:
        """Report the error; returns how long to wait."""
        trace = conceal("".join(traceback.format_exception(error)))
        self._spec.channel.send("retrying", trace=trace)
        pause: float = min(_LONGEST_PAUSE, 0.5 * 2**self._failures)
        self._failures += 1
        return pause

    def wait(self, error: Exception) -> None:
        self._spec.stopping.wait(self.pause(error))

    def succeeded(self) -> None:
        if self._failures:
            self._failures = 0
            self._spec.channel.send("running")
