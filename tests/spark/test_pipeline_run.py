"""A project's flows are kept running: fed, restarted, refreshed, changed while they run, and stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.spark.pipeline_runs import PipelineRun

pytestmark = pytest.mark.timeout(300)

ORDERS = """
from pyspark import pipelines as dp
from pyspark.sql import functions as F

@dp.table
def orders():
    return spark.readStream.schema("id INT, who STRING, amount INT").json("{source}")
"""


@pytest.fixture
def run(spark, tmp_path: Path) -> Iterator[PipelineRun]:
    pipeline = PipelineRun(spark, tmp_path / "shop")
    pipeline.write("orders.py", ORDERS.format(source=tmp_path / "shop" / "in"))
    pipeline.feed("in", {"id": 1, "who": "ann", "amount": 5}, {"id": 2, "who": "bob", "amount": 7})
    yield pipeline
    pipeline.drop()


@pytest.mark.promise(
    "pipelines", "Tables, views and streams feed each other, in Python and SQL, and continue after a restart"
)
def test_tables_views_and_streams_feed_each_other_and_go_on_after_a_restart(run: PipelineRun):
    run.write(
        "more.sql",
        """CREATE TEMPORARY VIEW large AS SELECT id, who FROM STREAM(orders) WHERE amount > 6;
        CREATE STREAMING TABLE large_orders AS SELECT * FROM STREAM large;
        CREATE MATERIALIZED VIEW totals AS SELECT who, sum(amount) AS amount FROM orders GROUP BY who;
        CREATE MATERIALIZED VIEW richest AS SELECT who FROM totals ORDER BY amount DESC LIMIT 1;""",
    )
    with run.running() as runner:
        run.until(lambda: run.rows("large_orders") == [(2, "bob")] and run.rows("richest") == [("bob",)])
        run.feed("in", {"id": 3, "who": "ann", "amount": 9})
        run.until(
            lambda: run.rows("large_orders") == [(2, "bob"), (3, "ann")] and run.rows("richest") == [("ann",)]
        )
        status = runner.status()
        assert status["state"] == "running"
        assert {flow["name"] for flow in status["flows"]} == {"orders", "large_orders", "totals", "richest"}
    run.feed("in", {"id": 4, "who": "cid", "amount": 8})
    with run.running():
        run.until(lambda: len(run.rows("large_orders")) == 3 and ("cid", 8) in run.rows("totals"))
    assert [row[0] for row in run.rows("orders")] == [1, 2, 3, 4]
    assert run.runner is not None and run.runner.state.status()["state"] == "stopped"


@pytest.mark.promise("pipelines", "Several flows into one table write every row once")
def test_several_flows_into_one_table_each_write_every_row_once(run: PipelineRun):
    run.write(
        "both.py",
        """
from pyspark import pipelines as dp
dp.create_streaming_table("everything")

@dp.append_flow(target="everything")
def once():
    return spark.readStream.table("orders").select("id")

@dp.append_flow(target="everything")
def again():
    return spark.readStream.table("orders").selectExpr("id + 100 AS id")

@dp.table
def copy():
    return spark.readStream.table("everything")
""",
    )
    with run.running() as runner:
        run.until(lambda: sorted(run.rows("copy")) == [(1,), (2,), (101,), (102,)])
        # A batch that is repeated after a crash finds its file and writes nothing.
        flow = runner.flows["once"]
        append = runner.writer._appender(
            flow.graph.target_of(flow.resolved.definition), flow.resolved.definition
        )
        append(run.spark.createDataFrame([(7,)], "id INT"), 0)
        run.feed("in", {"id": 3, "who": "ann", "amount": 1})
        run.until(lambda: len(run.rows("copy")) == 6)
    assert Counter(run.rows("everything")) == Counter(run.rows("copy"))


@pytest.mark.promise(
    "pipelines", "A failed flow restarts from its checkpoint and shows the cause, while others continue"
)
def test_a_flow_that_fails_is_tried_again_while_the_others_go_on_and_heals_when_its_file_is_mended(
    run: PipelineRun,
):
    bad = """
from pyspark import pipelines as dp
from pyspark.sql import functions as F

@F.udf("int")
def checked(amount):
    if amount > {limit}:
        raise ValueError(f"amount {{amount}} is above {limit}")
    return amount

@dp.table
def checked_orders():
    return spark.readStream.table("orders").select("id", checked("amount").alias("amount"))
