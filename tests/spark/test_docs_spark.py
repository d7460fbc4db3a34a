"""The programs of the README and of the pages on Spark run as they stand there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.spark.streams import attempt, divert, match_recognize
from penstock.testing import PenstockBroker
from tests import doc_blocks
from tests.doc_blocks import commands
from tests.doc_shell import Shell
from tests.registry.conftest import RegistryProcess
from tests.spark.source_helpers import stream

LINE = {"type": "record", "name": "Line", "fields": [{"name": "product", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "lines", "type": {"type": "array", "items": LINE}}],
}
FLIGHT = "airport STRING, minutes INT"

Program = Callable[..., dict[str, Any]]
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def program(broker: PenstockBroker, registry: RegistryProcess, tmp_path: Path) -> Program:
    """Runs the program of a page that has this text in it, with addresses and directories of the test."""

    def run(page: str, having: str, *, parts: bool = False, **names: Any) -> dict[str, Any]:
        code = doc_blocks.program(page, having)
        code = re.sub(r"(localhost|127\.0\.0\.1):9092", broker.bootstrap, code)
        code = code.replace("http://localhost:8081", registry.url)
        # Spark resolves a relative path where its session was started.
        code = re.sub(r'"(/tmp|checkpoints|tables)/', rf'"{tmp_path}/\1/', code)
        # What follows a blank line may need what the queries before it have written.
        for part in code.split("\n\n") if parts else [code]:
            exec(part, names)
            if parts:
                finish(names["spark"])
        return names

    return run


def finish(spark: SparkSession) -> None:
    """Has the queries read all that there is, and ends them."""
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()


def typed(spark: SparkSession, broker: PenstockBroker, topic: str, columns: str) -> DataFrame:
    options = {"subscribe": topic, "value.format": "json-text", "value.schema": columns}
    return stream(spark, broker, options).select("value.*", "timestamp")


def values(broker: PenstockBroker, topic: str) -> list[Any]:
    read = broker.consume(topic, isolation="read_committed")
    return sorted((json.loads(record.value or b"null") for record in read), key=str)


@pytest.mark.promise(
    "docs", "The programs of the README, spark.md, spark-sink.md and streams.md run as printed"
)
def test_the_programs_that_read(
    program: Program, spark: SparkSession, broker: PenstockBroker, registry: RegistryProcess
) -> None:
    for topic in ("orders", "bids", "logins"):
        broker.create_topic(topic)
    client = SchemaRegistryClient({"url": registry.url})
    client.register_schema("orders-value", Schema(json.dumps(ORDER), "AVRO"))

    assert program("docs/spark.md", "penstock.spark.session")["spark"] is not None
    orders = program("docs/spark.md", "CAST(value AS STRING)", spark=spark)["orders"]
    assert orders.isStreaming and orders.columns[:2] == ["key", "value"]
    of_registry = program("docs/spark.md", '"value.format", "avro"', spark=spark)["orders"]
    assert of_registry.schema.simpleString() == "struct<id:bigint,lines:array<struct<product:string>>>"
    client.delete_subject("orders-value")
    client.delete_subject("orders-value", permanent=True)  # another page writes other orders
    bids = program("docs/spark.md", "json-text", spark=spark)["bids"]
    assert bids.columns == ["auction", "price", "at", "tags", "offset"]

    def parse(record: dict[str, Any]) -> dict[str, Any]:
        return {"product": bytes(record["value"]).decode(), "pieces": 1}

    raw = spark.createDataFrame([(b"k", b"tea", "orders", 0, 7)], "key BINARY, value BINARY, topic STRING, "
                                "partition INT, offset BIGINT").withColumn("timestamp", F.now())  # fmt: skip
    tried = {"records": raw, "parse": parse, "attempt": attempt, "divert": divert, "F": F}
    (row,) = program("docs/streams.md", "tried = attempt", **tried)["rows"].collect()
    assert (row["topic"], json.loads(row["value"])) == ("orders.parsed", {"product": "tea", "pieces": 1})
    logins = typed(spark, broker, "logins", "account STRING, ok BOOLEAN, at TIMESTAMP")
    alerts = program("docs/streams.md", "match_recognize", logins=logins, match_recognize=match_recognize)
    assert alerts["alerts"].columns == ["account", "failures", "began"]


@pytest.mark.promise(
    "docs", "The programs of the README, spark.md, spark-sink.md and streams.md run as printed"
)
@pytest.mark.long
def test_the_programs_that_write(
    program: Program, spark: SparkSession, broker: PenstockBroker, tmp_path: Path
) -> None:
    for topic in ("copy", "alerts", "flights", "returns", "sold"):
        broker.create_topic(topic)
    broker.produce("flights", [json.dumps({"airport": name, "minutes": 150}) for name in ("EWR", "JFK")])
    broker.produce("sold", [json.dumps({"id": 1, "price": 2.5, "at": "2024-05-01T12:00:00Z"})])
    flights = typed(spark, broker, "flights", FLIGHT)
    sold = typed(spark, broker, "sold", "id BIGINT, price DOUBLE, at TIMESTAMP")

    program("docs/spark-sink.md", "alerts.selectExpr", alerts=flights.select("airport", "minutes"))
    program("docs/spark-sink.md", '"value.format", "avro"', orders=sold)
    finish(spark)
    assert [each["airport"] for each in values(broker, "alerts")] == ["EWR", "JFK"]
    (written,) = broker.consume("orders", isolation="read_committed")
    assert written.key == b"1" and (written.value or b"")[:1] == b"\0", "framed by the registry's serializer"

    both = program("docs/spark-sink.md", "def to_both")["to_both"]
    batch = spark.createDataFrame([("orders", "o"), ("returns", "r")], "kind STRING, value STRING")
    both(batch, 0)
    both(batch, 0)
    assert [record.value for record in broker.consume("returns", isolation="read_committed")] == [b"r"]

    program("README.md", '"topic", "copy"')
    finish(spark)
    copied = [record.value for record in broker.consume("copy", isolation="read_committed")]
    assert copied == [written.value, b"o"]

    latest = flights.select("airport", "minutes")
    found = program(
        "docs/spark-sink.md", "delta.writer", parts=True, spark=spark, flights=flights, latest=latest
    )
    shown = found["delta"].read(spark, f"{tmp_path}/tables/latest").collect()
    assert sorted(row["airport"] for row in shown) == ["EWR", "JFK"]


@pytest.mark.promise(
    "docs", "The programs of the README, spark.md, spark-sink.md and streams.md run as printed"
)
def test_the_commands_and_the_program_on_progress(
    program: Program, spark: SparkSession, broker: PenstockBroker, tmp_path: Path
) -> None:
    broker.create_topic("watched")
    broker.produce("watched", [json.dumps({"airport": "EWR", "minutes": 1})])
    names = program("docs/pipelines.md", "import watch", spark=spark)
    assert names["watching"].metrics_port > 0
    rows = stream(spark, broker, {"subscribe": "watched", "kafka.group.id": "penstock-orders"})
    checkpoint = str(tmp_path / "checkpoint")
    query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    query.processAllAvailable()
    finish(spark)
    describe, lag = commands("docs/spark.md")
    shell = Shell(tmp_path, {"PENSTOCK_BOOTSTRAP": broker.bootstrap})
    assert "watched" in shell.run(describe)
    with shell.running(lag) as watching:
        watching.wait_for("it shows the group", lambda: "penstock-orders" in watching.output())
