"""Time as an argument: whoever needs it takes a Clock, so that a test can move it.

`now_ms` is wall time (record timestamps, retention); `monotonic` never goes back (timeouts, waits).
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""
        ...


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # no call in between: each request looks at it twice


class ManualClock:
    """Stands still until it is advanced."""

    __slots__ = ("_elapsed_ms", "_start_ms")

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = now_ms
        self._elapsed_ms = 0

    def now_ms(self) -> int:
        return self._start_ms + self._elapsed_ms

    def monotonic(self) -> float:
        return self._elapsed_ms / 1000

    def advance(self, ms: int) -> None:
        _check_forward(ms)
        self._elapsed_ms += ms


class SteadyClock:
    """Wall time as it was when this was made, and from then on what has passed: it never jumps.

    For deadlines that are kept as wall time: they come in time also when the machine's clock is set back.
    """

    __slots__ = ("_clock", "_start_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_ms = clock.now_ms() - int(clock.monotonic() * 1000)

    def now_ms(self) -> int:
        return self._start_ms + int(self._clock.monotonic() * 1000)

    def monotonic(self) -> float:
        return self._clock.monotonic()


class ShiftedClock:
    """A live clock plus an offset that grows with `advance`; both readings jump together."""

    __slots__ = ("_base", "_offset_ms")

    def __init__(self, base: Clock | None = None) -> None:
        self._base: Clock = base if base is not None else SystemClock()
        self._offset_ms = 0

    def now_ms(self) -> int:
        return self._base.now_ms() + self._offset_ms

    def monotonic(self) -> float:
        return self._base.monotonic() + self._offset_ms / 1000

    def advance(self, ms: int) -> None:
        _check_forward(ms)
        self._offset_ms += ms


def _check_forward(ms: int) -> None:
    if ms < 0:
        raise ValueError(f"a clock only moves forward, not by {ms} ms")
