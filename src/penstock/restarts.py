"""When something that is kept running is started again after a failure, and which failure is shown. Pure.

Continuous queries, flows of pipelines and processes of connectors are supervised by these rules. Each
supervisor starts, watches and stops in its own way, and says here what it has seen and when.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long something that has failed waits: twice as long each time, up to a limit."""

    first: float = 1.0
    limit: float = 60.0
    healthy_after: float = 60.0
    quiet_after: float = 60.0
    """After so many seconds of a run the last failure is no longer shown."""
    attempts: int | None = None
    """Failures in a row after which it is not started again."""

    def delay(self, failures: int, luck: float) -> float:
        """After the nth failure in a row (from 1); `luck` in [0, 1] spreads those that failed together."""
        whole: float = min(self.limit, self.first * 2.0 ** min(failures - 1, 30))
        return whole * (0.75 + 0.25 * luck)


@dataclass(slots=True)
class Restarts:
    """The failures of one thing, and when it is due to be started."""

    backoff: Backoff = field(default_factory=Backoff)
    failures: int = 0
    """In a row."""
    total: int = 0
    error: str | None = None
    """The last failure, until a later run has shown itself good."""
    due: float = 0.0
    since: float = 0.0
    """When its run began."""
    _running: bool = False

    def started(self, now: float) -> None:
        self.since, self._running = now, True

    def works(self, now: float, *, proven: bool = False) -> None:
        """It is still running; `proven` if this run has done some of its work."""
        if now - self.since > self.backoff.healthy_after:
            self.failures = 0
        if proven or now - self.since > self.backoff.quiet_after:
            self.error = None

    def failed(self, error: str, now: float, luck: float) -> float | None:
        """It ended, or could not be started. The seconds until it is restarted; None: not automatically."""
        if self._running:
            self.works(now)
        self._running = False
        self.error = error
        self.total += 1
        if self.backoff.attempts is not None and self.failures >= self.backoff.attempts:
            return None
        self.failures += 1
        delay = self.backoff.delay(self.failures, luck)
        self.due = now + delay
        return delay

    def again(self, at: float = 0.0) -> None:
        """It ended, and that is no failure: it is started again then."""
        self._running, self.due = False, at

    def forget(self) -> None:
        """A restart by a person: failures are counted from zero again."""
        self.failures, self.error = 0, None
