"""The dlt bridge: a resource to records, records to DuckDB; state, interruptions, repeated records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from dlt.pipeline.pipeline import Pipeline

from penstock.connect.api import ConnectError, RetriableError, SinkRecord, SourceBatch
from penstock.connect.connectors.dlt import DltSink, DltSource
from penstock.connect.connectors.dlt.sink import DltSinkTask
from penstock.connect.connectors.dlt.source import DltSourceTask
from tests.connect.capture import Kept
from tests.connect.plugins import dlt_resources as resources

PLACE = ("items", 0)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    for each in (resources.ROWS, resources.AWAY, resources.READ):
        each.clear()
    yield


def started(resource: str, kept: Kept, **settings: str) -> DltSourceTask:
    task = DltSourceTask()
    named = {name.replace("_", "."): value for name, value in settings.items()}
    config = {
        "resource": f"tests.connect.plugins.dlt_resources:{resource}",
        "topic": "t",
        "poll.interval.ms": "0",
    }
    task.start({**config, "batch.size": "10", **named}, kept)
    return task


def polled(task: DltSourceTask, kept: Kept, polls: int) -> list[SourceBatch]:
    """What some polls return, each committed."""
    found = []
    for _ in range(polls):
        batch = task.poll()
        if isinstance(batch, SourceBatch):
            kept.last = dict(batch.source_offset)
            found.append(batch)
    return found


def ids(batches: list[SourceBatch]) -> list[int]:
    return [value["id"] for batch in batches for value in batch.values]


def rows(first: int, last: int, updated: int) -> None:
    """Newer ones first."""
    resources.ROWS[:0] = [{"id": n, "updated": updated + n % 3} for n in range(first, last)]


@pytest.mark.promise(
    "connect",
    "dlt: a resource works as a source; its state is the source offset, and an interrupted run is repeated",
)
def test_the_cursor_of_a_resource_is_the_offset() -> None:
    kept = Kept()
    rows(1, 26, 100)
    task = started("changed", kept, arguments='{"after": 5}')
    found = polled(task, kept, 4)
    assert sorted(ids(found)) == list(range(6, 26))
    assert [batch.keys for batch in found] == [[value["id"] for value in batch.values] for batch in found]
    assert polled(task, kept, 3) == []  # what has the last value of the cursor is known
    rows(26, 40, 200)
    assert sorted(ids(polled(task, kept, 4))) == list(range(26, 40))
    task.stop()
    again = started("changed", kept)
    assert polled(again, kept, 3) == []
    rows(40, 42, 300)
    assert sorted(ids(polled(again, kept, 3))) == [40, 41]


@pytest.mark.promise(
    "connect",
    "dlt: a resource works as a source; its state is the source offset, and an interrupted run is repeated",
)
@pytest.mark.parametrize("polls", [1, 2, 3])
def test_a_run_that_is_interrupted_is_repeated(polls: int) -> None:
    kept = Kept()
    rows(1, 26, 100)
    first = ids(polled(started("changed", kept), kept, polls))  # and it is killed
    assert set(first) < set(range(1, 26))
    assert sorted(ids(polled(started("changed", kept), kept, 5))) == list(range(1, 26))


@pytest.mark.promise(
    "connect",
    "dlt: a resource works as a source; its state is the source offset, and an interrupted run is repeated",
)
def test_an_api_that_is_away_is_asked_again_and_others_errors_fail() -> None:
    kept = Kept()
    rows(1, 26, 100)
    task = started("changed", kept)
    resources.AWAY.append(ConnectionError("no route to host"))
    with pytest.raises(RetriableError, match="no route to host"):
        polled(task, kept, 3)
    assert sorted(ids(polled(task, kept, 5))) == list(range(1, 26))
    rows(26, 30, 200)
    resources.AWAY.append(KeyError("a mistake"))
    with pytest.raises(ConnectError, match="KeyError: 'a mistake'") as caught:
        polled(task, kept, 3)
    assert type(caught.value) is ConnectError


def test_a_resource_is_read_as_far_as_it_is_asked_for() -> None:
    kept = Kept()
    task = started("endless", kept)
    assert sum(map(len, polled(task, kept, 4))) == 30
    assert len(resources.READ) <= 41


def test_values_are_those_of_json_and_tables_are_rows() -> None:
    (batch,) = polled(started("types", Kept()), Kept(), 2)
    assert batch.values[0] == {"day": "2026-01-02", "price": "1.50", "deep": {"list": [1, None]}}
    assert batch.values[1:] == [{"n": 0}, {"n": 1}, {"n": 2}] and batch.keys is None


def test_a_state_that_is_too_large_for_an_offset_is_named() -> None:
    with pytest.raises(ConnectError, match="characters, of 900000 that an offset may have"):
        polled(started("hoards", Kept()), Kept(), 3)


def test_bad_settings_are_named(tmp_path: Path) -> None:
    good = {"resource": "tests.connect.plugins.dlt_resources:changed", "topic": "t"}
    assert DltSource.validate(good) == {}
    for name, value in (("resource", "changed"), ("resource", "json:nothing"), ("arguments", "[1]")):
        assert list(DltSource.validate({**good, name: value})) == [name]
    with pytest.raises(ConnectError, match="returns int, not a dlt resource"):
        started("no_resource", Kept()).poll()
    sink = {"destination": "duckdb", "topics": "t"}
    assert DltSink.validate(sink) == {}
    assert list(DltSink.validate({**sink, "destination": "nowhere"})) == ["destination"]
    assert list(DltSink.validate({**sink, "destination.arguments": "x"})) == ["destination.arguments"]


# Sink


class Target:
    def __init__(self, path: Path) -> None:
        self.path = path

    def task(self, **settings: str) -> DltSinkTask:
        task = DltSinkTask()
        config = {"name": "sink", "destination": "duckdb", "dataset_name": "kafka", **settings}
        task.start({**config, "destination.arguments": f'{{"credentials": "{self.path}"}}'})
        return task

    def query(self, statement: str) -> list[Any]:
        with duckdb.connect(str(self.path), read_only=True) as connection:
            return connection.execute(statement).fetchall()


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(tmp_path / "target.duckdb")


def record(offset: int, value: Any, topic: str = "items") -> SinkRecord:
    return SinkRecord(
        topic, 0, offset, value, original_topic=topic, original_partition=0, original_offset=offset
    )


def items(first: int, last: int) -> list[SinkRecord]:
    return [record(n, {"id": n, "name": f"n{n}"}) for n in range(first, last)]


@pytest.mark.promise(
    "connect",
    "dlt: records become rows of any destination; with write_disposition=merge each row is there once",
)
def test_records_that_come_again_are_there_once(target: Target) -> None:
    task = target.task()
    task.put(items(0, 5))
    assert task.precommit({PLACE: 5}) == {PLACE: 5}
    task.put([record(5, {"id": 5, "more": 0.5})])
    task.precommit({PLACE: 6})
    task.stop()
    again = target.task(**{"flush.size": "3"})  # the last task died before the offsets were committed
    again.put(items(3, 9))
    again.precommit({PLACE: 9})
    again.stop()
    found = target.query(
        "SELECT id, name, _kafka_topic, _kafka_partition, _kafka_offset FROM kafka.items ORDER BY 1"
    )
    assert found == [(n, f"n{n}", "items", 0, n) for n in range(9)]


@pytest.mark.promise(
    "connect",
    "dlt: records become rows of any destination; with write_disposition=merge each row is there once",
)
def test_a_load_that_failed_is_repeated(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    task = target.task(**{"flush.size": "4"})
    with monkeypatch.context() as patch:

        def away(*_: Any, **__: Any) -> Any:
            raise ConnectionError("the destination is away")

        patch.setattr(Pipeline, "load", away)
        for _ in range(2):
            with pytest.raises(RetriableError, match="the destination is away"):
                task.put(items(0, 6))
    task.put(items(0, 6))
    task.precommit({PLACE: 6})
    task.stop()
    assert target.query("SELECT id FROM kafka.items ORDER BY 1") == [(n,) for n in range(6)]


def test_topics_are_tables_and_other_keys_replace_rows(target: Target) -> None:
    names = {"table.name.format": "in_${topic}", "behavior.on.null.values": "ignore"}
    task = target.task(primary_key="id", **names)
    refused: list[str] = []
    task.report = lambda each, error: refused.append(f"{each.topic} {each.original_offset}: {error}")
    task.put([record(0, {"id": 1, "name": "old"}), record(0, {"id": 7}, "others"), record(1, None)])
    task.precommit({PLACE: 2})
    task.put([record(n, {"id": 1, "name": f"name {n}"}) for n in range(2, 30)])
    task.put([record(1, 5, "others"), record(30, {"id": None})])
    task.precommit({PLACE: 31})
    task.stop()
    assert refused == [
        f"{place}: the value has no id, of the primary_key" for place in ("others 1", "items 30")
    ]
    assert target.query("SELECT id, name, _kafka_offset FROM kafka.in_items") == [(1, "name 29", 29)]
    assert target.query("SELECT id FROM kafka.in_others") == [(7,)]


def test_a_destination_that_refuses_fails_the_task(target: Target, tmp_path: Path) -> None:
    target.path = tmp_path / "missing" / "target.duckdb"
    task = target.task(write_disposition="append")
    task.put(items(0, 1))
    with pytest.raises(ConnectError):
        task.precommit({PLACE: 1})
    task.stop()
