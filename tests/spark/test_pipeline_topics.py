"""The project that `penstock pipeline init` makes, against a real broker; and sinks of Delta tables."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from penstock.spark.progress import TOPIC, watch
from tests.doc_blocks import commands
from tests.doc_shell import Shell
from tests.spark.pipeline_runs import WAIT_SECONDS, PipelineRun

pytestmark = pytest.mark.timeout(300)


def order(number: int, amount: int) -> bytes:
    return json.dumps({"id": f"o{number}", "customer": f"c{number % 2}", "amount": amount}).encode()


def wait_for(done: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_SECONDS
    while not (result := done()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return result


@pytest.mark.promise(
    "docs", "The commands of pipelines.md run as printed; its project runs in the Spark that the tests share"
)
@pytest.mark.promise(
    "pipelines",
    "The project that `init` creates copies records from a topic to tables and a topic, and shows its lag",
)
def test_the_project_of_init_carries_records_from_topic_to_tables_and_topic_and_tells_its_lag(
    spark, penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    create_orders, create_alerts, init, produce, consume = commands("docs/pipelines.md")
    shell = Shell(tmp_path, {"PENSTOCK_BOOTSTRAP": penstock.bootstrap})
    for line in (f"{create_orders} --partitions 2", create_alerts, init):
        shell.run(line)
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", penstock.bootstrap)
    run = PipelineRun(spark, tmp_path / "shop")
    penstock.produce("orders", [order(1, 5), b"no JSON", order(2, 5000)])
    penstock.produce("orders", [order(3, 1000), order(4, -1)], partition=1)
    progress = watch(spark, bootstrap=penstock.bootstrap, metrics_port=0, pipeline="shop")
    try:
        with run.running():
            run.until(lambda: run.rows("customers") == [("c0", 1, 5000.0), ("c1", 2, 1005.0)])
            run.until(lambda: len(penstock.consume("alerts")) == 2)
            assert len(run.rows("orders")) == 5  # as they came, the broken one too
            assert len(run.rows("valid_orders")) == 3

            # What runs is told to Prometheus and to the topic, which is made and compacted.
            latest = run.until(
                lambda: (run.flow("orders")["progress"] or {}).get("lag") == 0 and run.flow("orders")
            )
            assert latest["progress"]["sources"][0]["end_offset"] == {"orders": {"0": 3, "1": 2}}
            records = wait_for(lambda: [r for r in _progress(penstock) if r["name"] == "shop.orders"])
            assert records[-1]["pipeline"] == "shop"
            url = f"http://127.0.0.1:{progress.metrics_port}/metrics"
            with urllib.request.urlopen(url, timeout=30) as answer:
                text = answer.read().decode()
            assert 'penstock_query_lag_records{flow="orders",pipeline="shop"} 0.0' in text
            assert 'penstock_query_input_rows_total{flow="orders",pipeline="shop"} 5.0' in text

            shell.run(produce)
            run.until(lambda: len(penstock.consume("alerts")) == 3)
            assert '"ann"' in shell.run(consume)
    finally:
        progress.stop()
        run.drop()


def _progress(penstock: Any) -> list[dict[str, Any]]:
    from penstock.errors import UnknownTopicOrPartition

    try:
        return [json.loads(record.value) for record in penstock.consume(TOPIC)]
    except UnknownTopicOrPartition:
        return []


@pytest.mark.promise(
    "pipelines", "Sources are identified by the id of their cluster, whatever the addresses of its brokers"
)
def test_another_address_of_the_same_cluster_keeps_checkpoint_and_table(spark, penstock, tmp_path: Path):
    penstock.create_topic("orders")
    penstock.produce("orders", [order(1, 5)])
    run = PipelineRun(spark, tmp_path / "shop")

    def read_by(address: str) -> None:
        run.write(
            "flows.py",
            f"""
from pyspark import pipelines as dp

@dp.table
def offsets():
    orders = spark.readStream.format("penstock").option("kafka.bootstrap.servers", "{address}")
    orders = orders.option("subscribe", "orders").option("startingOffsets", "earliest")
    return orders.load().select("offset")
""",
        )

    try:
        read_by(penstock.bootstrap)
        with run.running():
            run.until(lambda: run.rows("offsets") == [(0,)])
        penstock.produce("orders", [order(2, 5)])
        read_by(f"localhost:{penstock.port},{penstock.bootstrap}")
        with run.running() as runner:
            assert runner.status()["pending"] == []
            run.until(lambda: sorted(run.rows("offsets")) == [(0,), (1,)])
        plans = [event["changes"] for event in run.events if event["event"] == "plan"]
        assert [(each["flow"], each["action"]) for each in plans[-1]] == [("offsets", "restart")]
    finally:
        run.drop()


@pytest.mark.promise(
    "pipelines",
    "A flow that is rebuilt with another topic keeps no offsets of the previous topic in its consumer "
    "group, and the plan names the consumer group of a removed flow",
)
def test_the_group_of_a_flow_has_only_the_topics_that_it_reads(spark, penstock, tmp_path: Path):
    for topic in ("before", "after"):
        penstock.create_topic(topic)
        penstock.produce(topic, [order(1, 5)])
    run = PipelineRun(spark, tmp_path / "shop")

    def read(topic: str) -> None:
        run.write(
            "flows.py",
            f"""
