"""Files and directories that are no longer used, and are deleted after a delay."""

from __future__ import annotations

import os

from penstock.clock import Clock
from penstock.fs import Fs


class DelayedDeletes:
    def __init__(self, clock: Clock, fs: Fs) -> None:
        self._clock = clock
        self._fs = fs
        self._items: list[tuple[int, str]] = []  # (when, path)

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, paths: list[str], delay_ms: int) -> None:
        due = self._clock.now_ms() + delay_ms
        self._items += [(due, path) for path in paths]

    def purge(self) -> None:
        """Delete what is due. Blocking: called in a thread, while the event loop may add more."""
        now = self._clock.now_ms()
        for item in [item for item in self._items if item[0] <= now]:
            path = item[1]
            if os.path.isdir(path):
                self._fs.rmtree(path)
            elif self._fs.exists(path):
                self._fs.unlink(path)
            self._items.remove(item)
