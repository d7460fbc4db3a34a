"""Delta and Iceberg tables of topics: offsets with the rows, crashes, takeovers, columns that change."""

from __future__ import annotations

import datetime
import decimal
import random
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyarrow import fs
from pyiceberg.catalog import load_catalog

from penstock.connect.api import (
    DATE_SCHEMA,
    FLOAT64_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    TIME_SCHEMA,
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
from penstock.connect.connectors.lake import TableSink
from penstock.connect.connectors.lake.tables.sink import TableSinkTask

ITEM = struct_schema({"id": INT32_SCHEMA, "name": STRING_SCHEMA.as_optional()})
BEGIN = 1_767_225_600_000  # 2026-01-01T00:00:00Z
PLACE = ("items", 0)
LOGIN = {"aws.access.key.id": "a", "aws.secret.access.key": "b", "s3.region": "us-east-1"}


class Lake:
    """Where the tables are, read with the libraries of their formats."""

    def __init__(self, kind: str, settings: dict[str, str]) -> None:
        self.kind = kind
        self.settings = {"name": "sink", "format": kind, **settings}

    def task(self, *places: tuple[str, int], **settings: str) -> tuple[TableSinkTask, dict[Any, int]]:
        task = TableSinkTask()
        named = {name.replace("_", "."): value for name, value in settings.items()}
        task.start({**self.settings, **named})
        return task, dict(task.open(places or [PLACE]) or {})

    def table(self, name: str = "items") -> Any:
        if self.kind == "iceberg":
            root = self.settings["url"]
            catalog = load_catalog("penstock", type="sql", uri=f"sqlite:///{root}/catalog.db", warehouse=root)
            return catalog.load_table(("default", name)).scan().to_arrow()
        options = None
        if self.settings["url"].startswith("s3://"):
            options = {
                "AWS_ENDPOINT_URL": self.settings["s3.endpoint"], "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ALLOW_HTTP": "true",
            }  # fmt: skip
        return DeltaTable(f"{self.settings['url']}/{name}", storage_options=options).to_pyarrow_table()

    def ids(self) -> list[int]:
        return sorted(self.table().column("id").to_pylist())


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, {"url": str(tmp_path)})


def record(offset: int, value: Any, schema: Schema | None = ITEM, partition: int = 0) -> SinkRecord:
    return SinkRecord(
        "items", partition, offset, value, f"k{offset}", schema, timestamp=BEGIN + offset,
        original_topic="items", original_partition=partition, original_offset=offset,
    )  # fmt: skip


def items(first: int, last: int, partition: int = 0) -> list[SinkRecord]:
    return [record(n, {"id": n, "name": f"n{n}"}, partition=partition) for n in range(first, last)]


def batch(first: int, last: int) -> SinkBatch:
    numbers = list(range(first, last))
    values = [{"id": n, "name": f"n{n}"} for n in numbers]
    return SinkBatch("items", 0, numbers, values, [None] * len(numbers), [BEGIN] * len(numbers), ITEM)


@pytest.mark.promise(
    "connect", "Tables: rows and offsets are written in one commit of a Delta or Iceberg table"
)
def test_rows_are_in_the_table_with_the_offsets_after_them(lake: Lake) -> None:
    task, offsets = lake.task(PLACE, ("items", 1), flush_size="5")
    assert offsets == {}
    task.put(items(0, 3) + items(100, 104, partition=1))
    assert len(lake.ids()) == 7  # flush.size
    task.put(items(3, 4))
    assert task.precommit({PLACE: 4, ("items", 1): 104}) == {PLACE: 4, ("items", 1): 104}
    assert lake.ids() == [0, 1, 2, 3, 100, 101, 102, 103]
    other, offsets = lake.task(PLACE, ("items", 1))
    assert offsets == {PLACE: 4, ("items", 1): 104}
    other.put_batch(batch(2, 6))  # the group may be behind the table
    other.precommit({PLACE: 6})
    assert lake.ids() == [0, 1, 2, 3, 4, 5, 100, 101, 102, 103]


@pytest.mark.promise("connect", "Tables: after crashes and takeovers at any point, each record is there once")
@pytest.mark.parametrize("seed", range(2))
def test_crashes_anywhere_leave_each_record_once(lake: Lake, seed: int) -> None:
    chance = random.Random(seed)
    group = 0
    while group < 60:
        task, offsets = lake.task(flush_size="7")
        at = offsets.get(PLACE, group)
        for _ in range(chance.randrange(1, 5)):
            end = min(60, at + chance.randrange(1, 12))
            if chance.random() < 0.5:
                task.put(items(at, end))
            else:
                task.put_batch(batch(at, end))
            at = end
            if chance.random() < 0.4:
                done = task.precommit({PLACE: at})[PLACE]
                if chance.random() < 0.7:  # else it dies between the two commits
                    group = done
    assert lake.ids() == list(range(60))


