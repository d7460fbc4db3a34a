"""Every log is checked (`PartitionLog.check`) when it is closed, or after the test that left it open, and
every partition after the test that made it (`Partition.check`)."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from penstock.log.partition_log import PartitionLog
from penstock.replication.partition import Partition

_MOST = 64
"""A property-based test opens thousands: those before the last ones are checked when others come."""


@pytest.fixture(autouse=True)
def _logs_are_sound(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Not with the mark `unchecked_logs`, nor a log that was deleted, opened a second time, or has failed."""
    if request.node.get_closest_marker("unchecked_logs") is not None:
        yield
        return
    opened: dict[str, PartitionLog] = {}
    initialize = PartitionLog.__init__

    def noted(log: PartitionLog, directory: str, *args: Any, **more: Any) -> None:
        initialize(log, directory, *args, **more)
        opened.pop(directory, None)
        opened[directory] = log
        if len(opened) > _MOST:
            oldest = next(iter(opened))
            check(oldest, opened.pop(oldest))

    def check(directory: str, log: PartitionLog) -> None:
        if log.closed or log.failed is not None or not log.segments or not os.path.isdir(directory):
            return
        log.check()

    close = PartitionLog.close

    def closing(log: PartitionLog) -> None:
        check(log.directory, log)
        close(log)

    monkeypatch.setattr(PartitionLog, "__init__", noted)
    monkeypatch.setattr(PartitionLog, "close", closing)
    yield
    for directory, log in opened.items():
        check(directory, log)


@pytest.fixture(autouse=True)
def _partitions_are_coherent(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Not with the marks `unchecked_partitions` and `unchecked_logs`, nor one whose log cannot be written."""
    if any(request.node.get_closest_marker(mark) for mark in ("unchecked_partitions", "unchecked_logs")):
        yield
        return
    made: deque[Partition] = deque()
    initialize = Partition.__init__

    def noted(partition: Partition, *args: Any, **more: Any) -> None:
        initialize(partition, *args, **more)
        made.append(partition)
        if len(made) > _MOST:
            check(made.popleft())

    def check(partition: Partition) -> None:
        if partition.log.failed is None:
            partition.check()

    monkeypatch.setattr(Partition, "__init__", noted)
    yield
    for partition in made:
        check(partition)


class _Catcher(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.server.requests.append(self.headers)  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def impostor() -> Iterator[HTTPServer]:
    """A server that keeps the headers of what is posted to it, in `requests`."""
    server = HTTPServer(("127.0.0.1", 0), _Catcher)
    server.requests = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
