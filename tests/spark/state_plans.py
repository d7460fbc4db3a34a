"""Queries that keep state, made of parts that can be changed one at a time, and what they give."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.pipelines.plans.changes import Change, plan_changes
from penstock.pipelines.plans.fingerprint import FlowPrint, plan_hash, sources_of
from penstock.pipelines.plans.spark_plans import read_query

SCHEMA = "id INT, car STRING, speed INT, ended TIMESTAMP, tags ARRAY<STRING>"


def _ids(count: int) -> str:
    """Strings that look like what Spark puts into the texts of plans, and one key of the rows."""
    return ", ".join(["'ab'", *(f"'0a1b2c3d-0000-4000-8000-0000000000{10 + at}'" for at in range(count))])


PARTS: dict[str, tuple[Any, ...]] = {
    "shape": ("aggregate", "duplicates", "join"),
    "window": (
        None,
        "window(ended, '1 hour')",
        "window(ended, '2 hours')",
        "window(ended, '1 hour', '30 minutes')",
        "window(ended, '1 hour', '1 hour', '10 minutes')",
        "session_window(ended, '10 minutes')",
        "session_window(ended, '20 minutes')",
    ),
    "key": ("car", "substr(car, 1, 1)", "substr(car, 1, 2)", "id % 2", "id % 3", "upper(car)"),
    "filter": (None, "speed > 1", "speed > 2", "car LIKE 'a%'", "speed > 1 AND id < 90"),
    "like_ids": (
        None,
        "car LIKE ANY ('a#1%', 'a%')",
        "car LIKE ANY ('a#2%', 'b%')",
        f"car IN ({_ids(11)})",
        f"car IN ({_ids(12)}, 'aa')",
        "array_contains(array('a#1', 'ab'), car)",
        "array_contains(array('a#2', 'ba'), car)",
        "to_csv(struct(car, speed), map('sep', '#1')) > 'aa#11'",
        "to_csv(struct(car, speed), map('sep', '#2')) > 'aa#11'",
        "speed > (SELECT count(1) FROM VALUES ('#1') AS t (x) WHERE x = '#1')",
        "speed > (SELECT count(1) FROM VALUES ('#2') AS t (x) WHERE x = '#1')",
    ),
    "value": ("speed", "speed * 2", "id", "try_add(speed, 1)", "speed + 1", "try_cast(car AS INT)"),
    "aggregates": (
        ("count(1)", "sum(value)"),
        ("sum(value)", "count(1)"),
        ("max(value)", "count(1)"),
        ("count(1)",),
        ("count(value)",),
        ("count(1) FILTER (WHERE value > 2)", "sum(value)"),
        ("min(value)", "sum(value)"),
    ),
    "delay": (None, "5 minutes", "50 minutes"),
    "generator": (None, "explode(tags)", "explode_outer(tags)"),
    "table": (None, "('a', 1), ('b', 2)", "('a', 1), ('b', 3)"),
    "within": ("1 HOUR", "2 HOURS"),
    "above": ("nothing", "renamed", "turned", "computed", "having", "a condition on the key"),
    "name": ("value", "another"),
    "limit": (1, 2),
}
"""What each part of a query can be: `limit` is of files in a batch, `above` is done above the state."""


@dataclass(frozen=True)
class Spec:
    """One query."""

    shape: str = "aggregate"
    window: str | None = None
    key: str = "car"
    filter: str | None = None
    like_ids: str | None = None
    value: str = "speed"
    aggregates: tuple[str, ...] = ("count(1)", "sum(value)")
    delay: str | None = None
    generator: str | None = None
    table: str | None = None
    within: str = "1 HOUR"
    above: str = "nothing"
    name: str = "value"
    limit: int = 1

    @property
    def mode(self) -> str:
        """That shows the whole state."""
        return "complete" if self.shape == "aggregate" else "append"

    @property
    def table_mode(self) -> str:
        """That a table is written in. Spark has no update mode for sessions."""
        sessions = (self.window or "").startswith("session")
        return "update" if self.mode == "complete" and not sessions else self.mode


def generated(seed: int) -> Spec:
    luck = random.Random(seed)
    spec = Spec(**{name: luck.choice(choices) for name, choices in PARTS.items()})
    return spec if spec.shape == "aggregate" else replace(spec, delay=spec.delay or "5 minutes")


def changed(spec: Spec, seed: int) -> Iterator[tuple[str, Spec]]:
    """The query with each of its parts changed in turn."""
    luck = random.Random(seed)
    for name, choices in PARTS.items():
        others = [each for each in choices if each != getattr(spec, name)]
        yield name, replace(spec, **{name: luck.choice(others)})


def query(spark: SparkSession, spec: Spec, directory: Path) -> DataFrame:
    rows = _input(spark, spec, directory / "in")
    if spec.shape == "aggregate":
        groups = [F.expr(spec.key).alias("k")]
        groups += [F.expr(spec.window).alias("w")] if spec.window else []
        values = [
            F.expr(each.replace("value", spec.name)).alias(f"a{at}")
            for at, each in enumerate(spec.aggregates)
        ]
        return _above(rows.groupBy(*groups).agg(*values), spec, "a0")
    rows = rows.withColumn("k", F.expr(spec.key))
    if spec.shape == "duplicates":
        return _above(rows.dropDuplicates(["k"]).select("k", F.col(spec.name).alias("a0")), spec, "a0")
    other = _input(spark, replace(spec, filter=None, like_ids=None), directory / "other").select(
        F.expr(spec.key).alias("j"), F.col("ended").alias("began")
    )
    near = f"k = j AND began >= ended AND began <= ended + INTERVAL {spec.within}"
    return _above(rows.join(other, F.expr(near)).select("k", F.col(spec.name).alias("a0")), spec, "a0")


def _input(spark: SparkSession, spec: Spec, directory: Path) -> DataFrame:
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", spec.limit).json(str(directory))
    if spec.delay:
        rows = rows.withWatermark("ended", spec.delay)
    if spec.filter:
        rows = rows.where(spec.filter)
    if spec.like_ids:
        rows = rows.where(spec.like_ids)
    if spec.generator:
        rows = rows.select("*", F.expr(spec.generator).alias("tag"))
    value = F.expr(spec.value)
    if spec.table:
        table = spark.sql(f"SELECT * FROM VALUES {spec.table} AS t (kind, weight)")
        rows = rows.join(table, F.expr("substr(car, 1, 1) = kind"))
        value = value * F.col("weight")
    return rows.withColumn(spec.name, value)


def _above(rows: DataFrame, spec: Spec, value: str) -> DataFrame:
    match spec.above:
        case "renamed":
            return rows.withColumnRenamed(value, "other")
        case "turned":
            return rows.select(*reversed(rows.columns))
        case "computed":
            return rows.withColumn(value, F.col(value) * 10)
        case "having":
            return rows.where(F.col(value) > 1)
        case "a condition on the key":
            return rows.where("CAST(k AS STRING) != 'aa'")
    return rows


# -- what is decided


def print_of(
    spark: SparkSession, frame: DataFrame, *, python: str = "", kind: str = "streaming table"
) -> FlowPrint:
    """The print of a flow with this query; `python` stands for the files of its project."""
    read = read_query(spark, frame, opaque=lambda: python)
    return FlowPrint(
        "t", kind, sources_of(read.plan), read.state, tuple(frame.columns),
        plan_hash(read.plan), query=read.query, gives=read.gives, lineage=read.lineage,
    )  # fmt: skip


def decision(then: FlowPrint, now: FlowPrint, *, keep: bool = False) -> Change:
    (change,) = plan_changes({"t": then}, {"t": now}, keep=["t"] if keep else ())
    return change


# -- what comes of it


def feed(directory: Path, number: int) -> None:
    """A file with rows of all keys and windows, some of them also in other files."""
    luck = random.Random(number)
    for name in ("in", "other"):
        target = directory / name
        target.mkdir(parents=True, exist_ok=True)
        lines = [
            {
                "id": at + 10 * number,
                "car": car,
                "speed": luck.randint(1, 5),
                "ended": f"2026-01-01T{8 + at % 3:02d}:{luck.randint(0, 59):02d}:00Z",
                "tags": [["x", "y"], ["x"], []][at % 3],
            }
            for at, car in enumerate(["aa", "ab", "ba", "bb", "7"] * 3)
        ]
        hidden = target / f".{number}"
        hidden.write_text("".join(json.dumps(line) + "\n" for line in lines))
        os.utime(hidden, (number, number))
        hidden.rename(target / f"{number}.json")


@dataclass
class Table:
    """What a query writes: in update mode the newest row of each key, in complete mode its last answer."""

    mode: str
    rows: dict[str, str] = field(default_factory=dict)

    def take(self, batch: DataFrame, number: int) -> None:
        found = [row.asDict(recursive=True) for row in batch.collect()]
        if self.mode == "complete":
            self.rows.clear()
        for row in found:
            key = {name: value for name, value in row.items() if name in ("k", "w")}
            # Names count: a row of before a column was renamed has it under its old name.
            said = str(sorted(row.items(), key=lambda each: each[0]))
            self.rows[str(key) if self.mode == "update" else f"{said} {len(self.rows)}"] = said

    def content(self) -> list[str]:
        return sorted(self.rows.values())


def run(frame: DataFrame, checkpoint: Path, table: Table) -> list[str]:
    """What a table has when a query has read all that is there now."""
    running = (
        frame.writeStream.outputMode(table.mode)
        .option("checkpointLocation", str(checkpoint))
        .foreachBatch(table.take)
        .trigger(availableNow=True)
        .start()
    )
    running.awaitTermination()
    return table.content()
