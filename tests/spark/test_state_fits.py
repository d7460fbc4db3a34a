"""State is kept only for a query that gives with it what it would give if it read everything again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.pipelines.plans import changes
from penstock.pipelines.plans.reruns import rerun_check
from tests.repetitions import times
from tests.spark.state_plans import (
    PARTS,
    SCHEMA,
    Spec,
    Table,
    changed,
    decision,
    feed,
    generated,
    print_of,
    query,
    run,
)

pytestmark = pytest.mark.timeout(600)

SEEDS = range(times(3, 30))
REAL_RUNS = times(1, 40)
"""Changes that are run, of each kind: three runs of a query each, which takes seconds."""


@pytest.fixture
def one_partition(spark: SparkSession):
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before or "2")


def reasons(then: DataFrame, now: DataFrame, spark: SparkSession) -> str:
    change = decision(print_of(spark, then), print_of(spark, now))
    assert change.action == "rebuild", change
    return "; ".join(change.reasons)


@pytest.mark.promise(
    "pipelines",
    "State is kept only for a query that gives the same results with it as a fresh run: a test changes "
    "each expression of generated queries in turn, and expects a rebuild or the same results",
)
@pytest.mark.repeated
def test_each_changed_expression_asks_for_a_rebuild_or_gives_what_a_fresh_run_gives(
    spark: SparkSession, tmp_path: Path, one_partition: None
):
    feed(tmp_path, 1)
    state_kept: dict[tuple[str, str], tuple[Spec, Spec]] = {}
    table_kept: dict[tuple[str, str], tuple[Spec, Spec]] = {}
    for seed in SEEDS:
        spec = generated(seed)
        then = print_of(spark, query(spark, spec, tmp_path))
        again = decision(then, print_of(spark, query(spark, spec, tmp_path)))
        assert again.action == "keep", (spec, again)
        for part, other in changed(spec, seed):
            now = print_of(spark, query(spark, other, tmp_path))
            change = decision(then, now)
            if change.action != "rebuild":
                table_kept.setdefault((part, spec.shape), (spec, other))
            elif change.reasons == (changes._OLD_ROWS,):
                state_kept.setdefault((part, spec.shape), (spec, other))
                assert decision(then, now, keep=True).action == "restart"
    # What is above the state is changed without losing it, but its rows are others.
    assert {part for part, _ in state_kept} >= {"above", "name"}
    assert {part for part, _ in table_kept} >= {"limit"}
    for kept, of_table in ((state_kept, False), (table_kept, True)):
        for (part, shape), (spec, other) in list(kept.items())[:REAL_RUNS]:
            directory = tmp_path / f"{part}-{shape}-{of_table}"
            mode = spec.table_mode if of_table else spec.mode
            table, fresh_table = Table(mode), Table(mode)
            feed(directory, 1)
            run(query(spark, spec, directory), directory / "old", table)
            run(query(spark, other, directory), directory / "fresh", fresh_table)
            if not of_table:  # what comes from now on
                table, fresh_table = Table(mode), Table(mode)
            feed(directory, 2)
            given = run(query(spark, other, directory), directory / "old", table)
            fresh = run(query(spark, other, directory), directory / "fresh", fresh_table)
            assert given == fresh, (part, spec, other)


@pytest.mark.promise(
    "pipelines",
    "A change after the stateful operator, such as HAVING, rebuilds the table, whose rows come from the "
    "previous query, unless the change says to keep them",
)
def test_a_table_has_other_rows_after_a_change_above_its_state(
    spark: SparkSession, tmp_path: Path, one_partition: None
):
    feed(tmp_path, 1)
    spec = Spec()
    then = print_of(spark, query(spark, spec, tmp_path))
    for above in PARTS["above"][1:]:
        other = replace(spec, above=above)
        now = print_of(spark, query(spark, other, tmp_path))
        assert decision(then, now).action == "rebuild", above
    # This is why: keys that no new record touches keep what was written of them.
    one, other = query(spark, spec, tmp_path), query(spark, replace(spec, above="computed"), tmp_path)
    table, fresh = Table("update"), Table("update")
    run(one, tmp_path / "old", table)
    assert run(other, tmp_path / "old", table) != run(other, tmp_path / "fresh", fresh)


# -- what the generated queries do not have in them


@pytest.fixture
def rides(spark: SparkSession, tmp_path: Path) -> DataFrame:
    (tmp_path / "rides").mkdir()
    return spark.readStream.schema(SCHEMA).json(str(tmp_path / "rides"))


@pytest.mark.promise(
    "pipelines",
    "State is kept only for a query that gives the same results with it as a fresh run: a test changes "
    "each expression of generated queries in turn, and expects a rebuild or the same results",
)
def test_a_python_function_beneath_the_state_counts_with_what_it_does(spark: SparkSession, rides: DataFrame):
    def counted(text: str) -> DataFrame:
        names: dict[str, object] = {"__name__": "a_flow"}
        exec(f"def f(car):\n    {text}", names)
        return rides.groupBy(F.udf(names["f"], "string")("car")).count()

    assert reasons(counted("return car[:1]"), counted("return car[:2]"), spark).endswith(
        "a grouping key changed: f(car)"
    )
    same = decision(
        print_of(spark, counted("return car[:1]"), python="1"),
        print_of(spark, counted("# the make\n    return car[:1]"), python="2"),
    )
    assert same.action == "keep"
    # Where its code does not show what it uses, the files of its project stand for that.
    dynamic = counted("return __import__('penstock_' + car).RATE")
    first, again = print_of(spark, dynamic, python="1"), print_of(spark, dynamic, python="1")
    assert decision(first, again).action == "keep"
    assert decision(first, print_of(spark, dynamic, python="2")).action == "rebuild"


@pytest.mark.promise(
    "pipelines",
    "State is kept only for a query that gives the same results with it as a fresh run: a test changes "
    "each expression of generated queries in turn, and expects a rebuild or the same results",
)
def test_functions_that_keep_state_or_make_rows_count_with_what_they_do(
    spark: SparkSession, rides: DataFrame
):
    def mapped(text: str) -> DataFrame:
        names: dict[str, object] = {"__name__": "a_flow"}
        exec(f"def f(frames):\n    for frame in frames:\n        yield {text}", names)
        return rides.select("id").mapInPandas(names["f"], "id INT").groupBy("id").count()

    def stateful(text: str, timeout: str = "NoTimeout") -> DataFrame:
        names: dict[str, object] = {"__name__": "a_flow"}
        exec(f"def f(key, frames, state):\n    for frame in frames:\n        yield {text}", names)
        groups = rides.select("id", "car").groupBy("car")
        return groups.applyInPandasWithState(names["f"], "id INT", "n INT", "append", timeout)

    assert "an operator changed: MapInPandas f" in reasons(mapped("frame"), mapped("frame + 1"), spark)
    assert "FlatMapGroupsInPandasWithState f" in reasons(stateful("frame"), stateful("frame[:1]"), spark)
    reasons(stateful("frame"), stateful("frame", "ProcessingTimeTimeout"), spark)
    again = decision(print_of(spark, stateful("frame")), print_of(spark, stateful("frame")))
    assert again.action == "keep"


@pytest.mark.promise(
    "pipelines",
    "State is kept only for a query that gives the same results with it as a fresh run: a test changes "
    "each expression of generated queries in turn, and expects a rebuild or the same results",
)
def test_columns_of_one_name_are_told_apart(spark: SparkSession, rides: DataFrame, tmp_path: Path):
    (tmp_path / "more").mkdir()
    more = spark.readStream.schema(SCHEMA).json(str(tmp_path / "more"))

    def fast(side: str) -> DataFrame:
        left, right = rides.withWatermark("ended", "1 hour"), more.withWatermark("ended", "1 hour")
        both = left.alias("l").join(right.alias("r"), F.expr("l.id = r.id AND l.ended = r.ended"))
        return both.where(f"{side}.speed > 1").select("l.speed", "r.speed")

    assert "a filter" in reasons(fast("l"), fast("r"), spark)


@pytest.mark.promise(
    "pipelines",
    "State is kept only for a query that gives the same results with it as a fresh run: a test changes "
    "each expression of generated queries in turn, and expects a rebuild or the same results",
)
def test_literals_that_look_like_ids_are_told_apart(spark: SparkSession, rides: DataFrame):
    def of(condition: str) -> DataFrame:
        return rides.where(condition).groupBy("car").count()

    reasons(of("car = 'a#1'"), of("car = 'a#2'"), spark)
    reasons(of("car = 'a@beef'"), of("car = 'a@cafe'"), spark)


@pytest.mark.promise("pipelines", "An unchanged query keeps its state, whatever is random in its plan")
def test_a_query_that_has_the_current_time_in_it_is_compared_as_a_whole(
    spark: SparkSession, rides: DataFrame
):
    recent = rides.where("ended > current_timestamp() - INTERVAL 1 DAY").groupBy("car")
    first, again = print_of(spark, recent.count()), print_of(spark, recent.count())
    assert decision(first, again).action == "keep"
    said = reasons(recent.count(), recent.count().withColumn("n", F.lit(1)), spark)
    assert "uses the current time and is compared as a whole" in said


@pytest.mark.promise("pipelines", "An unchanged query keeps its state, whatever is random in its plan")
def test_what_is_random_with_every_analysis_is_no_change(spark: SparkSession, rides: DataFrame):
    def some() -> DataFrame:
        some = rides.where(F.rand() > 0.5).sample(0.5)
        return some.select(F.transform("tags", lambda tag: F.upper(tag)).alias("t")).groupBy("t").count()

    assert decision(print_of(spark, some()), print_of(spark, some())).action == "keep"


@pytest.mark.promise(
    "pipelines",
    "State is kept only for a query that gives the same results with it as a fresh run: a test changes "
    "each expression of generated queries in turn, and expects a rebuild or the same results",
)
def test_rows_and_tables_that_are_joined_count(spark: SparkSession, rides: DataFrame, tmp_path: Path):
    for name in ("one", "two"):
        spark.range(3).selectExpr("CAST(id AS INT) AS id").write.parquet(str(tmp_path / name))

    def with_files(name: str) -> DataFrame:
        return rides.join(spark.read.parquet(str(tmp_path / name)), "id").groupBy("car").count()

    said = reasons(with_files("one"), with_files("two"), spark)
    assert "a table that it looks up changed" in said
    given = rides.join(spark.createDataFrame([(1,)], "id INT"), "id").groupBy("car").count()
    first, again = print_of(spark, given, python="1"), print_of(spark, given, python="1")
    assert decision(first, again).action == "keep"
    # The plan does not show which rows Python code gave: its files stand for them.
    assert decision(first, print_of(spark, given, python="2")).action == "rebuild"


@pytest.mark.promise(
    "pipelines",
    "State is kept only for a query that gives the same results with it as a fresh run: a test changes "
    "each expression of generated queries in turn, and expects a rebuild or the same results",
)
def test_settings_that_change_what_expressions_give_count_and_others_do_not(
    spark: SparkSession, rides: DataFrame
):
    def hours() -> DataFrame:
        return rides.groupBy(F.hour("ended")).count()

    first = print_of(spark, hours())
    before = {
        name: spark.conf.get(name) for name in ("spark.sql.session.timeZone", "spark.sql.shuffle.partitions")
    }
    try:
        spark.conf.set("spark.sql.shuffle.partitions", "7")
        assert decision(first, print_of(spark, hours())).action == "keep"
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        change = decision(first, print_of(spark, hours()))
        assert change.action == "rebuild"
        assert "a setting changed from spark.sql.session.timeZone=UTC" in str(change)
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))


@pytest.mark.promise(
    "spark sinks",
    "A micro-batch that was written in part and now has other values fails, so that no micro-batch comes "
    "half from one version of a query and half from another",
)
@pytest.mark.parametrize(
    ("aggregate", "check"),
    [
        ("count(1)", "on"), ("sum(speed)", "on"), ("sum(CAST(speed AS DECIMAL(9, 2)))", "on"),
        ("max(car)", "on"),
        ("round(count(DISTINCT car) / max(id), 1)", "on"), ("sum(CAST(speed AS DOUBLE))", "keys"),
        ("round(1 + avg(speed), 1)", "keys"), ("stddev(speed)", "keys"), ("max_by(car, speed)", "keys"),
        ("collect_list(car)", "keys"), ("first(car)", "keys"),
    ],
)  # fmt: skip
def test_what_an_aggregate_gives_again_decides_what_the_sink_compares(
    spark: SparkSession, rides: DataFrame, aggregate: str, check: str
):
    counted = rides.withWatermark("ended", "1 hour").groupBy(F.window("ended", "1 hour"))
    assert rerun_check(counted.agg(F.expr(aggregate).alias("n")).select(F.to_json(F.struct("n")))) == check


def test_what_operators_give_again_decides_what_the_sink_compares(spark: SparkSession, rides: DataFrame):
    assert rerun_check(rides.where("speed > 1").select("id", F.explode("tags"))) == "on"
    assert rerun_check(rides.select("car").distinct()) == "on"
    assert rerun_check(rides.dropDuplicates(["car"])) == "keys"
    assert rerun_check(rides.where(F.rand() > 0.5)) == "off"
