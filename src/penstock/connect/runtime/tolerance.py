"""Errors of single records: retried, then skipped or failed, logged, and written to the dead-letter topic."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.connect.concealment import conceal
from penstock.connect.errors import ConnectError, DataError, RetriableError
from penstock.connect.records import Origin

if TYPE_CHECKING:
    from confluent_kafka import Producer

log = logging.getLogger(__name__)
T = TypeVar("T")
_FIRST_DELAY = 0.3
_HEADER = "__connect.errors."


class Tolerance:
    """The error tolerance of one task. `stopping` ends the wait between retries."""

    def __init__(
        self,
        connector: str,
        task: int,
        settings: Mapping[str, Any],
        *,
        stopping: Callable[[float], bool],
        dead_letters: Producer | None = None,
    ) -> None:
        self._connector = connector
        self._task = task
        self._all = settings["errors.tolerance"] == "all"
        self._timeout = settings["errors.retry.timeout"] / 1000
        self._most = settings["errors.retry.delay.max.ms"] / 1000
        self._log = settings["errors.log.enable"]
        self._log_records = settings["errors.log.include.messages"]
        self._topic = settings.get("errors.deadletterqueue.topic.name") or ""
        self._context = settings.get("errors.deadletterqueue.context.headers.enable", False)
        self._producer = dead_letters
        self._wait = stopping
        self.keeps = bool(self._topic) and dead_letters is not None
        """Whether there is a dead letter topic."""
        self.skipped = 0

    def retried(self, work: Callable[[], T], stage: str) -> T:
        """The result, after as many tries as `errors.retry.timeout` allows; raises the last error."""
        begun = time.monotonic()
        delay = _FIRST_DELAY
        while True:
            try:
                return work()
            except RetriableError:
                left = self._timeout - (time.monotonic() - begun)
                if self._timeout >= 0 and left <= 0:
                    raise
                pause = min(delay, self._most) if self._timeout < 0 else min(delay, self._most, left)
                if self._wait(pause):
                    raise
                delay *= 2

    def failed(self, error: Exception, stage: str, executor: str, origin: Origin | None, shown: Any) -> None:
        """Skip a record, or raise so that the task fails."""
        if self._log:
            self._write_log(error, stage, executor, origin, shown)
        if origin is not None and self.keeps:
            self._keep(error, stage, executor, origin)
        if not self._all:
            raise ConnectError("Tolerance exceeded in error handler") from error
        self.skipped += 1

    def _write_log(
        self, error: Exception, stage: str, executor: str, origin: Origin | None, shown: Any
    ) -> None:
        place = (
            "" if origin is None else f", in topic '{origin[0]}', partition {origin[1]}, offset {origin[2]}"
        )
        what = f" Record: {shown!r}" if self._log_records else ""
        log.error(
            "Error encountered in task %s-%d. Executing stage '%s' with class '%s'%s.%s %s",
            self._connector,
            self._task,
            stage,
            executor,
            place,
            what,
            error,
        )

    def _keep(self, error: Exception, stage: str, executor: str, origin: Origin) -> None:
        topic, partition, offset, key, value, headers = origin
        kept: Any = list(headers)
        if self._context:
            trace = conceal("".join(traceback.format_exception(error)))
            context = {
                "topic": topic,
                "partition": str(partition),
                "offset": str(offset),
                "connector.name": self._connector,
                "task.id": str(self._task),
                "stage": stage,
                "class.name": executor,
                "exception.class.name": f"{type(error).__module__}.{type(error).__qualname__}",
                "exception.message": conceal(str(error)),
                "exception.stacktrace": trace,
            }
            kept += [(_HEADER + name, text.encode()) for name, text in context.items()]
        assert self._producer is not None
        while True:
            try:
                self._producer.produce(self._topic, value, key, headers=kept)
                return
            except BufferError:
                self._producer.poll(0.1)


def as_data_error(error: Exception, what: str) -> Exception:
    """An error of a converter or a transform, as a DataError."""
    if isinstance(error, ConnectError):
        return error
    return DataError(f"{what}: {type(error).__name__}: {error}")