from pyspark import pipelines as dp

@dp.table
def offsets():
    rows = spark.readStream.format("penstock").option("kafka.bootstrap.servers", "{penstock.bootstrap}")
    rows = rows.option("subscribe", "{topic}").option("startingOffsets", "earliest")
    return rows.load().select("topic")
""",
        )

    try:
        read("before")
        with run.running() as runner:
            run.until(lambda: _committed(penstock, "penstock-shop.offsets") == {"before": 1})
            read("after")
            run.until(lambda: runner.status()["pending"])
            runner.apply_pending(["offsets"])
            run.until(lambda: run.rows("offsets") == [("after",)])
            run.until(lambda: _committed(penstock, "penstock-shop.offsets") == {"after": 1})
            (run.directory / "transformations" / "flows.py").unlink()
            run.write(
                "other.py",
                "from pyspark import pipelines as dp\n\n"
                "@dp.materialized_view\ndef one():\n    return spark.range(1)\n",
            )
            run.until(lambda: "offsets" not in runner.flows)
            plan = run.event("plan")
            assert plan is not None
            said = "its consumer group 'penstock-shop.offsets' stays, until it is deleted"
            (gone,) = [each for each in plan["changes"] if each["flow"] == "offsets"]
            assert said in gone["reasons"]
    finally:
        run.drop()


def _committed(penstock: Any, group: str) -> dict[str, int]:
    """The offsets of partition 0 that a group has, by topic."""
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": penstock.bootstrap})
    futures = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = futures[group].result(30).topic_partitions
    return {each.topic: each.offset for each in found if each.offset >= 0}


@pytest.mark.promise(
    "pipelines", "A failed flow restarts from its checkpoint and shows the cause, while others continue"
)
def test_a_broker_that_cannot_be_reached_fails_its_flow_and_its_progress_and_nothing_else(
    spark, tmp_path: Path
):
    import socket

    with socket.socket() as closed:  # bound, and nobody listens
        closed.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{closed.getsockname()[1]}"
        run = PipelineRun(spark, tmp_path / "shop")
        run.write(
            "flows.py",
            f"""
from pyspark import pipelines as dp

@dp.table
def from_topic():
    return (spark.readStream.format("penstock").option("kafka.bootstrap.servers", "{nowhere}")
        .option("kafka.default.api.timeout.ms", "1000").option("subscribe", "orders").load())

@dp.table
def from_files():
    return spark.readStream.schema("id INT").json("{tmp_path / "shop" / "in"}")
""",
        )
        run.feed("in", {"id": 1})
        progress = watch(spark, bootstrap=nowhere, pipeline="shop")
        try:
            with run.running():
                run.until(lambda: run.flow("from_topic")["restarts"] >= 2)
                assert nowhere in run.flow("from_topic")["error"]
                run.until(lambda: run.rows("from_files") == [(1,)])
                run.feed("in", {"id": 2})
                run.until(lambda: run.rows("from_files") == [(1,), (2,)])
        finally:
            progress.stop()
            run.drop()


@pytest.mark.promise("pipelines", "A sink with format delta needs no jar")
def test_a_sink_of_format_delta_needs_no_jar(spark, tmp_path: Path):
    from penstock.spark import delta

    run = PipelineRun(spark, tmp_path / "shop")
    table = tmp_path / "delta"
    run.write(
        "flows.py",
        f"""
from pyspark import pipelines as dp

dp.create_sink("lake", format="delta", options={{"path": "{table}", "mode": "upsert", "key": "id"}})

@dp.append_flow(target="lake")
def to_lake():
    return spark.readStream.schema("id INT, name STRING").json("{tmp_path / "shop" / "in"}")
""",
    )
    run.feed("in", {"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    try:
        with run.running():
            run.until(lambda: (table / "_delta_log").exists() and delta.read(spark, str(table)).count() == 2)
            run.feed("in", {"id": 1, "name": "c"})
            run.until(
                lambda: (
                    sorted(tuple(row) for row in delta.read(spark, str(table)).collect())
                    == [(1, "c"), (2, "b")]
                )
            )
    finally:
        run.drop()
