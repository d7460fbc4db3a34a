"""What the SQL rewrite makes of Penstock's clauses runs in Spark as streaming queries and means the same."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.sql.language.parser import parse
from penstock.sql.language.spark_text import to_spark
from penstock.sql.language.statements import Query, Select
from penstock.sqltext.identifiers import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

START = datetime(2024, 1, 1, tzinfo=UTC)
COLUMNS = "id STRING, v INT, __key STRING, __timestamp TIMESTAMP"
LATE = ("zz", 9, 3000)
"""Far behind the others, so that the watermark passes all of them."""


def query(text: str) -> Query:
    (statement,) = parse(text)
    assert isinstance(statement, Select)
    return statement.query


def stream(spark: SparkSession, where: Path, name: str, *records: tuple[str, int, int]) -> None:
    """A streaming view with one record for each (id, v, second)."""
    where.mkdir()
    rows = [
        {"id": id_, "v": v, "__key": id_, "__timestamp": (START + timedelta(seconds=second)).isoformat()}
        for id_, v, second in records
    ]
    (where / "a.json").write_text("\n".join(map(json.dumps, rows)))
    frame = spark.readStream.schema(COLUMNS).json(str(where))
    frame.withWatermark("__timestamp", "0 seconds").createOrReplaceTempView(quoted(name))


def run(spark: SparkSession, text: str, mode: str, checkpoint: Path) -> list[dict[str, Any]]:
    """The rows of a streaming query over all that is there."""
    rows: list[dict[str, Any]] = []

    def keep(frame: Any, _: int) -> None:
        rows.extend(row.asDict() for row in frame.collect())

    started = (
        spark.sql(text).writeStream.foreachBatch(keep).outputMode(mode).trigger(availableNow=True)
        .option("checkpointLocation", str(checkpoint)).start()
    )  # fmt: skip
    assert started.awaitTermination(200)
    return rows


@pytest.mark.promise("sql", "`WINDOW`, `WITHIN` and `HAVING` have their documented meaning in Spark")
def test_windows_close_at_the_watermark_and_tell_their_bounds(spark: SparkSession, tmp_path: Path) -> None:
    stream(spark, tmp_path / "s", "page-views", ("a", 1, 0), ("a", 2, 10), ("b", 3, 70), LATE)
    found = query(
        "SELECT x.id, count(*) AS n, sum(v) total, WINDOWSTART FROM `page-views` x"
        " WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 0 SECONDS) GROUP BY x.id"
        " HAVING total > 2 AND WINDOWEND > '2024-01-01' EMIT FINAL"
    )
    rows = run(spark, to_spark(found, window_columns=True).text, "append", tmp_path / "c")
    assert sorted(
        (row["id"], row["n"], row["window_start"].minute, row["window_end"].minute) for row in rows
    ) == [
        ("a", 2, 0, 1),
        ("b", 1, 1, 2),
    ]


@pytest.mark.promise("sql", "`WINDOW`, `WITHIN` and `HAVING` have their documented meaning in Spark")
def test_sessions_end_after_a_pause(spark: SparkSession, tmp_path: Path) -> None:
    stream(spark, tmp_path / "s", "s", ("a", 1, 0), ("a", 2, 10), ("a", 3, 70), LATE)
    found = query(
        "SELECT id, count(*) AS n, WINDOWEND FROM s WINDOW SESSION (20 SECONDS) GROUP BY id EMIT FINAL"
    )
    rows = run(spark, to_spark(found, window_columns=True).text, "append", tmp_path / "c")
    assert sorted((row["n"], row["window_start"].second, row["window_end"].second) for row in rows) == [
        (1, 10, 30),
        (2, 0, 30),
    ]


@pytest.mark.promise("sql", "`WINDOW`, `WITHIN` and `HAVING` have their documented meaning in Spark")
def test_within_joins_what_is_near_in_time(spark: SparkSession, tmp_path: Path) -> None:
    stream(spark, tmp_path / "a", "a", ("x", 1, 100), ("x", 2, 200), LATE)
    stream(spark, tmp_path / "b", "b", ("x", 10, 95), ("x", 20, 130), ("x", 30, 260), LATE)
    found = query(
        "SELECT a.v, b.v AS w FROM a LEFT JOIN b WITHIN (10 SECONDS, 30 SECONDS) ON a.id = b.id"
        " PARTITION BY a.id EMIT CHANGES"
    )
    rewritten = to_spark(found, extra=[("__key", "{source}.`__key`")])
    rows = run(spark, rewritten.text, "append", tmp_path / "c")
    assert sorted((row["v"], row["w"] or 0, row["__key"]) for row in rows if row["v"] < 9) == [
        (1, 10, "x"),
        (1, 20, "x"),
        (2, 0, "x"),
    ]


@pytest.mark.promise("sql", "`WINDOW`, `WITHIN` and `HAVING` have their documented meaning in Spark")
def test_a_having_as_a_column_says_which_rows_hold(spark: SparkSession, tmp_path: Path) -> None:
    stream(spark, tmp_path / "s", "s", ("a", 1, 0), ("a", 2, 10), ("b", 3, 70))
    found = query("SELECT id, count(*) AS n FROM s GROUP BY id HAVING n > 1 EMIT CHANGES LIMIT 5")
    assert found.first.having is not None
    text = to_spark(found, extra=[("__keep", found.first.having)], drop_having=True).text
    rows = run(spark, text, "update", tmp_path / "c")
    assert sorted((row["id"], row["n"], row["__keep"]) for row in rows) == [("a", 2, True), ("b", 1, False)]


@pytest.mark.promise("sql", "Errors from Spark point to the position in the user's statement")
def test_what_spark_complains_of_is_found_in_the_users_text(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import AnalysisException

    stream(spark, tmp_path / "s", "s", ("a", 1, 0))
    text = (
        "SELECT id, count(*) n\nFROM s WINDOW TUMBLING (SIZE 1 DAY)\nGROUP BY id\nHAVING n > 1 AND nope = 2"
    )
    found = query(text)
    assert found.first.having is not None
    rewritten = to_spark(found, extra=[("k", found.first.having)], drop_having=True, window_columns=True)
    with pytest.raises(AnalysisException) as caught:
        spark.sql(rewritten.text)
    (context,) = caught.value.getQueryContext()
    place = rewritten.place(context.startIndex())
    assert (place.line, place.column) == (4, 18)
