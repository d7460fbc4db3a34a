"""Rate limits: a token bucket for each key. Pure: time is an argument."""

from __future__ import annotations

from collections import OrderedDict

_MOST_KEYS = 10_000


class RateLimit:
    """`rate` per second and `burst` at once, for each key. The least recently used key is forgotten first."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = max(burst, 1.0)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, key: str, now: float) -> float:
        """Seconds until one more is allowed; 0 if it is allowed now."""
        left = self._left(key, now)
        return 0.0 if left >= 1.0 else (1.0 - left) / self._rate

    def take(self, key: str, now: float) -> None:
        self._buckets[key] = (max(self._left(key, now) - 1.0, 0.0), now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > _MOST_KEYS:
            self._buckets.popitem(last=False)

    def _left(self, key: str, now: float) -> float:
        left, at = self._buckets.get(key, (self._burst, now))
        return min(self._burst, left + (now - at) * self._rate)