"""
    run.write("checked.py", bad.format(limit=6))
    with run.running():
        run.until(lambda: run.flow("checked_orders")["restarts"] >= 2)
        assert run.flow("checked_orders")["error"] == "ValueError: amount 7 is above 6"
        assert run.runner is not None and run.runner.status()["state"] == "degraded"
        run.feed("in", {"id": 3, "who": "ann", "amount": 1})
        run.until(lambda: len(run.rows("orders")) == 3)
        run.write("checked.py", bad.format(limit=100))
        run.until(lambda: run.rows("checked_orders") == [(1, 5), (2, 7), (3, 1)])
        plan = run.event("plan")
        assert plan is not None
        changed = {change["flow"]: change for change in plan["changes"]}
        assert changed["checked_orders"]["action"] == "restart"
        assert changed["checked_orders"]["reasons"] == ["its Python code changed"]
        assert changed["orders"]["action"] == "keep"
        run.until(lambda: run.flow("checked_orders")["error"] is None)


CLICKS = """
from pyspark import pipelines as dp

@dp.table
def clicks():
    return spark.readStream.schema("id INT, who STRING, t TIMESTAMP").json("{source}")

@dp.table
def counts():
    clicks = spark.readStream.table("clicks").where("{where}").withWatermark("t", "1 second")
    from pyspark.sql import functions as F
    return clicks.groupBy(F.window("t", "10 seconds"), {keys}).agg(F.count("*").alias("n")).drop("window")
"""


def click(number: int, who: str, second: int) -> dict[str, object]:
    return {"id": number, "who": who, "t": f"2026-01-01T00:00:{second:02d}Z"}


@pytest.mark.promise(
    "pipelines",
    "A change that fits the state is applied immediately; any other change stays pending until it is "
    "applied, while the old version keeps running",
)
def test_a_change_that_fits_the_state_is_applied_at_once_and_one_that_does_not_waits_for_agreement(
    spark, tmp_path: Path
):
    run = PipelineRun(spark, tmp_path / "shop")
    source = tmp_path / "shop" / "clicks"
    version = CLICKS.replace("{source}", str(source))
    run.write("clicks.py", version.format(where="id > 0", keys='"who"'))
    run.feed("clicks", click(1, "ann", 1), click(2, "ann", 2), click(3, "bob", 3))
    try:
        with run.running() as runner:
            run.feed("clicks", click(4, "ann", 15))
            run.until(lambda: run.rows("counts") == [("ann", 2), ("bob", 1)])

            # Another condition above the aggregation: the window that is open goes on from what it has, if
            # somebody says that the rows of before are to stay.
            above = version.replace('.drop("window")', '.where("n > 1").drop("window")')
            run.write("clicks.py", above.format(where="id > 0", keys='"who"'))
            run.until(lambda: [change["flow"] for change in runner.status()["pending"]] == ["counts"])
            assert "written by the query before" in runner.status()["pending"][0]["reasons"][0]
            runner.state.acquire()
            runner.state.request_apply(["counts"], keep=True)
            run.until(lambda: runner.status()["pending"] == [])
            runner.state.release()
            changes = {change["flow"]: change for change in run.event("plan")["changes"]}
            assert (changes["counts"]["action"], changes["counts"]["applied"]) == ("restart", True)
            assert changes["counts"]["reasons"][0].startswith(
                "its state, and the rows that it wrote, are kept"
            )
            run.feed("clicks", click(1, "ann", 16), click(5, "bob", 17))
            run.feed("clicks", click(6, "ann", 30))
            run.until(lambda: run.rows("counts") == [("ann", 2), ("ann", 2), ("bob", 1)])

            # Another filter and other keys: the state does not fit. What runs goes on until somebody agrees.
            run.write("clicks.py", version.format(where="id > 1", keys='"who", "id"'))
            run.until(lambda: [change["flow"] for change in runner.status()["pending"]] == ["counts"])
            assert runner.status()["pending"][0]["action"] == "rebuild"
            why = runner.status()["pending"][0]["reasons"][0]
            assert why.startswith("its state was built from something else: a filter")
            assert "a grouping key is new: id" in why
            assert run.flow("counts")["state"] == "running"
            assert len(run.rows("counts")) == 3
            runner.state.acquire()
            runner.state.request_apply(["counts"])
            run.until(lambda: ("bob", 3, 1) in run.rows("counts") and len(run.rows("counts")) == 4)
            runner.state.release()
            assert sorted(run.rows("counts")) == [("ann", 2, 1), ("ann", 4, 1), ("bob", 3, 1), ("bob", 5, 1)]
            assert runner.status()["pending"] == []
    finally:
        run.drop()


RIDES = """
from pyspark import pipelines as dp
from pyspark.sql import functions as F

