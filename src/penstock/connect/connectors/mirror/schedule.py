"""Periodic jobs of a connector: each with its interval, executed one after the other."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from penstock.client import AuthenticationFailed, BadClientSetting, ClientError, TlsFailed
from penstock.errors import ApiError

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 5.0
_FATAL = (AuthenticationFailed, BadClientSetting, TlsFailed)


@dataclass(slots=True)
class _Job:
    doing: str
    work: Callable[[], None]
    interval: float
    due: float


class Schedule:
    """A failed job is retried soon; permanent login and setting errors are raised."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._jobs: list[_Job] = []

    def every(self, seconds: float, doing: str, work: Callable[[], None]) -> None:
        """Repeat a job; `doing` begins the log message when it fails: "replicating the ACLs of topics"."""
        self._jobs.append(_Job(doing, work, seconds, self._clock()))

    def run(self) -> None:
        """Run the jobs that are due."""
        for job in self._jobs:
            if self._clock() < job.due:
                continue
            try:
                job.work()
                job.due = self._clock() + job.interval
            except _FATAL:
                raise
            except (ClientError, ApiError) as error:
                job.due = self._clock() + min(job.interval, _AGAIN_SECONDS)
                log.warning("%s failed, repeating: %s", job.doing, error)
