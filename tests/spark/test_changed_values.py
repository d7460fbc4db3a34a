"""A query in which one value was changed is another query, however much the value looks like an id."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.spark.state_plans import SCHEMA, decision, print_of

pytestmark = pytest.mark.timeout(600)

ONE, TWO = "0a1b2c3d-0000-4000-8000-00000000000a", "0a1b2c3d-0000-4000-8000-00000000000b"
FEW = ", ".join(f"'0a1b2c3d-0000-4000-8000-0000000000{at}'" for at in range(10, 22))
OTHERS = ", ".join(f"'0a1b2c3d-0000-4000-8000-0000000000{at}'" for at in range(30, 42))

CHANGES = {
    "LIKE ANY of a UUID": (f"car LIKE ANY ('{ONE}%', 'b_')", f"car LIKE ANY ('{TWO}%', 'b_')"),
    "LIKE ANY": ("car LIKE ANY ('a#1_', 'b_')", "car LIKE ANY ('a#2_', 'b_')"),
    "LIKE ALL": ("car LIKE ALL ('a#1_', '_b_')", "car LIKE ALL ('a#2_', '_b_')"),
    "NOT LIKE ANY": ("car NOT LIKE ANY ('a#1_', 'b_')", "car NOT LIKE ANY ('a#2_', 'b_')"),
    "an option of to_csv": (
        "to_csv(struct(car, id), map('sep', '#1')) > 'a'", "to_csv(struct(car, id), map('sep', '#2')) > 'a'"
    ),
    "an option of from_json": (
        "from_json(car, 'd DATE', map('dateFormat', 'yyyy#1')).d > DATE'2020-01-01'",
        "from_json(car, 'd DATE', map('dateFormat', 'yyyy#2')).d > DATE'2020-01-01'",
    ),
    "a value of a scalar subquery": (
        "speed > (SELECT count(1) FROM VALUES ('#1') AS t (x) WHERE x = '#1')",
        "speed > (SELECT count(1) FROM VALUES ('#2') AS t (x) WHERE x = '#1')",
    ),
    "a condition of a scalar subquery": (
        "speed > (SELECT count(1) FROM VALUES ('#1') AS t (x) WHERE x LIKE ANY ('#1', 'b_'))",
        "speed > (SELECT count(1) FROM VALUES ('#1') AS t (x) WHERE x LIKE ANY ('#2', 'b_'))",
    ),
    "IN": ("car IN ('a#1', 'b')", "car IN ('a#2', 'b')"),
    "a large IN": (f"car IN ({FEW})", f"car IN ({OTHERS})"),
    "an array": ("array_contains(array('#1', 'b'), car)", "array_contains(array('#2', 'b'), car)"),
    "where an array is cut": ("array_contains(array('a,b'), car)", "array_contains(array('a', 'b'), car)"),
    "a map": ("map('a#1', 'x')[car] = 'x'", "map('a#2', 'x')[car] = 'x'"),
    "a struct": ("struct(car, id) = struct('a#1', 1)", "struct(car, id) = struct('a#2', 1)"),
    "structs in an array": (
        "array_contains(array(struct('a#1', 1)), named_struct('col1', car, 'col2', id))",
        "array_contains(array(struct('a#2', 1)), named_struct('col1', car, 'col2', id))",
    ),
    "an array in a CASE": (
        "array_contains(CASE WHEN id > 1 THEN array('#1') ELSE array('b') END, car)",
        "array_contains(CASE WHEN id > 1 THEN array('#2') ELSE array('b') END, car)",
    ),
    "bytes": ("CAST(car AS BINARY) = X'0102'", "CAST(car AS BINARY) = X'0103'"),
    "bytes in an array": (
        "array_contains(array(X'0102', X'03'), CAST(car AS BINARY))",
        "array_contains(array(X'0104', X'03'), CAST(car AS BINARY))",
    ),
    "null and its name": ("car <=> 'NULL'", "car <=> CAST(NULL AS STRING)"),
    "a seed": ("rand(1) > 0.5", "rand(2) > 0.5"),
    "a seed of a range": ("uniform(1, 20, 3) > id", "uniform(1, 20, 4) > id"),
    "a seed of an order": ("shuffle(tags, 1)[0] = 'x'", "shuffle(tags, 2)[0] = 'x'"),
    "a shuffled array": ("shuffle(tags, 1)[0] = 'x'", "shuffle(array(car), 1)[0] = 'x'"),
}  # fmt: skip

KINDS = ("streaming table", "sink")
# A change is compared in the same way whatever kind of dataset has the query: each is with one of them here.
KINDS_AND_CHANGES = [
    pytest.param(kind, change, marks=[pytest.mark.long] if (at + turn) % 2 else [])
    for at, change in enumerate(CHANGES)
    for turn, kind in enumerate(KINDS)
]


@pytest.fixture
def rides(spark: SparkSession, tmp_path: Path) -> DataFrame:
    (tmp_path / "rides").mkdir()
    return spark.readStream.schema(SCHEMA).json(str(tmp_path / "rides"))


@pytest.mark.promise(
    "pipelines",
    "Values in a query are compared literally, even if they look like an id: in patterns, lists, sets, "
    "maps, options, binary literals and subqueries",
)
@pytest.mark.parametrize(("kind", "change"), KINDS_AND_CHANGES)
def test_a_changed_value_is_a_changed_query(
    spark: SparkSession, rides: DataFrame, kind: str, change: str
) -> None:
    def of(condition: str, stateful: bool) -> DataFrame:
        kept = rides.where(condition)
        return kept.groupBy("id").count() if stateful else kept

    for stateful in (False, True):
        then, now, again = (
            print_of(spark, of(condition, stateful), kind=kind)
            for condition in (CHANGES[change][0], CHANGES[change][1], CHANGES[change][0])
        )
        assert decision(then, now).action == ("rebuild" if stateful else "restart")
        assert decision(then, again).action == "keep"


@pytest.mark.promise("pipelines", "An unchanged query keeps its state, whatever is random in its plan")
@pytest.mark.parametrize("condition", ["rand() > 0.5", "uniform(1, 20) > id", "uuid() > car",
                                       "shuffle(tags)[0] = 'x'"])  # fmt: skip
def test_a_seed_that_nobody_gave_is_no_change(spark: SparkSession, rides: DataFrame, condition: str) -> None:
    then, again = (print_of(spark, rides.where(condition).groupBy("id").count()) for _ in range(2))
    assert decision(then, again).action == "keep"


def test_the_seed_of_a_sample_counts_if_it_was_given(spark: SparkSession, rides: DataFrame) -> None:
    one, other = (print_of(spark, rides.sample(0.5, seed).groupBy("id").count()) for seed in (1, 2))
    assert decision(one, other).action == "rebuild"
    then, again = (print_of(spark, rides.sample(0.5).groupBy("id").count()) for _ in range(2))
    assert decision(then, again).action == "keep"


def test_bytes_of_a_small_table_that_is_joined_count(spark: SparkSession, rides: DataFrame) -> None:
    def joined(value: str) -> DataFrame:
        table = spark.sql(f"SELECT * FROM VALUES ('a', X'{value}') AS t (car, weight)")
        return rides.join(table, "car").groupBy("weight").count()

    then, again, now = (print_of(spark, joined(value)) for value in ("0102", "0102", "0103"))
    assert decision(then, again).action == "keep"
    assert decision(then, now).action == "rebuild"


def test_columns_that_become_rows_are_followed_to_their_source(spark: SparkSession, rides: DataFrame) -> None:
    def turned(*values: str) -> DataFrame:
        wide = rides.select("car", "id", "speed", (F.col("id") + 1).alias("next"))
        return wide.unpivot(["car"], list(values), "name", "value").groupBy("name").agg(F.sum("value"))

    then, again = print_of(spark, turned("id", "speed")), print_of(spark, turned("id", "speed"))
    assert decision(then, again).action == "keep"
    for other in (("id", "next"), ("id", "speed", "next"), ("speed", "id")):
        assert decision(then, print_of(spark, turned(*other))).action == "rebuild", other


# -- the columns of a source


@pytest.mark.promise(
    "pipelines",
    "A changed set of source columns is a change of the query: a query that passes whole rows on is "
    "restarted with the new columns",
)
@pytest.mark.parametrize("kind", ["streaming table", "sink"])
def test_other_columns_of_a_source_are_a_change(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    (tmp_path / "in").mkdir()

    def whole(schema: str, stateful: bool) -> DataFrame:
        rows = spark.readStream.schema(schema).json(str(tmp_path / "in"))
        return rows.withWatermark("t", "1 hour").dropDuplicatesWithinWatermark(["k"]) if stateful else rows

    schema = "k STRING, t TIMESTAMP, x INT"
    for stateful in (False, True):
        then = print_of(spark, whole(schema, stateful), kind=kind)
        for other in (
            "k STRING, t TIMESTAMP, x STRING",
            "k STRING, t TIMESTAMP, y INT",
            f"{schema}, b STRING",
        ):
            change = decision(then, print_of(spark, whole(other, stateful), kind=kind))
            rebuilt = stateful and kind == "streaming table"  # its rows were written with the columns before
            assert change.action == ("rebuild" if rebuilt else "restart"), other
        assert decision(then, print_of(spark, whole(schema, stateful), kind=kind)).action == "keep"


def test_a_column_that_nothing_uses_does_not_rebuild_a_table(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()

    def counted(schema: str) -> DataFrame:
        return spark.readStream.schema(schema).json(str(tmp_path / "in")).groupBy("a").count()

    then, now = print_of(spark, counted("a INT")), print_of(spark, counted("a INT, b STRING"))
    assert decision(then, now).action == "restart"
