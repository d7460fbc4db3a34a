"""The lake sink on a local disk and on an S3-compatible server: names, contents, directories, crashes."""

from __future__ import annotations

import datetime
import decimal
import json
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from pyarrow import fs

from penstock.connect.api import (
    DATE_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    TIMESTAMP_SCHEMA,
    RetriableError,
    Schema,
    SinkBatch,
    SinkRecord,
    array_schema,
    decimal_schema,
    map_schema,
    struct_schema,
)
from penstock.connect.connectors.lake import LakeSink
from penstock.connect.connectors.lake.sink import LakeSinkTask
from penstock.connect.connectors.lake.stores import Store
from tests.connect.lake.conftest import Place

ITEM = struct_schema({"id": INT32_SCHEMA, "name": STRING_SCHEMA.as_optional()})
HOUR = 3_600_000
BEGIN = 1_767_225_600_000  # 2026-01-01T00:00:00Z


def record(
    offset: int, value: Any, schema: Schema | None = ITEM, time: int = BEGIN, partition: int = 0
) -> SinkRecord:
    return SinkRecord(
        "items", partition, offset, value, None, schema, timestamp=time,
        original_topic="items", original_partition=partition, original_offset=offset,
    )  # fmt: skip


def items(first: int, last: int, **more: Any) -> list[SinkRecord]:
    return [record(n, {"id": n, "name": f"n{n % 3}"}, **more) for n in range(first, last)]


def task_of(place: Place, **settings: str) -> LakeSinkTask:
    task = LakeSinkTask()
    task.start({**place.settings, **{name.replace("_", "."): value for name, value in settings.items()}})
    task.open([("items", 0), ("items", 1)])
    return task


@pytest.mark.promise("connect", "Lake: the names and contents of files depend only on the records")
def test_a_file_is_named_by_topic_partition_and_first_offset(place: Place) -> None:
    task = task_of(place, flush_size="4")
    task.put(items(0, 10) + items(7, 9, partition=1))
    assert list(place.files()) == [
        "topics/items/partition=0/items+0+0000000000.parquet",
        "topics/items/partition=0/items+0+0000000004.parquet",
    ]
    assert task.precommit({("items", 0): 10, ("items", 1): 9}) == {("items", 0): 8, ("items", 1): 7}
    assert sorted(row["id"] for row in place.rows()) == list(range(8))


@pytest.mark.promise(
    "connect", "Lake: crashes at any point and different batches produce the same files: exactly once"
)
@pytest.mark.parametrize(
    ("seed", "limit"),
    [
        (0, {}),
        *(pytest.param(seed, {}, marks=pytest.mark.long) for seed in (1, 2)),
        (3, {"flush_max_records": "13"}),
        (4, {"flush_max_bytes": "130"}),
    ],
)
def test_crashes_anywhere_leave_the_same_files(place: Place, seed: int, limit: dict[str, str]) -> None:
    chance = random.Random(seed)
    times = [BEGIN + n * 7 * 60_000 for n in range(200)]
    everything = [record(n, {"id": n, "name": f"n{n % 3}"}, time=times[n]) for n in range(200)]
    settings = {"flush_size": "9", "rotate_interval_ms": str(2 * HOUR), "partitioner": "field"}
    settings |= {"partition_field_name": "name", **limit}
    whole = task_of(place, **settings, topics_dir="whole")
    whole.put(everything)
    committed = 0
    while committed < 180:
        task = task_of(place, **settings, topics_dir="crashed")
        at, end = committed, min(200, committed + chance.randrange(1, 60))
        while at < end:
            size = chance.randrange(1, 20)
            task.put(everything[at : min(at + size, end)])
            at = min(at + size, end)
            if chance.random() < 0.5:
                committed = task.precommit({("items", 0): at})["items", 0]
    files = place.files()
    wanted = {name.removeprefix("whole/"): data for name, data in files.items() if name.startswith("whole/")}
    found = {
        name.removeprefix("crashed/"): data for name, data in files.items() if name.startswith("crashed/")
    }
    assert len(found) > 20 and found.items() <= wanted.items()
    ids = [row["id"] for name, data in found.items() for row in parquet.read_table(_buffer(data)).to_pylist()]
    assert sorted(number for number in ids if number < committed) == list(range(committed))


