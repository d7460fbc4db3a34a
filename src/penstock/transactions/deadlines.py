"""When each transactional id wants attention, in one heap with few entries.

An id has one entry that counts, its earliest. Putting a deadline off costs nothing: when the entry comes up,
its owner looks at what is really due and sets it again.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator


class Deadlines:
    __slots__ = ("_heap", "_queued")

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._queued: dict[str, int] = {}

    def set(self, key: str, at: int) -> None:
        """Come up not later than `at`."""
        queued = self._queued.get(key)
        if queued is None or at < queued:
            self._queued[key] = at
            heapq.heappush(self._heap, (at, key))
            if len(self._heap) > 2 * len(self._queued) + 64:  # entries that no longer count, far ahead
                self._heap = [(at, key) for key, at in self._queued.items()]
                heapq.heapify(self._heap)

    def next(self) -> int | None:
        heap, queued = self._heap, self._queued
        while heap and queued.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now_ms: int) -> Iterator[str]:
        """Each key whose entry has come up; its entry is gone when it is given."""
        while self._heap and self._heap[0][0] <= now_ms:
            at, key = heapq.heappop(self._heap)
            if self._queued.get(key) == at:
                del self._queued[key]
                yield key
