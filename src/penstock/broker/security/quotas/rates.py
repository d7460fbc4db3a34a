"""Rates as Kafka measures them for quotas, and the time until a rate is within its bound again. Pure."""

from __future__ import annotations

from collections import deque


class SampledRate:
    """The rate per second over the last `samples` windows of `window_ms`.

    A new client is measured as if it had been silent in all previous windows but one, so that its first burst
    does not count as its rate. `waits_until` is until when the clients with this rate are throttled.
    """

    __slots__ = ("_samples", "_values", "_window_ms", "waits_until")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self.waits_until = 0.0
        self._values: deque[list[float]] = deque()  # pairs: start of the sample, and its sum

    def record(self, value: float, now_ms: float) -> None:
        values = self._values
        if not values or now_ms - values[-1][0] >= self._window_ms:
            values.append([now_ms, value])
        else:
            values[-1][1] += value

    def measure(self, now_ms: float) -> tuple[float, float]:
        """The rate per second, and the milliseconds over which it is measured."""
        values, window = self._values, self._window_ms
        oldest = now_ms - self._samples * window
        while values and values[0][0] <= oldest:
            values.popleft()
        if not values:
            return 0.0, (self._samples - 1) * window or window
        elapsed = now_ms - values[0][0]
        full = int(elapsed // window)
        if full < self._samples - 1:
            elapsed += (self._samples - 1 - full) * window
        elapsed = elapsed or window
        return sum([value for _, value in values]) * 1000 / elapsed, elapsed

    def throttle_ms(self, bound: float, now_ms: float) -> int:
        """For how long nothing may be recorded until the rate is within the bound; 0 if it is."""
        rate, elapsed = self.measure(now_ms)
        return round((rate - bound) / bound * elapsed) if rate > bound else 0


class TokenBucket:
    """A token bucket. One request may take more tokens than available.

    `waits_until` is until when no tokens may be taken.
    """

    __slots__ = ("_burst_s", "_last_ms", "_tokens", "waits_until")

    def __init__(self, burst_s: float, rate: float, now_ms: float) -> None:
        """`burst_s` is how many seconds' worth of tokens are kept."""
        self._burst_s = burst_s
        self._tokens = burst_s * rate
        self._last_ms = now_ms
        self.waits_until = 0.0

    def tokens(self, rate: float, now_ms: float) -> float:
        earned = max(0.0, now_ms - self._last_ms) / 1000 * rate
        self._tokens = min(self._burst_s * rate, self._tokens + earned)
        self._last_ms = now_ms
        return self._tokens

    def take(self, count: float, rate: float, now_ms: float) -> None:
        self.tokens(rate, now_ms)
        self._tokens -= count

    def throttle_ms(self, rate: float, now_ms: float) -> int:
        """The time until tokens may be taken again."""
        tokens = self.tokens(rate, now_ms)
        return 0 if tokens >= 0 else round(-tokens / rate * 1000)
