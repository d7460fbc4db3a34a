"""Pull queries over Delta tables: whatever a writer does, a lookup gives the rows as they are."""

from __future__ import annotations

import contextlib
import random
import shutil
import threading
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake import Field as DeltaField
from deltalake.exceptions import DeltaError
from deltalake.schema import PrimitiveType

from penstock.sql.catalog.catalog import Relation
from penstock.sql.language.statements import Column
from penstock.sql.pull.delta_files import FileImages
from penstock.sql.pull.materialized import NotInMemory
from penstock.sql.pull.plan import Pull

COLUMNS = (Column("k", "STRING"), Column("n", "BIGINT"))


def kept(path, columns=COLUMNS, key=("k",), **fields):
    return Relation("kept", "table", None, tuple(columns), key_columns=key, path=str(path), **fields)


def pull(*keys, conditions=(), limit=None):
    return Pull(tuple(key if isinstance(key, tuple) else (key,) for key in keys), conditions, True, (), limit)


def rows(**pairs):
    return pa.table({"k": list(pairs), "n": pa.array(pairs.values(), pa.int64())})


def upsert(path, new, delete="false"):
    merge = DeltaTable(str(path)).merge(new, "t.k = s.k", source_alias="s", target_alias="t")
    merge = merge.when_matched_delete(delete).when_matched_update_all()
    merge.when_not_matched_insert_all(f"not ({delete})").execute()


@pytest.fixture
def images():
    return FileImages(60)


def test_a_table_of_which_no_batch_is_written_yet_has_no_rows(images, tmp_path):
    path = tmp_path / "t"
    assert images.find(kept(path), pull("a")) == []
    write_deltalake(path, rows(a=1, b=2))
    assert images.find(kept(path), pull("a")) == [{"k": "a", "n": 1}]
    assert images.find(kept(path), pull("b", "x", "a", limit=1)) == [{"k": "b", "n": 2}]
    assert images.find(kept(path), pull("a", conditions=(lambda row: row["n"] > 1,))) == []


@pytest.mark.promise(
    "sql",
    "A pull query on a Delta table sees every committed version, by any writer, and reads only the added "
    "files",
)
def test_rows_are_as_they_are_after_whatever_any_writer_does(images, tmp_path):
    path, chance = tmp_path / "t", random.Random(7)
    names = [f"key{at}" for at in range(60)]

    def some():
        return rows(**{name: chance.randrange(1000) for name in chance.sample(names, chance.randint(1, 20))})

    def append():
        there = set(DeltaTable(path).to_pyarrow_table()["k"].to_pylist())
        write_deltalake(path, rows(**{name: -1 for name in names if name not in there}), mode="append")

    def restore():
        with contextlib.suppress(DeltaError):  # the files may be deleted
            DeltaTable(path).restore(DeltaTable(path).version() - 1)

    steps = [
        lambda: upsert(path, some()),
        lambda: upsert(path, some(), delete="s.n % 2 = 0"),
        lambda: [upsert(path, some()), upsert(path, some(), delete="s.n % 3 = 0")],
        lambda: DeltaTable(path).delete(f"n > {chance.randrange(500, 1000)}"),
        lambda: DeltaTable(path).update({"n": "n + 1"}, predicate="n % 2 = 0"),
        lambda: DeltaTable(path).optimize.compact(),
        lambda: DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False),
        lambda: write_deltalake(path, some(), mode="overwrite"),
        lambda: DeltaTable(path).create_checkpoint(),
        restore,
        append,
    ]
    write_deltalake(path, some())
    for _ in range(8):
        chance.shuffle(steps)
        for step in steps:
            step()
            truth = {row["k"]: row for row in DeltaTable(path).to_pyarrow_table().to_pylist()}
            assert images.find(kept(path), pull(*names)) == [truth[name] for name in names if name in truth]


@pytest.mark.promise(
    "sql",
    "A pull query on a Delta table sees every committed version, by any writer, and reads only the added "
    "files",
)
def test_only_files_that_a_version_adds_are_read(images, tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, rows(a=1))
    assert images.find(kept(path), pull("a")) == [{"k": "a", "n": 1}]
    for file in path.glob("*.parquet"):
        file.unlink()  # who read it again would fail
    write_deltalake(path, rows(b=2), mode="append")
    assert images.find(kept(path), pull("a", "b")) == [{"k": "a", "n": 1}, {"k": "b", "n": 2}]


