"""How long the requests of one API took: counted in buckets of powers of two of a microsecond."""

from __future__ import annotations

from dataclasses import dataclass

_BUCKETS = 32
_LAST = _BUCKETS - 1


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many took less than 1, 2, 4, 8, … µs and no less than the bucket before; and the sum of seconds."""

    buckets: list[int]
    seconds: float

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram([a + b for a, b in zip(self.buckets, other.buckets)], self.seconds + other.seconds)


class RequestTimes:
    """Of one API. An immediate answer took as long as the loop worked on it. For the others, the
    time until there was an answer (`waited`) is counted apart from the work before the wait (`begun`)."""

    __slots__ = ("_begun", "_begun_s", "_waited", "_waited_s", "buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * _BUCKETS  # of answers at once; the dispatcher counts here itself
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
        """Requests that were begun."""
        return sum(self.buckets) + sum(self._begun)

    @property
    def local(self) -> Histogram:
        """The work of the event loop until there was an answer or a wait."""
        return Histogram(self.buckets, self.seconds) + Histogram(self._begun, self._begun_s)

    @property
    def total(self) -> Histogram:
        """From the request to its answer."""
        return Histogram(self.buckets, self.seconds) + Histogram(self._waited, self._waited_s)


def bucket(seconds: float) -> int:
    return min(int(seconds * 1e6).bit_length(), _LAST)
