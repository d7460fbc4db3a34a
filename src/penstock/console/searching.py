"""Runs a search in a separate process.

So a regular expression that never ends, or millions of records, do not delay other pages, and a cancelled
search ends at once.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import click

from penstock.admin.cluster import Cluster
from penstock.admin.failure import CommandFailed
from penstock.console.reads.decoding import Describe, Registered
from penstock.console.reads.messages import Message, Progress, Query, read_messages
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.registry.client import RegistrySettings

MOST_AT_ONCE = 4
MOST_MEMORY = 4 << 30
"""A SQL condition may build large values: a search that needs more bytes of address space fails."""
_slots = threading.BoundedSemaphore(MOST_AT_ONCE)


@dataclass(frozen=True, slots=True)
class Result:
    found: list[Message]
    failure: str | None = None


class Search:
    """One search, started at once. Call `next` in a thread until it returns a Result."""

    def __init__(
        self,
        bootstrap: str,
        client: Mapping[str, str],
        registry: RegistrySettings | None,
        topic: str,
        query: Query,
        timeout: float,
    ) -> None:
        if not _slots.acquire(blocking=False):
            raise CommandFailed(f"{MOST_AT_ONCE} searches are running already: cancel one, or wait.")
        self._released = False
        self._lock = threading.Lock()
        context = multiprocessing.get_context("spawn")
        self._reports, theirs = context.Pipe(duplex=False)
        work = (theirs, bootstrap, dict(client), registry, topic, query, timeout)
        self._process = context.Process(target=_search, args=work, daemon=True)
        try:
            self._process.start()
        except OSError as error:
            self._release()
            raise CommandFailed(f"cannot start a search: {error.strerror or error}") from error
        theirs.close()

    def next(self, seconds: float = 1.0) -> Progress | Result | None:
        """The next report, or None if there is none in that time."""
        try:
            if not self._reports.poll(seconds):
                return None
            report: Progress | Result = self._reports.recv()
        except (EOFError, OSError):
            report = Result([], "the search was cancelled")
        if isinstance(report, Result):
            self.close()
        return report

    def close(self) -> None:
        """End the search, whatever it is doing."""
        self._process.kill()
        self._process.join()
        self._release()

    def _release(self) -> None:
        with self._lock:
            if not self._released:
                self._released = True
                _slots.release()


def _search(
    reports: Connection,
    bootstrap: str,
    client: dict[str, str],
    registry: RegistrySettings | None,
    topic: str,
    query: Query,
    timeout: float,
) -> None:
    """In the child process."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the console handles Ctrl-C
    limit_memory()
    result: Any
    try:
        found = read_messages(
            Cluster(bootstrap, client, timeout=timeout),
            topic,
            query,
            describe=_described(registry),
            report=reports.send,
        )
        result = Result(found)
    except click.ClickException as error:
        result = Result([], error.format_message())
    except PenstockError as error:
        result = Result([], str(error))
    except MemoryError:
        result = Result([], f"the search needs more than {MOST_MEMORY >> 30} GiB of memory")
    try:
        reports.send(result)
    except OSError:
        pass  # nobody waits for the result any more


def limit_memory() -> None:
    """In a child process: no more address space than MOST_MEMORY."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))


def _described(registry: RegistrySettings | None) -> Describe | None:
    if registry is None:
        return None
    from penstock.registry.client import RegistryClient

    return Registered(RegistryClient(registry))
