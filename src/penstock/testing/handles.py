"""The parts of a `PenstockBroker` that a test controls: its clock and its faults on the wire."""

from __future__ import annotations

from typing import Any, Protocol


class Call(Protocol):
    def __call__(self, op: str, *, timeout: float = ..., **arguments: Any) -> Any: ...


class BrokerClock:
    """The broker's clock: the machine's time plus what the test has advanced it by, also after a restart."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.advanced_ms = 0

    def advance(self, seconds: float = 0, *, ms: int = 0) -> None:
        """Advances the broker's time; when it returns, everything that became due has been done.

        That includes retention, compaction, flushes, waiting fetches, idle connections and all other timeouts
        of the broker. The clients' own time does not change.
        """
        total_ms = ms + round(seconds * 1000)
        self._call("advance", timeout=90.0, ms=total_ms)
        self.advanced_ms += total_ms

    def now_ms(self) -> int:
        """The time of the broker's clock, in milliseconds since the epoch."""
        now: int = self._call("now_ms")
        return now


class Faults:
    """Faults on the wire. `api` is Kafka's name, e.g. "Produce"; "*" is all but ApiVersions.

    Rules apply in the order of creation, each `times` times (None: until cleared), after the first `skip`
    requests that match it. A restart of the broker removes them.
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    def fail(self, api: str, error: str | int, times: int | None = 1, *, skip: int = 0) -> None:
        """Responds with an error, by Kafka's name or code, and does not handle the request."""
        self._add("fail", api, times, skip, error=error)

    def delay(self, api: str, ms: int, times: int | None = 1, *, skip: int = 0) -> None:
        """Handles the request `ms` milliseconds of the broker's clock later."""
        self._add("delay", api, times, skip, delay_ms=ms)

    def drop(self, api: str, times: int | None = 1, *, after: bool = False, skip: int = 0) -> None:
        """Closes the connection instead of responding.

        The request is not handled; with `after=True` it is, and only the response is lost: the case for which
        retries must be idempotent.
        """
        self._add("drop_after" if after else "drop", api, times, skip)

    def clear(self) -> None:
        """Removes all rules."""
        self._call("clear_faults")

    @property
    def hits(self) -> dict[str, int]:
        """How many requests of each API were hit by a fault."""
        counts: dict[str, int] = self._call("fault_hits")
        return counts

    def _add(self, kind: str, api: str, times: int | None, skip: int, **details: Any) -> None:
        self._call("add_fault", kind=kind, api=api, times=times, skip=skip, **details)
