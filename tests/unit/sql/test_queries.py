"""Queries are started a few at a time, and end when they are told to, whatever they are doing."""

from __future__ import annotations

import threading
import time
from typing import Any, ClassVar

import pytest

from penstock.sql.catalog.catalog import QueryDef, Relation
from penstock.sql.continuous import running
from penstock.sql.continuous.queries import QuerySupervisor


def definition(name: str) -> QueryDef:
    target = Relation(name, "stream", name, ())
    return QueryDef(id=name, kind="csas", statement="", target=target, sources={}, mode="append")


class Slow:
    """A query whose source answers when it is let."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.stopped = threading.Event()

    def begun(self) -> bool:
        return self.ready.is_set()

    def active(self) -> bool:
        return not self.stopped.is_set()

    def error(self) -> Exception | None:
        return None

    def stop(self, *, settle: bool = True) -> None:
        self.settled = settle
        self.stopped.set()


class Launches:
    def __init__(self) -> None:
        self.made: list[Slow] = []
        self.news = threading.Condition()

    def __call__(self, *_: Any) -> Slow:
        with self.news:
            self.made.append(Slow())
            self.news.notify_all()
            return self.made[-1]

    def wait(self, count: int) -> None:
        with self.news:
            assert self.news.wait_for(lambda: len(self.made) >= count, 60)


def test_no_more_than_two_wait_for_their_sources_at_once() -> None:
    launches = Launches()
    queries = QuerySupervisor(launches)
    try:
        for number in range(5):
            queries.start(definition(f"q{number}"))
        launches.wait(2)
        time.sleep(0.6)  # long enough for the watcher to look again
        assert len(launches.made) == 2
        launches.made[0].ready.set()
        launches.wait(3)
        for _ in range(3, 6):
            for each in list(launches.made):
                each.ready.set()
            launches.wait(min(5, len(launches.made) + 1))
        for each in list(launches.made):
            each.ready.set()
        launches.wait(5)
    finally:
        queries.close()
    assert all(each.stopped.is_set() for each in launches.made)


def test_a_query_that_is_stopped_while_it_begins_has_ended_when_stop_returns() -> None:
    launches = Launches()
    queries = QuerySupervisor(launches)
    try:
        queries.start(definition("q"))
        launches.wait(1)
        queries.stop("q")
        assert launches.made[0].stopped.is_set()
    finally:
        queries.close()


def test_a_query_that_nobody_has_begun_to_start_is_stopped_at_once() -> None:
    launches = Launches()
    queries = QuerySupervisor(launches)
    try:
        for number in range(200):
            queries.start(definition(f"q{number}"))
            queries.stop(f"q{number}")  # or the test's time is over: a wait for a start takes a minute
    finally:
        queries.close()


@pytest.mark.promise(
    "sql",
    "A leader (of SQL servers or registries) whose group coordinator does not respond for the session "
    "timeout steps down, and does not end transactions that its successor may have open",
)
@pytest.mark.parametrize("settle", [True, False])
def test_a_query_whose_server_was_replaced_leaves_its_transactions_to_the_successor(
    settle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transactions of both have the same ids: whoever ends those of a cut-off batch fences the other."""
    monkeypatch.setattr(running, "_IDLE_SECONDS", 0.0)

    class InTheMiddleOfABatch:
        id = "q"
        isActive = True
        lastProgress: ClassVar[dict[str, Any]] = {}
        status: ClassVar[dict[str, Any]] = {"isTriggerActive": True}

        def stop(self) -> None:
            self.isActive = False

    settled: list[str] = []
    streaming = running.Streaming(InTheMiddleOfABatch(), lambda: None, settled.append, list, [])
    queries = QuerySupervisor(lambda *_: streaming)
    queries.start(definition("q"))
    deadline = time.monotonic() + 60
    while queries.status(definition("q")).state != "RUNNING":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    queries.stop_all(settle=settle)
    queries.close()
    assert settled == (["q"] if settle else [])
