"""Times in records that are JSON: as exact as the columns that they come from."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.sql.catalog.catalog import Relation
from penstock.sql.catalog.relations import key_text, value_column
from penstock.sql.continuous.planning import KEY_PREFIX, Shape
from penstock.sql.continuous.writing import _text, stream_records
from penstock.sql.language.statements import Column


@pytest.mark.promise("sql", "Two rows whose timestamps differ by a microsecond have two keys and two values")
def test_times_of_one_millisecond_are_two_keys_and_two_values(spark: SparkSession) -> None:
    target = Relation("t", "table", "t", (Column("k", "STRING"), Column("at", "TIMESTAMP"),
                                          Column("plain", "TIMESTAMP_NTZ")))  # fmt: skip
    rows = spark.range(1, 3).selectExpr(
        "'a' AS k",
        "timestamp_micros(1735689600123000 + id) AS at",
        "CAST(timestamp_micros(1735689600123000 + id) AS TIMESTAMP_NTZ) AS plain",
    )
    names = [each.name for each in target.columns]
    parts = [f"{KEY_PREFIX}{at}" for at in range(2)]
    keyed = rows.withColumns({parts[0]: F.col("k"), parts[1]: F.col("at")})
    shape = Shape("append", (), {}, (), tuple(parts), key_names=("k", "at"))
    inside = keyed.drop(parts[1]).withColumn(parts[0], F.struct("k", "plain"))
    for written in (
        rows.select(key_text(["k", "at"])),
        rows.select(key_text(["k", "plain"])),
        rows.select(key_text(["at"])),
        rows.select(value_column(target, names)),
        rows.select(_text(target)),
        stream_records(keyed, shape, target).select("key"),
        stream_records(inside, Shape("append", (), {}, (), (parts[0],)), target).select("key"),
    ):
        assert len({row[0] for row in written.collect()}) == 2
    said = [json.loads(row[0]) for row in rows.select(value_column(target, names)).collect()]
    assert said[0] == {"k": "a", "at": "2025-01-01T00:00:00.123001Z", "plain": "2025-01-01T00:00:00.123001"}