@pytest.mark.promise(
    "connect", "Lake: crashes at any point and different batches produce the same files: exactly once"
)
@pytest.mark.parametrize("seed", range(6))
def test_batches_of_columns_leave_the_files_of_single_records(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    place = Place({"url": str(tmp_path)}, fs.LocalFileSystem(), str(tmp_path))
    settings = {"flush_size": "9", "rotate_interval_ms": chance.choice(["0", str(2 * HOUR)])}
    settings |= chance.choice([{}, {"flush_max_bytes": "60"}])
    wide = struct_schema({"id": INT32_SCHEMA, "name": STRING_SCHEMA, "more": STRING_SCHEMA.as_optional()})
    schemas = [ITEM if n < 60 else wide for n in range(150)]
    everything = [
        record(
            2 * n, {"id": n, "name": "a" * (n % 7)}, schemas[n], BEGIN + n * 7 * 60_000 * chance.randrange(3)
        )
        for n in range(150)
    ]
    one_by_one = task_of(place, **settings, topics_dir="records")
    one_by_one.put(everything)
    in_batches = task_of(place, **settings, topics_dir="batches")
    at = 0
    while at < 150:
        end = min(at + chance.randrange(1, 30), 150, 60 if at < 60 else 150)
        again = chance.randrange(0, 3) if at > 3 and at != 60 else 0  # some come a second time
        some = everything[at - again : end]
        in_batches.put_batch(
            SinkBatch(
                "items", 0, [each.offset for each in some], [each.value for each in some], [None] * len(some),
                [each.timestamp for each in some], some[-1].value_schema,
            )
        )  # fmt: skip
        at = end
    files = place.files()
    assert len(files) > 20
    assert {name.removeprefix("records/"): data for name, data in files.items() if "records/" in name} == {
        name.removeprefix("batches/"): data for name, data in files.items() if "batches/" in name
    }
    assert one_by_one.precommit({("items", 0): 300}) == in_batches.precommit({("items", 0): 300})


@pytest.mark.promise(
    "connect", "Lake: the number of records buffered for files is limited, whatever their directories"
)
@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize(
    "limit", [{"flush_max_records": "100"}, {"flush_max_bytes": "10000"}], ids=["records", "bytes"]
)
def test_records_of_many_directories_do_not_gather(
    tmp_path: Path, limit: dict[str, str], batches: bool
) -> None:
    place = Place({"url": str(tmp_path)}, fs.LocalFileSystem(), str(tmp_path))
    task = task_of(
        place, partitioner="field", partition_field_name="id", format="json", flush_size="50", **limit
    )
    for first in range(0, 330, 30):
        values = [{"id": n, "name": "x" * 92} for n in range(first, first + 30)]
        if batches:
            numbers = list(range(first, first + 30))
            task.put_batch(SinkBatch("items", 0, numbers, values, [None] * 30, [BEGIN] * 30, ITEM))
        else:
            task.put([record(value["id"], value) for value in values])
    assert task.precommit({("items", 0): 330}) == {("items", 0): 300}
    assert len(place.files()) == 300
    assert task_of(place, flush_size="300000")._most_records == 300_000


def _buffer(data: bytes) -> Any:
    import pyarrow

    return pyarrow.BufferReader(data)


@pytest.mark.promise(
    "connect",
    "Lake: files are partitioned into directories by time or by fields of the value, in the layout that "
    "Hive and Spark read",
)
def test_directories_by_time(place: Place) -> None:
    task = task_of(
        place, partitioner="time", flush_size="100", rotate_interval_ms=str(HOUR), timezone="Europe/Berlin"
    )
    task.put([record(n, {"id": n, "name": "a"}, time=BEGIN + n * HOUR // 2) for n in range(5)])
    assert list(place.files()) == [
        "topics/items/year=2026/month=01/day=01/hour=01/items+0+0000000000.parquet",
        "topics/items/year=2026/month=01/day=01/hour=02/items+0+0000000002.parquet",
    ]


@pytest.mark.promise(
    "connect",
    "Lake: files are partitioned into directories by time or by fields of the value, in the layout that "
    "Hive and Spark read",
)
def test_directories_by_a_field_and_json_lines(place: Place) -> None:
    task = task_of(place, partitioner="field", partition_field_name="name", flush_size="2", format="json")
    task.put([record(0, {"id": 0, "name": "a/b"}), record(1, {"id": 1}), record(2, {"id": 2, "name": "a/b"})])
    files = place.files()
    assert list(files) == [
        "topics/items/name=__HIVE_DEFAULT_PARTITION__/items+0+0000000001.json",
        "topics/items/name=a%2Fb/items+0+0000000000.json",
    ]
    assert [json.loads(line)["id"] for line in list(files.values())[1].splitlines()] == [0, 2]


def test_a_change_of_the_schema_begins_another_file(place: Place) -> None:
    task = task_of(place, flush_size="2")
    wide = struct_schema({"id": INT32_SCHEMA, "size": INT64_SCHEMA})
    task.put([*items(0, 1), *[record(n, {"id": n, "size": 5}, wide) for n in (1, 2)]])
    assert [name[-18:-8] for name in place.files()] == ["0000000000", "0000000001"]


@pytest.mark.promise("connect", "Lake: every Connect type is mapped to a Parquet type")
def test_types_are_those_of_parquet(place: Place) -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=datetime.UTC)
    schema = struct_schema(
        {
            "price": decimal_schema(2), "day": DATE_SCHEMA, "moment": TIMESTAMP_SCHEMA,
            "tags": array_schema(STRING_SCHEMA), "counts": map_schema(STRING_SCHEMA, INT64_SCHEMA),
            "item": ITEM,
        }
    )  # fmt: skip
    value = {
        "price": decimal.Decimal("12.50"), "day": moment.date(), "moment": moment, "tags": ["a"],
        "counts": {"x": 1}, "item": {"id": 1, "name": None},
    }  # fmt: skip
    task_of(place, flush_size="1").put([record(0, value, schema)])
    [data] = place.files().values()
    [row] = parquet.read_table(_buffer(data)).to_pylist(maps_as_pydicts="strict")
    assert row == value


def test_a_store_that_is_away_is_written_when_it_is_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of(place, flush_size="3")
    with monkeypatch.context() as patch:

        def away(name: str, data: Any) -> None:
            raise RetriableError("the store is away")

        patch.setattr(task._store, "write", away)
        with pytest.raises(RetriableError):
            task.put(items(0, 4))
    task.put(items(0, 4))
    task.put(items(4, 6))
    assert [parquet.read_table(_buffer(data)).num_rows for data in place.files().values()] == [3, 3]


def test_a_location_in_hdfs_is_opened_with_its_host_port_and_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No HDFS runs here: its steps are done on a disk, through the same calls of pyarrow."""
    opened: list[Any] = []

    def hadoop(host: str, port: int, user: str | None) -> fs.FileSystem:
        opened.append((host, port, user))
        return fs.LocalFileSystem()

    monkeypatch.setattr(fs, "HadoopFileSystem", hadoop)
    store = Store({"url": f"hdfs://ann@namenode:8020{tmp_path}/lake/"})
    store.check()
    store.write("a/one", b"old")
    store.write("a/one", b"new")
    assert store.files() == [("a/one", 3)]
    with store.open("a/one") as file:
        assert file.read() == b"new"
    assert sorted(path.name for path in (tmp_path / "lake" / "a").iterdir()) == ["one"]
    Store({"url": f"hdfs://{tmp_path}"}).check(writes=False)
    Store({"url": f"hdfs://cluster{tmp_path}"})
    assert opened == [("namenode", 8020, "ann"), ("default", 0, None), ("cluster", 0, None)]


def test_bad_records_are_reported_and_bad_settings_named(place: Place) -> None:
    task = task_of(place, flush_size="2")
    bad: list[int] = []
    task.report = lambda each, error: bad.append(each.original_offset)
    task.put([record(0, None), *items(1, 2), record(2, "text"), *items(3, 4)])
    assert bad == [0, 2] and [row["id"] for row in place.rows()] == [1, 3]
    for settings, field in (
        ({"partitioner": "field"}, "partition.field.name"),
        ({"path.format": "'x'=QQQ"}, "path.format"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"url": "ftp://host/x"}, "url"),
        ({"url": "hdfs://127.0.0.1:1/x"}, "url"),
    ):
        assert list(LakeSink.validate({**place.settings, **settings})) == [field]
    assert LakeSink.validate(place.settings) == {}


@pytest.mark.promise(
    "connect",
    "Lake: a record that does not fit into a file with the others is reported, and the others are written",
)
def test_records_that_do_not_go_together_are_reported(place: Place) -> None:
    task = task_of(place, flush_size="5")
    bad: list[Any] = []
    task.report = lambda each, error: bad.append((each.original_offset, each.value["x"]))
    values = [1, "text", 2, {}, 3, 4, 2**70, 5, 6, 7]
    rows = [{"id": at, "x": value} for at, value in enumerate(values)]
    task.put_batch(SinkBatch("items", 0, list(range(10)), rows, [None] * 10, [BEGIN] * 10, None, None))
    assert bad == [(1, "text"), (3, {}), (6, 2**70)]
    assert sorted(row["id"] for row in place.rows()) == [0, 2, 4, 5, 7, 8, 9]
    assert task.precommit({("items", 0): 10}) == {("items", 0): 10}
    schema = struct_schema({"x": decimal_schema(0)})
    wide = [record(n, {"x": decimal.Decimal(10**digits)}, schema) for n, digits in ((10, 40), (11, 3))]
    task.put([*wide, *(record(n, {"x": decimal.Decimal(n)}, schema) for n in (12, 13, 14))])
    assert bad[3:] == [(10, decimal.Decimal(10**40))]
