"""Delta tables that queries keep: append and upsert, once, whoever else writes."""

from __future__ import annotations

import datetime
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.spark import delta
from penstock.spark.errors import BadOption, BadRow, BatchChanged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return DeltaTable(str(path)).to_pyarrow_table().to_pylist()


@pytest.mark.promise(
    "spark sinks",
    "A micro-batch is added to a Delta table once, also when two runs write it at the same time and "
    "among other writers",
)
def test_a_query_appends_each_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    table, source = tmp_path / "table", tmp_path / "in"
    source.mkdir()

    def run() -> None:
        query = spark.readStream.text(str(source)).writeStream.foreachBatch(delta.writer(str(table)))
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        query.start().awaitTermination()

    for name in ("a", "b"):
        (source / name).write_text("".join(f"{name}{i}\n" for i in range(20)))
        run()
    # As after a crash between the table's commit and Spark's own note that the batch is done.
    for file in (tmp_path / "checkpoint" / "commits").iterdir():
        file.unlink()
    run()
    assert sorted(row["value"] for row in rows_of(table)) == sorted(
        f"{n}{i}" for n in "ab" for i in range(20)
    )
    # The application transaction is the query's, and Spark reads what is there.
    assert delta.read(spark, str(table)).count() == 40


@pytest.mark.promise("spark sinks", "An upsert keeps the last row for each key")
def test_an_upsert_keeps_the_last_row_of_each_key(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    write = delta.writer(path, mode="upsert", key=["Id", "a b"], app_id="q", delete="s.op = 'd'")
    schema = "Id int, `a b` string, op string, v int"

    def batch(rows: list[tuple[Any, ...]], number: int) -> None:
        write(spark.createDataFrame(rows, schema).coalesce(1), number)

    batch([(1, "x", "u", 1), (1, "x", "u", 2), (2, "x", "u", 3), (3, "x", "d", 0)], 0)
    batch([(2, "x", "d", 0), (1, "x", "u", 5), (1, "y", None, 6)], 1)
    batch([(1, "x", "u", 99)], 1)  # the same batch again: it has been written
    assert {(r["Id"], r["a b"], r["v"]) for r in rows_of(Path(path))} == {(1, "x", 5), (1, "y", 6)}
    with pytest.raises(BatchChanged, match="has batch 1 of q already, and this is batch 0"):
        batch([], 0)
    with pytest.raises(BadRow, match="column Id is null in 1 rows"):
        batch([(None, "x", "u", 1)], 2)


@pytest.mark.promise("spark sinks", "An upsert keeps the last row for each key")
def test_the_order_columns_decide_which_row_is_last() -> None:
    rows = pa.table({"k": [1, 1, 2, 1], "at": [3, 9, 1, 9], "v": ["a", "b", "c", "d"]})
    by_position = delta.last_of_each_key(rows, ["k"])
    assert sorted(by_position["v"].to_pylist()) == ["c", "d"]
    by_time = delta.last_of_each_key(rows.take([1, 3, 2, 0]), ["k"], ["at"])
    assert sorted(by_time["v"].to_pylist()) == ["c", "d"]


def test_all_types_survive_and_other_readers_see_them(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    df = spark.sql(
        "select 1L as big, 2 as small, 1.5D as number, cast(1.25 as decimal(10, 2)) as money, 'text' as text,"
        " cast('bytes' as binary) as bytes, true as yes, date'2013-01-02' as day,"
        " timestamp'2013-01-02 03:04:05' as at, array(1, 2) as list, named_struct('a', 1, 'b', 'x') as both,"
        " map('k', 1) as pairs"
    )
    delta.writer(path, app_id="q")(df, 0)
    (row,) = rows_of(Path(path))
    assert row["at"] == datetime.datetime(2013, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    assert (row["big"], row["bytes"], row["list"], row["both"]) == (1, b"bytes", [1, 2], {"a": 1, "b": "x"})
    assert DeltaTable(path).to_pandas()["text"].tolist() == ["text"]
    again = delta.read(spark, path)
    assert again.schema.simpleString() == df.schema.simpleString()
    assert again.collect() == df.collect()


def test_new_columns_are_added_when_asked_and_refused_otherwise(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    delta.writer(path, app_id="q")(spark.createDataFrame([(1,)], "a int"), 0)
    wider = spark.createDataFrame([(2, "x")], "a int, b string")
    with pytest.raises(BadOption, match="has no column b: set merge_schema=True"):
        delta.writer(path, app_id="q")(wider, 1)
    with pytest.raises(BadOption, match="column a is integer in the table and string in the query"):
        delta.writer(path, app_id="q")(spark.createDataFrame([("x",)], "a string"), 1)
    delta.writer(path, app_id="q", merge_schema=True)(wider, 1)
    upsert = delta.writer(path, mode="upsert", key=["a"], app_id="u", merge_schema=True)
    upsert(spark.createDataFrame([(2, "y", 1.5)], "a int, b string, c double"), 0)
    assert {tuple(row) for row in delta.read(spark, path).select("a", "b", "c").collect()} == {
        (1, None, None),
        (2, "y", 1.5),
    }


def test_a_partitioned_table_is_partitioned(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    write = delta.writer(path, partition_by=["day"], app_id="q")
    for batch in (0, 1, 1):
        write(spark.createDataFrame([(1, "mon"), (2, "tue")], "v int, day string"), batch)
    assert DeltaTable(path).metadata().partition_columns == ["day"]
    assert sorted(tuple(r) for r in delta.read(spark, path).select("v", "day").collect()) == [
        (1, "mon"), (1, "mon"), (2, "tue"), (2, "tue"),
    ]  # fmt: skip


@pytest.mark.promise(
    "spark sinks",
    "A micro-batch is added to a Delta table once, also when two runs write it at the same time and "
    "among other writers",
)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_commit_that_another_writer_was_before_is_tried_again(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    path = str(tmp_path / "table")
    theirs = pa.table({"k": pa.array([1], pa.int32()), "v": ["theirs"]})
    disturbed = []

    class Disturbed(delta.DeltaWriter):
        """Lets another writer in between the look at the table and the commit."""

        def _prepare(self, *args: Any) -> Any:
            commit = super()._prepare(*args)
            write_deltalake(path, theirs, mode="append")
            disturbed.append(1)
            return commit

    options: dict[str, Any] = {
        "order_by": (), "delete": None, "partition_by": (), "merge_schema": False, "flags": (),
        "storage_options": {},
    }  # fmt: skip
    write = Disturbed(path, mode, ("k",) if mode == "upsert" else (), app_id="q", **options)
    for batch in range(3):
        write(spark.createDataFrame([(1, "ours")], "k int, v string"), batch)
    values = sorted(row["v"] for row in rows_of(Path(path)))
    assert len(disturbed) == 3
    # An upsert saw what the other had just added under its key; what was appended stands beside it.
    assert values == (["ours"] * 3 if mode == "upsert" else ["ours"] * 3 + ["theirs"] * 3)


@pytest.mark.promise(
    "spark sinks",
    "A micro-batch is added to a Delta table once, also when two runs write it at the same time and "
    "among other writers",
)
def test_of_two_runs_of_one_batch_one_counts(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    df = spark.createDataFrame([(i,) for i in range(10)], "k int")
    runs = [threading.Thread(target=delta.writer(path, app_id="q"), args=(df, 0)) for _ in range(4)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert sorted(row["k"] for row in rows_of(Path(path))) == list(range(10))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "replace"}, "must be append or upsert"),
        ({"mode": "upsert"}, "needs one"),
        ({"key": ["k"]}, "of that mode only"),
        ({"delete": "true"}, "are for mode='upsert'"),
    ],
)
def test_contradictions_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(BadOption, match=says):
        delta.writer("nowhere", **options)


def test_a_missing_column_and_a_missing_table_are_named(spark: SparkSession, tmp_path: Path) -> None:
    from penstock.spark.errors import SparkError

    df: DataFrame = spark.range(1)
    with pytest.raises(BadOption, match="no column k among id"):
        delta.writer(str(tmp_path / "t"), mode="upsert", key=["k"], app_id="q")(df, 0)
    with pytest.raises(SparkError, match="is not a Delta table"):
        delta.read(spark, str(tmp_path / "none"))
    with pytest.raises(SparkError, match="give the writer an app_id"):
        delta.writer(str(tmp_path / "t"))(df, 0)
