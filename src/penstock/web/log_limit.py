"""Limits warnings that any client can cause without a login: each is logged once in a while, with a count.

uvicorn warns about every request that it cannot parse, and about every CONNECT and Upgrade. Without a limit
any client that reaches the port could fill the disk with them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

_SECONDS = 60.0


class RepeatedWarnings(logging.Filter):
    """Passes the first warning of a text, then one a minute with the number of suppressed ones.

    Texts are log format strings, so their number is small.
    """

    def __init__(self, seconds: float = _SECONDS, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds = seconds
        self._now = now
        self._seen: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        text, now = str(record.msg), self._now()
        at, left_out = self._seen.get(text, (float("-inf"), 0))
        if now - at < self._seconds:
            self._seen[text] = (at, left_out + 1)
            return False
        self._seen[text] = (now, 0)
        if left_out:
            record.msg = f"{text} ({left_out} more since the last such line)"
        return True


def limit_warnings(logger: logging.Logger) -> None:
    """For all servers of a process: they share uvicorn's logger."""
    if not any(isinstance(each, RepeatedWarnings) for each in logger.filters):
        logger.addFilter(RepeatedWarnings())