@pytest.mark.promise("connect", "Tables: after crashes and takeovers at any point, each record is there once")
def test_a_task_that_lost_its_partition_without_noticing_writes_nothing(lake: Lake) -> None:
    first, _ = lake.task(PLACE, ("items", 1))
    first.put(items(0, 3) + items(50, 52, partition=1))
    second, offsets = lake.task()
    assert offsets == {}
    second.put(items(0, 5))
    second.precommit({PLACE: 5})
    assert first.precommit({PLACE: 3, ("items", 1): 52}) == {PLACE: 5, ("items", 1): 52}
    assert first.rewind == {PLACE: 5}
    first.put(items(3, 6))  # what was fetched before the rewind
    first.rewind = {}
    first.put(items(5, 7))
    first.precommit({PLACE: 7})
    assert lake.ids() == [0, 1, 2, 3, 4, 5, 6, 50, 51]


def test_a_commit_that_failed_is_repeated_with_the_same_rows(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, _ = lake.task(flush_size="4")
    table = task._tables["items"]
    append = table.append
    for lost_answer in (False, True):

        def away(rows: Any, spans: Any, lost: bool = lost_answer) -> None:
            if lost:
                append(rows, spans)
            raise RetriableError("the store is away")

        first = 10 if lost_answer else 0
        with monkeypatch.context() as patch:
            patch.setattr(table, "append", away)
            with pytest.raises(RetriableError):
                task.put(items(first, first + 5))
        task.put(items(first, first + 5))
        task.precommit({PLACE: first + 5})
        task.rewind = {}
        if not lost_answer:
            task.put(items(5, 10))
            task.precommit({PLACE: 10})
    task.put(items(14, 15))
    task.precommit({PLACE: 15})
    assert lake.ids() == list(range(15))


@pytest.mark.promise("connect", "Tables: columns follow the schema of the records")
def test_columns_are_added_when_the_schema_has_more(lake: Lake) -> None:
    inner = struct_schema({"a": INT32_SCHEMA})
    wider = struct_schema({"a": INT32_SCHEMA, "b": STRING_SCHEMA.as_optional()})
    old = struct_schema({"id": INT32_SCHEMA, "part": inner})
    new = struct_schema({"id": INT32_SCHEMA, "size": FLOAT64_SCHEMA.as_optional(), "part": wider})
    task, _ = lake.task()
    task.put([record(0, {"id": 0, "part": {"a": 1}}, old)])
    task.put([record(1, {"id": 1, "size": 0.5, "part": {"a": 2, "b": "x"}}, new)])
    task.put([record(2, {"id": 2, "part": {"a": 3}}, old)])  # a producer that was not upgraded yet
    task.precommit({PLACE: 3})
    again, offsets = lake.task()
    assert offsets == {PLACE: 3}
    again.put([record(3, {"id": 3, "size": 1.5, "part": {"a": 4, "b": None}}, new)])
    again.precommit({PLACE: 4})
    rows = sorted(lake.table().to_pylist(), key=lambda row: row["id"])
    assert [(row["id"], row["size"], row["part"]) for row in rows] == [
        (0, None, {"a": 1, "b": None}),
        (1, 0.5, {"a": 2, "b": "x"}),
        (2, None, {"a": 3, "b": None}),
        (3, 1.5, {"a": 4, "b": None}),
    ]


@pytest.mark.promise("connect", "Tables: columns follow the schema of the records")
def test_a_wider_integer_widens_an_iceberg_column_and_must_fit_a_delta_column(lake: Lake) -> None:
    task, _ = lake.task()
    bad: list[int] = []
    task.report = lambda each, error: bad.append(each.original_offset)
    wide = struct_schema({"id": INT64_SCHEMA, "name": STRING_SCHEMA.as_optional()})
    task.put([*items(0, 1), record(1, {"id": 1}, wide), record(2, {"id": 1 << 40}, wide)])
    task.precommit({PLACE: 3})
    assert (lake.ids(), bad) == (([0, 1], [2]) if lake.kind == "delta" else ([0, 1, 1 << 40], []))


@pytest.mark.promise("connect", "Tables: columns follow the schema of the records")
def test_values_without_a_schema_show_their_columns(lake: Lake) -> None:
    task, _ = lake.task()
    bad: list[tuple[int, str]] = []
    task.report = lambda each, error: bad.append((each.original_offset, str(error)))
    values: list[Any] = [
        {"id": 1, "tags": [], "note": None}, {"id": 2, "tags": ["a"], "note": "x"}, {"id": "three"},
        {"id": 4, "deep": {"n": 1.5}}, None, {"id": 6, "deep": {"m": True}}, "text", {},
    ]  # fmt: skip
    for offset, value in enumerate(values):
        task.put([record(offset, value, None)])
    task.precommit({PLACE: len(values)})
    assert [offset for offset, _ in bad] == [2, 4, 6] and "id" in bad[0][1]
    rows = [row for row in lake.table().to_pylist() if row["id"] is not None]
    assert [(row["id"], row["note"]) for row in sorted(rows, key=lambda row: row["id"])] == [
        (1, None), (2, "x"), (4, None), (6, None),
    ]  # fmt: skip
    assert next(row["deep"] for row in rows if row["id"] == 6) == {"n": None, "m": True}
    assert next(row["tags"] for row in rows if row["id"] == 2) == ["a"]


def test_records_without_a_value_can_be_skipped(lake: Lake) -> None:
    task, _ = lake.task(behavior_on_null_values="ignore")
    task.put([record(0, None), *items(1, 3), record(3, None)])
    task.put([record(4, None)])
    task.precommit({PLACE: 5})
    assert lake.ids() == [1, 2] and lake.task()[1] == {PLACE: 5}


def test_types_and_record_columns(lake: Lake) -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=datetime.UTC)
    schema = struct_schema(
        {
            "price": decimal_schema(2), "day": DATE_SCHEMA, "moment": TIMESTAMP_SCHEMA, "time": TIME_SCHEMA,
            "tags": array_schema(STRING_SCHEMA), "counts": map_schema(STRING_SCHEMA, INT64_SCHEMA),
            "small": INT16_SCHEMA, "item": ITEM,
        }
    )  # fmt: skip
    value = {
        "price": decimal.Decimal("12.50"), "day": moment.date(), "moment": moment, "time": moment.time(),
        "tags": ["a"], "counts": {"x": 1}, "small": 7, "item": {"id": 1, "name": None},
    }  # fmt: skip
    task, _ = lake.task(record_columns="key,partition,offset,timestamp,topic")
    task.put([record(5, value, schema), record(6, value, schema)])
    task.precommit({PLACE: 7})
    row, _ = sorted(lake.table().to_pylist(maps_as_pydicts="strict"), key=lambda each: each["kafka_offset"])
    time = datetime.datetime.fromtimestamp((BEGIN + 5) / 1000, datetime.UTC)
    extra = {"kafka_key": "k5", "kafka_partition": 0, "kafka_offset": 5, "kafka_topic": "items"}
    shown = moment.time().isoformat() if lake.kind == "delta" else moment.time()
    assert row == {**value, "time": shown, **extra, "kafka_timestamp": time}


