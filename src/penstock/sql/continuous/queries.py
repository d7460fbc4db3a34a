"""The queries of this server: started, watched by one thread, restarted when they fail, stopped.

A failed query is restarted from its checkpoint after a backoff (1 s to 60 s); the others keep running.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from penstock.pipelines.failures import cause, reason
from penstock.restarts import Backoff, Restarts
from penstock.sql.catalog.catalog import QueryDef
from penstock.sql.continuous.preparing import Analysed
from penstock.sql.continuous.running import Running, TablesChanged

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.25
_AT_ONCE = 2
"""The maximum number of concurrent starts. Each starts a process within 10 s (Spark's limit): all at once
they would time out.
"""
_BEGIN_SECONDS = 30.0
_BEGIN_LOOK_SECONDS = 0.05


DISCONNECTED = "DISCONNECTED"


@dataclass(frozen=True, slots=True)
class Status:
    """Of one query: `state` is STARTING, RUNNING, FAILED (it will be tried again), PAUSED or STOPPED; or
    DISCONNECTED where it would run if the cluster answered."""

    state: str
    error: str | None = None
    failures: int = 0


class _Entry:
    """A query that should run. Its fields are changed under the lock of the supervisor."""

    def __init__(self, definition: QueryDef, found: Analysed | None, life: Restarts) -> None:
        self.definition = definition
        self.found = found
        """For its first start only: what Spark has analysed reads tables as they were then."""
        self.running: Running | None = None
        self.starting = False
        self.unwanted = False
        self.settle = True
        self.life = life
        self.settled = threading.Event()
        """It runs, or has failed for the first time."""


class QuerySupervisor:
    def __init__(
        self,
        launch: Callable[[QueryDef, Analysed | None], Running],
        *,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._launch = launch
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._closing = False
        self._wake = threading.Event()
        self._workers = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="sql-query-start")
        self._watcher = threading.Thread(target=self._watch, name="sql-queries", daemon=True)
        self._watcher.start()

    def start(self, definition: QueryDef, found: Analysed | None = None, *, wait: float = 0.0) -> None:
        """Run it from now on, for the first time as it was just analysed. With `wait`, return when it runs,
        has failed, or the timeout is over.
        """
        with self._lock:
            if definition.id in self._entries or self._closing:
                return
            entry = self._entries[definition.id] = _Entry(definition, found, Restarts(self._backoff))
        self._wake.set()
        if wait:
            entry.settled.wait(wait)

    def stop(self, query_id: str, *, settle: bool = True) -> None:
        """Returns when it has ended. With `settle`, transactions that it leaves open are ended, too; not if
        another server may run it already, whose transactions have the same ids.
        """
        with self._lock:
            entry = self._entries.pop(query_id, None)
            if entry is None:
                return
            entry.unwanted, entry.settle = True, settle
            starting, running = entry.starting, entry.running
        if starting:
            entry.settled.wait(60.0)  # the start in progress ends it itself
        elif running is not None:
            self._end(entry, running)

    def stop_all(self, *, settle: bool = True) -> None:
        with self._lock:
            known = list(self._entries)
        with ThreadPoolExecutor(max(1, min(8, len(known)))) as pool:
            list(pool.map(lambda each: self.stop(each, settle=settle), known))

    def close(self, *, settle: bool = True) -> None:
        self._closing = True
        self.stop_all(settle=settle)
        self._wake.set()
        self._watcher.join(10.0)
        self._workers.shutdown(wait=False, cancel_futures=True)

    def status(self, definition: QueryDef) -> Status:
        with self._lock:
            entry = self._entries.get(definition.id)
            if entry is None:
                return Status("PAUSED" if definition.state == "PAUSED" else "STOPPED")
            if entry.running is not None:
                return Status("RUNNING", entry.life.error, entry.life.failures)
            state = "FAILED" if entry.life.error is not None else "STARTING"
            return Status(state, entry.life.error, entry.life.failures)

    def ids(self) -> list[str]:
        with self._lock:
            return sorted(self._entries)

    # The watcher

    def _watch(self) -> None:
        while not self._closing:
            self._wake.wait(_LOOK_SECONDS)
            self._wake.clear()
            try:
                self._look()
            except Exception:
                log.exception("could not check the queries")

    def _look(self) -> None:
        now = self._clock()
        with self._lock:
            entries = list(self._entries.values())
        for entry in entries:
            if entry.starting:
                continue
            if entry.running is None:
                if now >= entry.life.due and self._claim(entry):
                    self._workers.submit(self._begin, entry)
            elif not entry.running.active():
                self._failed(entry, entry.running.error())
            else:
                with self._lock:
                    entry.life.works(now)

    def _claim(self, entry: _Entry) -> bool:
        """From now on, stopping it waits for the start. False if it was stopped before."""
        with self._lock:
            if entry.unwanted:
                return False
            entry.starting = True
            entry.settled.clear()
            return True

    def _begin(self, entry: _Entry) -> None:
        try:
            if entry.unwanted or self._closing:
                return
            found, entry.found = entry.found, None
            running = self._launch(entry.definition, found)
        except Exception as error:  # noqa: BLE001 - it is the query's, and tried again
            self._failed(entry, error)
        else:
            with self._lock:
                entry.running = running
                entry.life.started(self._clock())
            until = self._clock() + _BEGIN_SECONDS
            while not (entry.unwanted or self._closing or running.begun() or self._clock() >= until):
                time.sleep(_BEGIN_LOOK_SECONDS)
            with self._lock:
                entry.starting = False
                unwanted = entry.unwanted or self._closing
            if unwanted:
                self._end(entry, running)
        finally:
            entry.starting = False
            entry.settled.set()

    def _failed(self, entry: _Entry, error: Exception | None) -> None:
        if isinstance(error, TablesChanged):
            with self._lock:
                entry.running = None
                entry.life.again()
            return
        text = reason(error)
        with self._lock:
            entry.running = None
            delay = entry.life.failed(text, self._clock(), random.random())
        log.warning("query %s failed, restarting in %.0f s: %s", entry.definition.id, delay, text)

    def _end(self, entry: _Entry, running: Running) -> None:
        try:
            running.stop(settle=entry.settle)
        except Exception as error:  # noqa: BLE001 - Spark says why a stop took too long; it ends nevertheless
            log.warning("query %s was stopped: %s", entry.definition.id, cause(error))
