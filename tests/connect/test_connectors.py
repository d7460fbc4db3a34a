"""Directories and Datagen, and records with registered schemas, end to end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from penstock.testing import PenstockBroker
from tests.connect.conftest import Topics, Worker, until
from tests.registry.conftest import Registries, RegistryProcess

PLAIN = {"value.converter": "json", "value.converter.schemas.enable": "false"}
SOURCE = {"connector.class": "DirectorySource", **PLAIN}
SINK = {"connector.class": "DirectorySink", **PLAIN}


@pytest.fixture(scope="module")
def registry(broker: PenstockBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    started = Registries(tmp_path_factory.mktemp("registry"))
    yield started.start(broker.bootstrap)
    started.close()


def values(found: list[Any]) -> list[Any]:
    return sorted((json.loads(each.value()) for each in found), key=str)


@pytest.mark.promise(
    "connect", "FileStream and directory sources follow files and directories as they grow, rotate and appear"
)
def test_files_of_a_directory_are_read_as_they_appear_and_grow(
    worker: Worker, topics: Topics, tmp_path: Path, name: str
) -> None:
    (tmp_path / "a.jsonl").write_text('{"n":1}\n{"n":2}\n{"n"')
    config = {**SOURCE, "path": str(tmp_path), "pattern": "*.jsonl", "format": "json", "topic": name}
    worker.put(name, {**config, "tasks.max": 2})
    assert values(topics.read(name, 2)) == [{"n": 1}, {"n": 2}]
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write(":3}\n")
    (tmp_path / "b.jsonl").write_text('{"n":4}\n')
    assert values(topics.read(name, 4)) == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]


@pytest.mark.promise(
    "connect", "FileStream and directory sources follow files and directories as they grow, rotate and appear"
)
def test_csv_and_parquet_are_read_with_their_columns(
    worker: Worker, topics: Topics, tmp_path: Path, name: str
) -> None:
    (tmp_path / "t.csv").write_text('id,text\n1,"a, b"\n2,c\n')
    pyarrow.parquet.write_table(pyarrow.table({"id": [1, 2], "x": [0.5, None]}), tmp_path / "t.parquet")
    for kind in ("csv", "parquet"):
        config = {**SOURCE, "path": str(tmp_path), "pattern": f"*.{kind}", "format": kind}
        worker.put(f"{name}-{kind}", {**config, "topic": f"{name}-{kind}"})
    assert values(topics.read(f"{name}-csv", 2)) == [{"id": "1", "text": "a, b"}, {"id": "2", "text": "c"}]
    assert values(topics.read(f"{name}-parquet", 2)) == [{"id": 1, "x": 0.5}, {"id": 2, "x": None}]


@pytest.mark.promise(
    "connect",
    "Exactly once for sources, also with kill -9 of worker and tasks; and for sinks that store their "
    "offsets with their data",
)
@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_records_are_files_named_by_their_offsets(
    worker: Worker, topics: Topics, tmp_path: Path, name: str, kind: str
) -> None:
    rows = [{"n": number, "text": f"t{number}"} for number in range(25)]
    topics.write(name, *(json.dumps(row).encode() for row in rows))
    config = {**SINK, "path": str(tmp_path / "out"), "format": kind, "topics": name, "flush.records": "10"}
    worker.put(name, config)
    until(
        lambda: sum(_rows(path, kind) for path in (tmp_path / "out").glob(f"{name}+*")) == 25,
        "all rows are in files",
        lambda: str(list((tmp_path / "out").glob("*"))),
    )
    worker.http.post(f"/connectors/{name}/restart?includeTasks=true")
    topics.write(name, json.dumps({"n": 25, "text": "t25"}).encode())
    until(
        lambda: sum(_rows(path, kind) for path in (tmp_path / "out").glob(f"{name}+*")) == 26,
        "after a restart no row is doubled",
    )
    spans = sorted(path.name.split(".")[0].split("+")[2:] for path in (tmp_path / "out").glob(f"{name}+*"))
    assert [int(first) for first, _ in spans] == [0, *(int(last) + 1 for _, last in spans[:-1])]


@pytest.mark.promise(
    "connect",
    "A poison record goes to the dead-letter topic with its context, and the other records are "
    "processed; without error tolerance the task fails",
)
def test_a_record_that_has_no_place_in_a_csv_file_goes_to_the_dead_letter_topic(
    worker: Worker, topics: Topics, tmp_path: Path, name: str
) -> None:
    topics.write(name, b'{"text":"two\\nlines"}', b"5", b'{"text":"c"}')
    worker.put(
        name,
        {
            **SINK,
            "path": str(tmp_path / "out"),
            "format": "csv",
            "topics": name,
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": f"{name}-dead",
            "errors.deadletterqueue.context.headers.enable": "true",
        },
    )
    (dead,) = topics.read(f"{name}-dead", 1)
    assert dead.value() == b"5" and dict(dead.headers())["__connect.errors.offset"] == b"1"
    worker.put(
        f"{name}-again",
        {
            **SOURCE,
            "path": str(tmp_path / "out"),
            "pattern": "*.csv",
            "format": "csv",
            "topic": f"{name}-again",
        },
    )
    found = values(topics.read(f"{name}-again", 2))
    assert found == [{"text": "c"}, {"text": "two\nlines"}]


def _rows(path: Path, kind: str) -> int:
    if kind == "parquet":
        return pyarrow.parquet.read_table(path).num_rows
    return len(path.read_text().splitlines()) - (kind == "csv")


@pytest.mark.promise(
    "connect",
    "Lake: a record that does not fit into a file with the others is reported, and the others are written",
)
def test_a_poison_record_of_an_earlier_batch_goes_to_the_dead_letter_topic_as_it_was(
    worker: Worker, topics: Topics, tmp_path: Path, name: str
) -> None:
    topics.write(
        name, *(("key", value) for value in (b'{"x":1}', b'{"x": "poison"}', b'{"x":2}', b'{"x":3}'))
    )
    worker.put(
        name,
        {
            **PLAIN,
            "connector.class": "LakeSink",
            "topics": name,
            "url": str(tmp_path / "lake"),
            "flush.size": "4",
            "key.converter": "string",
            "consumer.override.max.poll.records": "1",  # so that it is found with the last one's batch
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": f"{name}-dead",
            "errors.deadletterqueue.context.headers.enable": "true",
        },
    )
    (dead,) = topics.read(f"{name}-dead", 1)
    assert (dead.key(), dead.value()) == (b"key", b'{"x": "poison"}')
    assert dict(dead.headers())["__connect.errors.offset"] == b"1"
    (file,) = until(lambda: list((tmp_path / "lake").rglob("*.parquet")), "the file")
    assert pyarrow.parquet.read_table(file).to_pydict() == {"x": [1, 2, 3]}


@pytest.mark.promise("connect", "JSON, Avro, JSON Schema and Protobuf keep values unchanged")
@pytest.mark.parametrize("converter", ["avro", "json-schema", "protobuf"])
def test_records_with_registered_schemas_come_back_as_they_were(
    worker: Worker, registry: RegistryProcess, topics: Topics, tmp_path: Path, name: str, converter: str
) -> None:
    with_schema = {"value.converter": converter, "value.converter.schema.registry.url": registry.url}
    worker.put(
        f"{name}-in",
        {
            "connector.class": "Datagen",
            "kafka.topic": name,
            "quickstart": "orders",
            "iterations": "20",
            "rate": "1000",
            "key.converter": "json",
            "key.converter.schemas.enable": "false",
            **with_schema,
        },
    )
    found = topics.read(name, 20)
    assert {each.value()[0] for each in found} == {0} and found[3].key() == b"3"
    with registry.client() as http:
        assert http.get("/subjects").json().count(f"{name}-value") == 1
    worker.put(
        f"{name}-out",
        {
            "connector.class": "DirectorySink",
            "path": str(tmp_path),
            "format": "json",
            "topics": name,
            "key.converter": "json",
            "key.converter.schemas.enable": "false",
            **with_schema,
        },
    )

    def rows() -> list[Any]:
        lines = [
            line for path in sorted(tmp_path.glob(f"{name}+*")) for line in path.read_text().splitlines()
        ]
        return [json.loads(line) for line in lines]

    until(lambda: len(rows()) == 20, "all rows are there", lambda: str(worker.status(f"{name}-out")))
    assert [row["orderid"] for row in rows()] == list(range(20))
    assert all(row["address"].keys() == {"city", "state", "zipcode"} for row in rows())


def test_a_schema_that_datagen_cannot_make_is_refused_by_its_field(worker: Worker, name: str) -> None:
    config = {"connector.class": "Datagen", "kafka.topic": "t", "schema.string": '{"type":"record"'}
    answer = worker.http.put(f"/connectors/{name}/config", json=config)
    assert answer.status_code == 400 and "schema.string" in answer.json()["message"]


def test_more_tasks_than_tasks_max_fail_the_connector_unless_it_is_allowed(worker: Worker, name: str) -> None:
    config: dict[str, object] = {
        "connector.class": "trial_connectors.NumbersSource",
        "topic": name,
        "make.tasks": 2,
        "penstock.task.restart.attempts": 0,
    }
    worker.put(name, config)
    failed = worker.until_state(name, "FAILED", task=None)
    assert "has generated 2 tasks, which is greater than 1" in failed["connector"]["trace"]
    worker.put(name, {**config, "tasks.max.enforce": "FALSE"})
    worker.until_running(name, tasks=2)
    assert "has generated 2 tasks" in worker.log.read_text()
