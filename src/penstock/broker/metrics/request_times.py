"""Request times of an API: histograms with buckets of powers of two microseconds."""

from __future__ import annotations

from dataclasses import dataclass

_BUCKETS = 32
_LAST = _BUCKETS - 1


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts by bucket (below 1, 2, 4, 8, … µs, and not in a lower bucket), and the sum in seconds."""

    buckets: list[int]
    seconds: float

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram([a + b for a, b in zip(self.buckets, other.buckets)], self.seconds + other.seconds)


class RequestTimes:
    """Request times of one API. The time of an immediate response is the time that the loop worked on it. For
    the others, the work before the wait (`begun`) and the time until the response (`waited`) are counted
    separately."""

    __slots__ = ("_begun", "_begun_s", "_waited", "_waited_s", "buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * _BUCKETS  # of immediate responses; the dispatcher increments them directly
        self.seconds = 0.0
        self._begun, self._begun_s = [0] * _BUCKETS, 0.0
        self._waited, self._waited_s = [0] * _BUCKETS, 0.0

    def begun(self, seconds: float) -> None:
        self._begun[bucket(seconds)] += 1
        self._begun_s += seconds

    def waited(self, seconds: float) -> None:
        self._waited[bucket(seconds)] += 1
        self._waited_s += seconds

    @property
    def count(self) -> int:
        """The number of requests, including those that still wait."""
        return sum(self.buckets) + sum(self._begun)

    @property
    def local(self) -> Histogram:
        """The time that the event loop worked on requests, until the response or the wait."""
        return Histogram(self.buckets, self.seconds) + Histogram(self._begun, self._begun_s)

    @property
    def total(self) -> Histogram:
        """The time from request to response."""
        return Histogram(self.buckets, self.seconds) + Histogram(self._waited, self._waited_s)


def bucket(seconds: float) -> int:
    return min(int(seconds * 1e6).bit_length(), _LAST)
