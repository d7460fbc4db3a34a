"""The deadlines of transactional ids, in one heap with few entries.

Each id has one valid entry, its earliest. Postponing a deadline costs nothing: when the entry is due, its
owner checks the actual deadline and sets it again.
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
        """Make the key due at `at` or earlier."""
        queued = self._queued.get(key)
        if queued is None or at < queued:
            self._queued[key] = at
            heapq.heappush(self._heap, (at, key))
            if len(self._heap) > 2 * len(self._queued) + 64:  # too many invalid entries
                self._heap = [(at, key) for key, at in self._queued.items()]
                heapq.heapify(self._heap)

    def next(self) -> int | None:
        heap, queued = self._heap, self._queued
        while heap and queued.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now_ms: int) -> Iterator[str]:
        """Yields each key whose entry is due, and removes the entry."""
        while self._heap and self._heap[0][0] <= now_ms:
            at, key = heapq.heappop(self._heap)
            if self._queued.get(key) == at:
                del self._queued[key]
                yield key
