"""Back-pressure: how many offsets a batch may have to take about the target duration.

Computed only from the durations of previous batches. A batch has a fixed cost, and a cost for each offset;
both are estimated from the last few batches (least squares, older ones have less weight). The limit at most
doubles or halves from one batch to the next, so that one slow batch, or one wrong estimate, has little
effect.
"""

from __future__ import annotations

FIRST_LIMIT = 10_000
LEAST = 100
_FORGET = 0.7
_ALIKE = 0.05
_PROBE = 1.2


class BatchSizer:
    """The limit of a query's batches. `observe` each batch, then read `limit`."""

    def __init__(self, target_s: float, ceiling: int | None = None) -> None:
        self._target = target_s
        self._ceiling = ceiling
        self.limit = FIRST_LIMIT if ceiling is None else min(FIRST_LIMIT, ceiling)
        # Weighted sums over the batches: 1, size, seconds, size², size·seconds.
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)

    def observe(self, size: int, seconds: float) -> None:
        """A batch of `size` offsets took `seconds`."""
        if size <= 0 or seconds <= 0:
            return
        new = (1.0, size, seconds, size * size, size * seconds)
        self._sums = tuple(_FORGET * old + one for old, one in zip(self._sums, new))  # type: ignore[assignment]
        if size < self.limit / 2 and seconds <= self._target:
            return  # there was no more to read: the limit may be right
        wanted = min(max(self._wanted(), self.limit / 2), self.limit * 2)
        limit = max(int(wanted), LEAST)
        self.limit = limit if self._ceiling is None else min(limit, self._ceiling)

    def _wanted(self) -> float:
        count, sizes, seconds, squares, products = self._sums
        mean_size, mean_seconds = sizes / count, seconds / count
        variance = squares / count - mean_size**2
        fixed, each = 0.0, mean_seconds / mean_size
        if variance <= (_ALIKE * mean_size) ** 2:
            if mean_seconds <= self._target * (1 + _ALIKE):
                # With similar sizes the cost of an offset cannot be estimated: a part of the time may have
                # been spent waiting for the trigger. A larger batch will show it.
                return max(self.limit * _PROBE, self._target / each)
        else:
            each = (products / count - mean_size * mean_seconds) / variance
            fixed = mean_seconds - each * mean_size
            if fixed < 0:
                fixed, each = 0.0, mean_seconds / mean_size
        if each <= 0:
            # Larger batches took no longer: it is not their size that takes the time (a trigger interval,
            # another query). Smaller ones would be no shorter.
            return self.limit * _PROBE
        # If the fixed cost exceeds the target, small batches would only reduce throughput.
        return max(self._target - fixed, self._target / 2) / each