@F.udf("int")
def passengers(count):
    return {count}

@dp.table
def rides():
    return spark.readStream.schema("car STRING, count INT, ended TIMESTAMP").json("{source}")

@dp.table
def sums():
    rides = spark.readStream.table("rides").withWatermark("ended", "1 second")
    counted = rides.select("ended", passengers("count").alias("count"))
    return counted.groupBy(F.window("ended", "{size}")).agg(F.sum("count").alias("n")).select("n")
"""


@pytest.mark.long
@pytest.mark.promise(
    "pipelines",
    "State is kept only for a query that gives the same results with it as a fresh run: a test changes "
    "each expression of generated queries in turn, and expects a rebuild or the same results",
)
def test_another_window_or_function_beneath_an_aggregation_is_not_taken_for_one_that_fits(
    spark, tmp_path: Path
):
    run = PipelineRun(spark, tmp_path / "shop")
    version = RIDES.replace("{source}", str(tmp_path / "shop" / "in"))

    def ride(count: int, minute: int) -> dict[str, object]:
        return {"car": "a", "count": count, "ended": f"2026-01-01T{minute // 60:02d}:{minute % 60:02d}:00Z"}

    def asked() -> str:
        """Why the flow asks to be rebuilt."""
        pending = runner.status()["pending"]
        return pending[0]["reasons"][0] if [each["flow"] for each in pending] == ["sums"] else ""

    run.write("rides.py", version.format(size="1 hour", count="count"))
    run.feed("in", ride(9, 10))
    try:
        with run.running() as runner:
            run.until(lambda: len(run.rows("rides")) == 1 and run.flow("sums")["progress"])
            run.write("rides.py", version.format(size="2 hours", count="count"))
            built = "its state was built from something else: "
            changed = "a grouping key changed from window(ended, 1 hour) to window(ended, 2 hours)"
            assert run.until(asked) == built + changed
            # What is written otherwise and does the same needs no agreement.
            same = version.format(size="1 hour", count="count  # of them").replace(
                "def rides", "\n\ndef rides"
            )
            run.write("rides.py", same)
            run.until(lambda: runner.status()["pending"] == [])
            run.write("rides.py", version.format(size="2 hours", count="count * 2"))
            run.until(lambda: "an aggregate changed: sum(passengers(count))" in asked())
            runner.state.acquire()
            runner.state.request_apply(["sums"])
            run.until(lambda: runner.status()["pending"] == [])
            runner.state.release()
            run.feed("in", ride(30, 70), ride(1, 300))
            run.until(lambda: run.rows("sums") == [(78,)])
    finally:
        run.drop()


@pytest.mark.promise(
    "pipelines",
    "A removed flow leaves its table and checkpoint, and the plan says where; if the flow is added "
    "again, its state is kept only for the query that built it. State without a recorded query fits no "
    "query",
)
@pytest.mark.promise("pipelines", "A restarted flow shows its progress before new data arrives")
def test_state_that_waited_while_its_flow_was_removed_or_unrecorded_fits_only_the_query_it_was_built_by(
    spark, tmp_path: Path
):
    run = PipelineRun(spark, tmp_path / "shop")
    version = RIDES.replace("{source}", str(tmp_path / "shop" / "in"))
    rides, sums = version.split("@dp.table\ndef sums")
    sums = "from pyspark import pipelines as dp\nfrom pyspark.sql import functions as F\n" + (
        f"\n@dp.table\ndef sums{sums}".replace('passengers("count").alias("count")', '"count"')
    )

    def ride(count: int, hour: int) -> dict[str, object]:
        return {"car": "a", "count": count, "ended": f"2026-01-01T{hour:02d}:10:00Z"}

    def asked() -> str:
        pending = runner.status()["pending"]
        return pending[0]["reasons"][0] if [each["flow"] for each in pending] == ["sums"] else ""

    def removed() -> None:
        (run.directory / "transformations" / "sums.py").unlink()
        run.until(lambda: "sums" not in runner.flows)

    run.write("rides.py", rides.format(count="count"))
    run.write("sums.py", sums.format(size="1 hour"))
    run.feed("in", ride(9, 0))
    try:
        with run.running() as runner:
            run.until(lambda: run.flow("sums")["progress"])
            removed()
            plan = run.event("plan")
            assert plan is not None
            (gone,) = [each for each in plan["changes"] if each["flow"] == "sums"]
            left = run.directory / "storage" / "_checkpoints" / "spark_catalog" / run.database / "sums"
            assert gone["reasons"] == [
                "it was removed from the files",
                "its table 'sums' stays",
                f"its checkpoint stays in {(left / 'sums').as_uri()}",
            ]
            assert (left / "sums" / "0" / "offsets").is_dir()
            run.write("sums.py", sums.format(size="2 hours"))
            built = run.until(asked)
            assert "a grouping key changed from window(ended, 1 hour) to window(ended, 2 hours)" in built
            # Its own query goes on with it.
            removed()
            run.write("sums.py", sums.format(size="1 hour"))
            run.until(lambda: "sums" in runner.flows and run.flow("sums")["state"] == "running")
            # How far it is, is shown before anything new comes.
            shown = run.flow("sums")["progress"]
            assert shown is not None and shown["batch_id"] in (0, 1)
            run.feed("in", ride(30, 0), ride(1, 9))
            run.until(lambda: run.rows("sums") == [(39,)])
        (runner.state.directory / "flows.json").unlink()
        with run.running() as runner:
            assert run.flow("sums")["state"] == "held"
            assert asked() == "it is not recorded what its state was built from"
            assert run.flow("rides")["state"] == "waiting"
    finally:
        run.drop()


@pytest.mark.promise(
    "pipelines", "A file with an error is shown with its line, and the running version continues"
)
def test_a_file_with_an_error_is_shown_with_its_line_and_the_running_version_goes_on(run: PipelineRun):
    run.write("more.sql", "CREATE STREAMING TABLE ids AS SELECT id FROM STREAM orders")
    with run.running() as runner:
        run.until(lambda: run.rows("ids") == [(1,), (2,)])
        run.write("more.sql", "CREATE STREAMING TABLE ids AS\nSELECT id,\n  nope FROM STREAM orders")
        error = run.until(lambda: runner.file_error)
        assert error.startswith("transformations/more.sql:3: flow 'ids': [UNRESOLVED_COLUMN")
        run.feed("in", {"id": 3, "who": "ann", "amount": 1})
        run.until(lambda: run.rows("ids") == [(1,), (2,), (3,)])
        assert runner.status()["state"] == "degraded"
        # A column more, in a table and in what reads it, in one edit.
        run.write("more.sql", "CREATE STREAMING TABLE ids AS SELECT id, who FROM STREAM orders;")
        run.write(
            "most.sql", "CREATE STREAMING TABLE names AS SELECT who FROM STREAM ids WHERE who IS NOT NULL"
        )
        run.until(lambda: runner.file_error is None and "names" in runner.flows)
        run.feed("in", {"id": 4, "who": "dan", "amount": 1})
        run.until(lambda: run.rows("names") == [("dan",)])
        assert ("dan" in {row[1] for row in run.rows("ids")}) and len(run.rows("ids")) == 4
        # A flow that is taken out is stopped; its table stays.
        (run.directory / "transformations" / "most.sql").unlink()
        run.until(lambda: "names" not in runner.flows)
        assert run.rows("names") == [("dan",)]


@pytest.mark.promise(
    "pipelines", "Tables, views and streams feed each other, in Python and SQL, and continue after a restart"
)
def test_a_stream_that_looks_up_a_materialized_view_sees_it_when_it_has_changed(run: PipelineRun):
    run.write(
        "lookup.py",
        """
from pyspark import pipelines as dp

@dp.materialized_view
def people():
    return spark.table("orders").groupBy("who").count()

@dp.table
def seen():
    clicks = spark.readStream.schema("who STRING").json("%s")
    return clicks.join(spark.table("people"), "who").select("who")
"""
        % (run.directory / "clicks"),
    )
    (run.directory / "clicks").mkdir()
    with run.running():
        run.until(lambda: len(run.rows("people")) == 2)
        run.feed("clicks", {"who": "ann"}, {"who": "zoe"})
        run.until(lambda: run.rows("seen") == [("ann",)])
        run.feed("in", {"id": 3, "who": "zoe", "amount": 9})
        run.until(lambda: len(run.rows("people")) == 3)
        run.feed("clicks", {"who": "zoe"})
        run.until(lambda: run.rows("seen") == [("ann",), ("zoe",)])
