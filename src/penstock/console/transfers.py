"""Imports and replays in a process of their own: a SQL condition or a large file delays no page.

A cancelled one writes what it has read, and ends; what it wrote stays.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol

import click

from penstock.admin.cluster import Cluster, kafka_exception
from penstock.admin.failure import CommandFailed, reason
from penstock.admin.reader import StopRequest
from penstock.admin.records import transfer
from penstock.admin.records.transfer import Offsets, Progress, Range
from penstock.console.searching import limit_memory
from penstock.errors import PenstockError

MOST_AT_ONCE = 4
_END_SECONDS = 10.0
_slots = threading.BoundedSemaphore(MOST_AT_ONCE)


class Job(Protocol):
    def run(self, cluster: Cluster, stop: StopRequest, report: Callable[[Progress], object]) -> int:
        """Returns the number of records written."""
        ...


@dataclass(frozen=True, slots=True)
class Import:
    topic: str
    path: str
    form: str
    records: int
    keep_partitions: bool
    keep_times: bool

    def run(self, cluster: Cluster, stop: StopRequest, report: Callable[[Progress], object]) -> int:
        return transfer.import_file(
            cluster,
            self.topic,
            self.path,
            self.form,
            total=self.records,
            keep_partitions=self.keep_partitions,
            keep_times=self.keep_times,
            stop=stop,
            report=report,
        )


@dataclass(frozen=True, slots=True)
class Replay:
    wanted: Range
    offsets: Offsets
    target: str
    keep_partitions: bool
    keep_times: bool

    def run(self, cluster: Cluster, stop: StopRequest, report: Callable[[Progress], object]) -> int:
        return transfer.replay(
            cluster,
            self.wanted,
            self.offsets,
            self.target,
            keep_partitions=self.keep_partitions,
            keep_times=self.keep_times,
            stop=stop,
            report=report,
        )


@dataclass(frozen=True, slots=True)
class Done:
    written: int
    failure: str | None = None


class Transfer:
    """One job, started at once. Call `next` in a thread until it returns a Done."""

    def __init__(self, bootstrap: str, client: Mapping[str, str], timeout: float, job: Job) -> None:
        if not _slots.acquire(blocking=False):
            raise CommandFailed(f"{MOST_AT_ONCE} imports and replays are running already: wait for one.")
        self._released = False
        self._lock = threading.Lock()
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_work, args=(theirs, bootstrap, dict(client), timeout, job), daemon=True
        )
        try:
            self._process.start()
        except OSError as error:
            self._release()
            raise CommandFailed(f"cannot start a process: {error.strerror or error}") from error
        theirs.close()

    def next(self, seconds: float = 1.0) -> Progress | Done | None:
        """The next report, or None if there is none in that time."""
        try:
            if not self._pipe.poll(seconds):
                return None
            report: Progress | Done = self._pipe.recv()
        except (EOFError, OSError):
            report = Done(0, "its process ended")
        if isinstance(report, Done):
            self._process.join(_END_SECONDS)
            self.close()
        return report

    def cancel(self) -> None:
        """Ask it to stop; `next` has the result."""
        try:
            self._pipe.send(None)
        except OSError:
            pass  # it has ended

    def close(self) -> None:
        """End it: at once, if it does not stop."""
        if self._process.is_alive():
            self.cancel()
            self._process.join(_END_SECONDS)
            self._process.kill()
        self._process.join()
        self._release()

    def _release(self) -> None:
        with self._lock:
            if not self._released:
                self._released = True
                _slots.release()


def _work(pipe: Connection, bootstrap: str, client: dict[str, str], timeout: float, job: Job) -> None:
    """In the child process."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the console handles Ctrl-C
    limit_memory()
    stop = StopRequest()

    def listen() -> None:
        try:
            pipe.recv()
        except (EOFError, OSError):
            pass
        stop.requested = True

    threading.Thread(target=listen, daemon=True).start()
    result: Any
    try:
        result = Done(job.run(Cluster(bootstrap, client, timeout=timeout), stop, pipe.send))
    except click.ClickException as error:
        result = Done(0, error.format_message())
    except PenstockError as error:
        result = Done(0, str(error))
    except kafka_exception() as error:
        result = Done(0, reason(error.args[0]))
    except MemoryError:
        result = Done(0, "it needs more memory than it may have")
    try:
        pipe.send(result)
    except OSError:
        pass  # nobody waits for the result any more