def test_what_is_missing_is_left_to_spark_and_looked_for_again(images, tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, rows(a=1))
    images.find(kept(path), pull("a"))
    write_deltalake(path, rows(b=2), mode="append")
    newest = max(path.glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    away = newest.rename(tmp_path / "away")
    for _ in range(2):
        with pytest.raises(NotInMemory):
            images.find(kept(path), pull("a"))
    away.rename(newest)
    assert images.find(kept(path), pull("a", "b")) == [{"k": "a", "n": 1}, {"k": "b", "n": 2}]


@pytest.mark.parametrize("versions", [0, 1, 5])
def test_a_table_that_is_made_again_is_another(images, tmp_path, versions):
    path = tmp_path / "t"
    write_deltalake(path, rows(a=1))
    write_deltalake(path, rows(b=2), mode="append")
    assert len(images.find(kept(path), pull("a", "b"))) == 2
    shutil.rmtree(path)
    write_deltalake(path, rows(a=5))
    for at in range(versions):
        write_deltalake(path, rows(**{f"x{at}": at}), mode="append")
    assert images.find(kept(path), pull("a", "b")) == [{"k": "a", "n": 5}]
    shutil.rmtree(path)
    assert images.find(kept(path), pull("a", "b")) == []


def test_columns_that_are_added_leave_the_rows_as_they_are_and_lost_ones_are_told(images, tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, rows(a=1))
    wide = kept(path, (*COLUMNS, Column("more", "INT")))
    with pytest.raises(NotInMemory, match="more"):
        images.find(wide, pull("a"))
    assert images.find(kept(path), pull("a")) == [{"k": "a", "n": 1}]
    DeltaTable(path).alter.add_columns([DeltaField("more", PrimitiveType("integer"))])
    assert images.find(kept(path), pull("a")) == [{"k": "a", "n": 1}]
    assert images.find(wide, pull("a")) == [{"k": "a", "n": 1, "more": None}]


def test_the_key_may_be_what_the_table_is_partitioned_by_and_of_any_type(images, tmp_path):
    path, moment = tmp_path / "t", datetime(2024, 1, 1, 12, tzinfo=UTC)
    table = pa.table(
        {
            "Day": pa.array([date(2024, 1, 1), date(2024, 1, 2)]),
            "at": pa.array([moment, moment], pa.timestamp("us", "UTC")),
            "price": pa.array([Decimal("1.50"), Decimal("2.50")], pa.decimal128(10, 2)),
            "tags": pa.array([["x"], None], pa.list_(pa.string())),
        }
    )
    write_deltalake(path, table, partition_by=["Day"])
    told = kept(
        path,
        (
            Column("day", "DATE"),
            Column("at", "TIMESTAMP"),
            Column("price", "DECIMAL(10,2)"),
            Column("tags", "ARRAY<STRING>"),
        ),
        ("day", "at", "price"),
    )
    found = images.find(told, pull((date(2024, 1, 1), moment, Decimal("1.5"))))
    assert found == [{"day": date(2024, 1, 1), "at": moment, "price": Decimal("1.50"), "tags": ["x"]}]
    assert images.find(told, pull((date(2024, 1, 1), moment, Decimal("2.5")))) == []
    assert images.find(told, pull((date(2024, 1, 1), moment + timedelta(seconds=1), Decimal("1.5")))) == []
    with pytest.raises(NotInMemory):
        images.find(told, pull((date(2024, 1, 1), moment, "of another type")))


def test_rows_of_one_key_come_in_the_order_of_their_windows(images, tmp_path):
    path, start = tmp_path / "t", datetime(2024, 1, 1, tzinfo=UTC)
    for minute in (2, 0, 1):
        new = pa.table(
            {
                "k": ["a", "b"],
                "n": [minute, -1],
                "window_start": pa.array([start + timedelta(minutes=minute)] * 2, pa.timestamp("us", "UTC")),
            }
        )
        write_deltalake(path, new, mode="append")
    told = kept(path, (*COLUMNS, Column("window_start", "TIMESTAMP")), ("k", "window_start"))
    assert [row["n"] for row in images.find(told, pull("a"))] == [0, 1, 2]


def test_tables_without_rows_and_keys_that_are_null(images, tmp_path):
    path = tmp_path / "t"
    DeltaTable.create(path, pa.schema([("k", pa.string()), ("n", pa.int64())]))
    assert images.find(kept(path), pull("a")) == []
    write_deltalake(path, pa.table({"k": [None, "a"], "n": [1, 2]}), mode="append")
    assert images.find(kept(path), pull("a")) == [{"k": "a", "n": 2}]
    DeltaTable(path).delete()
    assert images.find(kept(path), pull("a")) == []


@pytest.mark.promise(
    "sql",
    "A pull query on a Delta table sees every committed version, by any writer, and reads only the added "
    "files",
)
def test_threads_that_ask_while_it_changes_see_whole_versions_that_only_grow(images, tmp_path):
    path = tmp_path / "t"
    write_deltalake(path, rows(a=0, b=0))
    over, wrong = threading.Event(), []

    def ask():
        last = 0
        while not over.is_set():
            a, b = (row["n"] for row in images.find(kept(path), pull("a", "b")))
            if a != b or a < last:
                wrong.append((last, a, b))
            last = a

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(1, 16):
            upsert(path, rows(a=number, b=number))
            found = images.find(kept(path), pull("a"))
            assert found == [{"k": "a", "n": number}], "a lookup sees what was committed before it"
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not wrong


def test_a_table_that_nobody_asks_for_is_let_go(tmp_path):
    now = [0.0]
    images = FileImages(60, lambda: now[0])
    path, other = tmp_path / "t", tmp_path / "other"
    write_deltalake(path, rows(a=1))
    images.find(kept(path), pull("a"))
    now[0] = 100.0
    images.find(Relation("other", "table", None, COLUMNS, key_columns=("k",), path=str(other)), pull("a"))
    assert images.names == ["other"]
    assert images.find(kept(path), pull("a")) == [{"k": "a", "n": 1}]