def test_a_delta_table_in_s3_compatible_storage(s3_server: str, name: str) -> None:
    bucket = name.lower()[-40:].strip("-")
    fs.S3FileSystem(
        endpoint_override=s3_server.partition("://")[2], scheme="http", allow_bucket_creation=True,
        access_key="a", secret_key="b", region="us-east-1",
    ).create_dir(bucket)  # fmt: skip
    lake = Lake("delta", {"url": f"s3://{bucket}/lake", "s3.endpoint": s3_server, **LOGIN})
    assert TableSink.validate(lake.settings) == {}
    task, _ = lake.task()
    for first in (0, 4):
        task.put(items(first, first + 4))
        task.precommit({PLACE: first + 4})
    assert lake.ids() == list(range(8)) and lake.task()[1] == {PLACE: 8}
    iceberg = {**lake.settings, "format": "iceberg"}
    assert list(TableSink.validate(iceberg)) == ["iceberg.catalog.uri"]


def test_bad_settings_are_named(tmp_path: Path) -> None:
    good = {"name": "sink", "url": str(tmp_path), "topics": "a"}
    assert TableSink.validate(good) == {} and TableSink.validate({**good, "format": "iceberg"}) == {}
    assert list(TableSink.validate({**good, "url": "ftp://host/x"})) == ["url"]
    broken = {**good, "format": "iceberg", "iceberg.catalog.type": "no-such-type"}
    assert list(TableSink.validate(broken)) == ["iceberg.catalog.type"]
