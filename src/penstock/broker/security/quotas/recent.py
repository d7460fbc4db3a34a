"""A bounded map of measurements by client; the least recently seen client is removed first. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# How many of the oldest are checked for one that is not throttled.
_CANDIDATES = 4


class Recent(Generic[K, V]):
    """`waits_until(value)` is until when its client is throttled. Clients that are still throttled are kept
    longer: a flood of new names does not end a throttle time. The cost is independent of the size.
    """

    def __init__(self, most: int, waits_until: Callable[[V], float]) -> None:
        self._most = most
        self._waits_until = waits_until
        self._values: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: K, value: V, now: float) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._most:
            self._evict(now)

    def _evict(self, now: float) -> None:
        waiting: list[tuple[K, V]] = []
        for _ in range(min(_CANDIDATES, self._most)):
            key, value = self._values.popitem(last=False)
            if self._waits_until(value) <= now:
                break
            waiting.append((key, value))
        else:  # all of them are throttled: remove the one with the shortest time left
            waiting.remove(min(waiting, key=lambda one: self._waits_until(one[1])))
        self._values.update(waiting)
