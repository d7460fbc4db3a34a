"""The lake source: files on a local disk and on an S3-compatible server to topics, exactly once."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet as parquet
import pytest

from penstock.connect.api import (
    INT32_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    TIMESTAMP_SCHEMA,
    ConnectError,
    OffsetsReader,
    SinkBatch,
    SourceBatch,
    map_schema,
    struct_schema,
)
from penstock.connect.connectors.lake import LakeSource
from penstock.connect.connectors.lake.sink import LakeSinkTask
from penstock.connect.connectors.lake.source import LakeSourceTask
from penstock.testing import PenstockBroker
from tests.connect.conftest import Topics, Workers, until
from tests.connect.lake.conftest import Place

ITEM = struct_schema(
    {
        "id": INT32_SCHEMA,
        "name": STRING_SCHEMA.as_optional(),
        "counts": map_schema(STRING_SCHEMA, INT64_SCHEMA),
    }
)


class Kept(OffsetsReader):
    """Offsets that a worker has committed."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}

    def offsets(self, partitions: Iterable[Any]) -> list[dict[str, Any] | None]:
        return [self.found.get(json.dumps(each)) for each in partitions]

    def commit(self, batch: SourceBatch) -> None:
        self.found[json.dumps(dict(batch.source_partition))] = dict(batch.source_offset)


def fill(place: Place, kind: str, first: int, last: int, partition: int = 0) -> None:
    """Files as LakeSink writes them, four records each."""
    task = LakeSinkTask()
    task.start({**place.settings, "format": kind, "flush.size": "4", "rotate.interval.ms": "0"})
    numbers = list(range(first, last))
    values = [{"id": n, "name": None if n % 3 else f"n{n}", "counts": {"x": n}} for n in numbers]
    nothing = [None] * len(numbers)
    task.put_batch(SinkBatch("items", partition, numbers, values, nothing, nothing, ITEM))


def source(place: Place, kept: Kept, kind: str, **settings: str) -> LakeSourceTask:
    task = LakeSourceTask()
    named = {name.replace("_", "."): value for name, value in settings.items()}
    more = {"topic": "back", "format": kind, "scan.interval.ms": "1", "batch.size": "3"}
    task.start({**place.settings, **more, **named}, kept)
    return task


def read_all(task: LakeSourceTask, kept: Kept) -> list[Any]:
    found: list[Any] = []
    while batch := task.poll():
        assert isinstance(batch, SourceBatch)
        kept.commit(batch)
        found += batch.values
    return found


@pytest.mark.promise("connect", "Lake: files on disk or in S3 can be a source, and each record is read once")
@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_what_the_sink_wrote_is_read_in_order_and_once(place: Place, kind: str) -> None:
    fill(place, kind, 0, 12)
    kept = Kept()
    task = source(place, kept, kind)
    found = read_all(task, kept)
    assert [value["id"] for value in found] == list(range(12))
    assert found[4] == {"id": 4, "name": None, "counts": {"x": 4}}
    fill(place, kind, 12, 20)  # and what is added later
    assert [value["id"] for value in read_all(task, kept)] == list(range(12, 20))
    assert read_all(source(place, kept, kind), kept) == []


@pytest.mark.promise("connect", "Lake: files on disk or in S3 can be a source, and each record is read once")
@pytest.mark.parametrize("seed", range(3))
def test_restarts_anywhere_read_each_record_once(tmp_path: Path, seed: int) -> None:
    chance, place = random.Random(seed), Place({"url": str(tmp_path)}, None, str(tmp_path))
    fill(place, "parquet", 0, 40)
    kept, found = Kept(), []
    while len(found) < 40:
        task = source(place, kept, "parquet", batch_size=str(chance.randrange(1, 6)))
        for _ in range(chance.randrange(1, 8)):
            batch = task.poll()
            if not isinstance(batch, SourceBatch) or chance.random() < 0.2:
                break  # it dies before the transaction of this batch commits
            kept.commit(batch)
            found += batch.values
    assert [value["id"] for value in found] == list(range(40))


def test_tasks_divide_the_files_and_a_pattern_chooses(place: Place) -> None:
    fill(place, "json", 0, 40)
    tasks = [{"task_number": str(number), "task_count": "3"} for number in range(3)]
    parts = [
        [value["id"] for value in read_all(source(place, Kept(), "json", **each), Kept())] for each in tasks
    ]
    assert sorted(number for part in parts for number in part) == list(range(40))
    assert max(map(len, parts)) < 40
    some = read_all(source(place, Kept(), "json", pattern="*+0000000008.json"), Kept())
    assert [value["id"] for value in some] == [8, 9, 10, 11]


def test_types_of_parquet_and_files_that_are_none(tmp_path: Path) -> None:
    place = Place({"url": str(tmp_path)}, None, str(tmp_path))
    times = pyarrow.array([0], pyarrow.timestamp("ms", "UTC"))
    parquet.write_table(pyarrow.table({"at": times}), tmp_path / "a.parquet")
    (tmp_path / "_SUCCESS").write_text("not data")
    task = source(place, Kept(), "parquet")
    batch = task.poll()
    assert isinstance(batch, SourceBatch) and batch.value_schema is not None
    assert batch.value_schema.field("at") == TIMESTAMP_SCHEMA.as_optional()
    (tmp_path / "b.parquet").write_text("garbage")
    with pytest.raises(ConnectError, match=r"b\.parquet is not Parquet"):
        task.poll()


def test_bad_settings_and_offsets_are_named(tmp_path: Path) -> None:
    good = {"url": str(tmp_path), "topic": "t"}
    assert LakeSource.validate(good) == {}
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    for url in (str(tmp_path / "nothing"), "ftp://host/x", str(tmp_path / "table")):
        assert list(LakeSource.validate({**good, "url": url})) == ["url"]
    with pytest.raises(ConnectError, match="'file'"):
        LakeSource.alter_offsets(good, [({}, {"position": 1})])
    with pytest.raises(ConnectError, match="'position'"):
        LakeSource.alter_offsets(good, [({"file": "a"}, {"position": -1})])


@pytest.mark.timeout(300)
@pytest.mark.promise("connect", "Lake: files on disk or in S3 can be a source, and each record is read once")
@pytest.mark.parametrize("place", ["local", pytest.param("s3", marks=pytest.mark.long)], indirect=True)
def test_a_backfill_survives_kill_9_with_each_record_once(
    broker: PenstockBroker, workers: Workers, topics: Topics, place: Place, name: str
) -> None:
    fill(place, "parquet", 0, 200)
    once = ("--set", "exactly.once.source.support=enabled")
    worker = workers.start(broker.bootstrap, *once)
    config: dict[str, object] = {
        **place.settings, "connector.class": "LakeSource", "topic": name, "batch.size": "1",
        "exactly.once.support": "required", "transaction.boundary": "poll",
        "value.converter": "json", "value.converter.schemas.enable": "false",
    }  # fmt: skip
    worker.put(name, config)
    topics.read(name, 10)
    worker.kill()
    again = workers.start(broker.bootstrap, *once)
    found = topics.read_all(name, lambda all: len(all) >= 200, "200 records")
    assert [json.loads(each.value())["id"] for each in found] == list(range(200))
    offsets = again.http.get(f"/connectors/{name}/offsets").json()["offsets"]
    assert len(offsets) == 50 and {each["offset"]["position"] for each in offsets} == {4}
    until(lambda: again.http.delete(f"/connectors/{name}").status_code == 204, "it is deleted")
