"""Rates as Kafka measures them for quotas, and the time until a rate is within its bound again. Pure."""

from __future__ import annotations

from collections import deque


class SampledRate:
    """Of the last `samples` windows of `window_ms`: what was recorded in them, in a second.

    A client that is new is measured as if it had been silent in all windows but one before: so its first
    burst is not taken for its rate. `waits_until` is until when those who have this rate are to wait.
    """

    __slots__ = ("_samples", "_values", "_window_ms", "waits_until")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self.waits_until = 0.0
        self._values: deque[list[float]] = deque()  # of pairs: when the sample began, and its sum

    def record(self, value: float, now_ms: float) -> None:
        values = self._values
        if not values or now_ms - values[-1][0] >= self._window_ms:
            values.append([now_ms, value])
        else:
            values[-1][1] += value

    def measure(self, now_ms: float) -> tuple[float, float]:
        """The rate in a second, and the milliseconds that it is measured over."""
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
        """How long nothing more may be recorded for the rate to be the bound; 0 where it is within."""
        rate, elapsed = self.measure(now_ms)
        return round((rate - bound) / bound * elapsed) if rate > bound else 0


class TokenBucket:
    """Tokens that come at a rate, up to a burst. What is taken may exceed what is there, once.

    `waits_until` is until when nothing more may be taken.
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
        """How long it takes until something may be taken again."""
        tokens = self.tokens(rate, now_ms)
        return 0 if tokens >= 0 else round(-tokens / rate * 1000)
