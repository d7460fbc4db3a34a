"""What happens to records on their way: converters, transforms, errors, dead letters, back-pressure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.testing import PenstockBroker
from tests.connect.conftest import Topics, Worker, Workers, until

COLLECT = {"connector.class": "trial_connectors.CollectSink"}
TRANSFORMS = "org.apache.kafka.connect.transforms."


@pytest.mark.promise(
    "connect",
    "A poison record goes to the dead-letter topic with its context, and the other records are "
    "processed; without error tolerance the task fails",
)
def test_a_poison_record_goes_to_the_dead_letter_topic_and_the_rest_flows(
    worker: Worker, topics: Topics, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "out"
    topics.write(name, b'"good"', (b"k", b"{bad"), b'"poison"', b'"fine"')
    worker.put(
        name,
        {
            **COLLECT,
            "topics": name,
            "path": str(path),
            "key.converter": "string",
            "value.converter": "json",
            "value.converter.schemas.enable": "false",
            "errors.tolerance": "all",
            "errors.log.enable": "true",
            "errors.deadletterqueue.topic.name": f"{name}-dead",
            "errors.deadletterqueue.context.headers.enable": "true",
        },
    )
    until(lambda: path.exists() and path.read_text() == "good\nfine\n", "the good records are there")
    first, second = topics.read(f"{name}-dead", 2)
    assert (first.key(), first.value(), second.value()) == (b"k", b"{bad", b'"poison"')
    headers = {key: value.decode() for key, value in first.headers()}
    assert headers["__connect.errors.topic"] == name and headers["__connect.errors.offset"] == "1"
    assert headers["__connect.errors.stage"] == "VALUE_CONVERTER"
    assert headers["__connect.errors.connector.name"] == name and headers["__connect.errors.task.id"] == "0"
    assert "serialization error" in headers["__connect.errors.exception.message"]
    assert "Traceback" in headers["__connect.errors.exception.stacktrace"]
    assert dict(second.headers())["__connect.errors.stage"] == b"TASK_PUT"


@pytest.mark.promise(
    "connect",
    "A poison record goes to the dead-letter topic with its context, and the other records are "
    "processed; without error tolerance the task fails",
)
def test_without_tolerance_a_bad_record_fails_the_task(
    worker: Worker, topics: Topics, tmp_path: Path, name: str
) -> None:
    topics.write(name, b"{bad")
    worker.put(
        name,
        {
            **COLLECT,
            "topics": name,
            "path": str(tmp_path / "out"),
            "value.converter": "json",
            "penstock.task.restart.attempts": "0",
        },
    )
    trace = worker.until_state(name, "FAILED")["trace"]
    assert "Tolerance exceeded in error handler" in trace and "serialization error" in trace


@pytest.mark.promise("connect", "Transforms work, with predicates, and can be any Python function")
def test_transforms_with_predicates_and_a_python_function(
    worker: Worker, topics: Topics, tmp_path: Path, name: str
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    worker.put(
        name,
        {
            "connector.class": "FileStreamSource",
            "file": str(lines),
            "topic": f"{name}-raw",
            "value.converter": "json",
            "value.converter.schemas.enable": "false",
            "transforms": "shout,hoist,insert,route,never",
            "transforms.shout.type": "trial_connectors:shout",
            "transforms.hoist.type": TRANSFORMS + "HoistField$Value",
            "transforms.hoist.field": "line",
            "transforms.insert.type": TRANSFORMS + "InsertField$Value",
            "transforms.insert.static.field": "from",
            "transforms.insert.static.value": "${env:HOME}",
            "transforms.route.type": TRANSFORMS + "RegexRouter",
            "transforms.route.regex": "(.*)-raw",
            "transforms.route.replacement": "$1-done",
            "transforms.never.type": TRANSFORMS + "Filter",
            "transforms.never.predicate": "raw",
            "predicates": "raw",
            "predicates.raw.type": TRANSFORMS + "predicates.TopicNameMatches",
            "predicates.raw.pattern": ".*-raw",
        },
    )
    import os

    found = [json.loads(each.value()) for each in topics.read(f"{name}-done", 2)]
    assert found == [{"line": each, "from": os.environ["HOME"]} for each in ("ONE", "TWO")]
    # The reference is stored, not what it stands for.
    assert (
        worker.http.get(f"/connectors/{name}/config").json()["transforms.insert.static.value"]
        == "${env:HOME}"
    )


@pytest.mark.promise(
    "connect",
    "An unavailable source or sink is retried and shown in the status; a sink gets each record when it "
    "is available again",
)
def test_a_store_that_is_away_presses_back_and_gets_each_record_once_it_is_there(
    worker: Worker, topics: Topics, tmp_path: Path, name: str
) -> None:
    path, away = tmp_path / "out", tmp_path / "away"
    away.touch()
    topics.write(name, *(str(number).encode() for number in range(2000)))
    worker.put(
        name,
        {**COLLECT, "topics": name, "path": str(path), "away": str(away), "value.converter": "string"},
    )

    def shown() -> bool:
        tasks = worker.status(name)["tasks"]
        return bool(tasks) and "the store is away" in tasks[0].get("trace", "")

    until(shown, "the status has the error")
    assert not path.exists()
    away.unlink()
    wanted = "".join(f"{number}\n" for number in range(2000))
    until(lambda: path.exists() and path.read_text() == wanted, "all records, in order, each once")
    until(lambda: "trace" not in worker.status(name)["tasks"][0], "the error is gone")


@pytest.mark.promise(
    "connect",
    "Exactly once for sources, also with kill -9 of worker and tasks; and for sinks that store their "
    "offsets with their data",
)
def test_a_sink_that_keeps_its_offsets_has_each_record_once(
    broker: PenstockBroker, workers: Workers, topics: Topics, tmp_path: Path, name: str
) -> None:
    words = ["--group", name]
    for kind in ("config", "offset", "status"):
        words += ["--set", f"{kind}.storage.topic={name}-{kind}"]
    broker.create_topic(name, partitions=2)
    worker = workers.start(broker.bootstrap, *words)
    store = tmp_path / "store"
    worker.put(
        name,
        {
            "connector.class": "trial_connectors.OwnOffsetsSink",
            "topics": name,
            "path": str(store),
            "value.converter": "string",
            "consumer.override.session.timeout.ms": "2000",
        },
    )
    for number in range(100):
        topics.write(name, str(number).encode(), partition=number % 2)
        if number == 50:
            worker.kill()
            worker = workers.start(broker.bootstrap, *words, wait=False)

    def lines(partition: int) -> list[str]:
        path = store / f"{name}-{partition}"
        return path.read_text().splitlines() if path.exists() else []

    until(lambda: len(lines(0)) + len(lines(1)) >= 100, "all records")
    assert lines(0) == [str(number) for number in range(0, 100, 2)]
    assert lines(1) == [str(number) for number in range(1, 100, 2)]
    worker.wait()
