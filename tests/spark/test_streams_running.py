"""Queries that go on while someone asks: real-time response, and state that is looked at from outside."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from penstock.spark.streams import count_windows, state, stateful_operators
from penstock.testing import PenstockBroker
from tests.spark.source_helpers import stream
from tests.spark.stream_examples import Example

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.penstock(
        settings={"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    ),
]


@contextmanager
def running(rows: DataFrame, checkpoint: Path, sink: dict[str, str], mode: str) -> Iterator[StreamingQuery]:
    writer = rows.writeStream.format(sink.pop("format")).options(**sink).outputMode(mode)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        yield query
    finally:
        query.stop()


@pytest.mark.promise("streams", "Example: real-time response, request-reply")
def test_a_request_is_answered_where_it_asks_to_be(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    example = Example("real_time_response", penstock, tmp_path)
    penstock.create_topic("requests")
    penstock.create_topic("replies.7")

    def ask(name: str, amount: str, number: bytes) -> tuple[bytes | None, list[tuple[str, bytes | None]]]:
        headers = [("reply-to", b"replies.7"), ("correlation-id", number)]
        (sent,) = penstock.produce("requests", [{"key": name, "value": amount, "headers": headers}])
        answers = penstock.consume("replies.7", sent.offset, isolation="read_committed", timeout=60)
        return answers[-1].value, list(answers[-1].headers)

    # A request without an address is not answered and does no harm; after it the others count from 1.
    penstock.produce("requests", [("ann", "1")])
    requests = example.streams().read("requests", includeHeaders="true")
    sink = {"format": "penstock", "kafka.bootstrap.servers": penstock.bootstrap}
    with running(example.answers(requests), tmp_path, sink, "append"):
        assert ask("ann", "100", b"a") == (b'{"asked":100,"granted":true}', [("correlation-id", b"a")])
        assert ask("bob", "21", b"b") == (b'{"asked":21,"granted":false}', [("correlation-id", b"b")])
        assert ask("eve", "much", b"c") == (b'{"granted":false}', [("correlation-id", b"c")])


@pytest.mark.promise("spark source", "The option `targetBatchDuration` works as documented")
@pytest.mark.promise(
    "streams", "`targetBatchDuration` adapts the size of batches when processing becomes slower or faster"
)
def test_slow_batches_make_the_next_ones_smaller(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    penstock.create_topic("events")
    penstock.produce("events", [str(number) for number in range(1200)])
    example = Example("back_pressure", penstock, tmp_path)
    sizes: list[int] = []

    def work(batch: DataFrame, number: int) -> None:
        sizes.append(batch.count())
        time.sleep(sizes[-1] / 400)

    # 800 take two seconds or more: at most a quarter of that would do, and half is as far as one step goes.
    streams = example.streams()
    streams.run(example.events(streams, "500ms", 800).writeStream.foreachBatch(work))
    assert sizes[0] == 800
    assert sizes[1:] == [400]


@pytest.mark.promise("streams", "Example: interactive queries, queryable state")
@pytest.mark.promise("streams", "The state of a running query can be read from outside")
def test_the_state_of_a_running_query_is_seen_from_outside(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = Example("queryable_state", penstock, tmp_path)
    penstock.create_topic("visits")
    penstock.produce("visits", [("home", ""), ("about", ""), ("home", "")])
    visits = example.visits(stream(spark, penstock, {"subscribe": "visits"}))
    with running(visits, tmp_path, {"format": "noop"}, "update") as query:
        query.processAllAvailable()
        assert example.look_up(spark, str(tmp_path), "home") == 2
        penstock.produce("visits", [("home", "")])
        query.processAllAvailable()
        example.run("--look", "home")
        assert capsys.readouterr().out == "3\n"
        assert example.look_up(spark, str(tmp_path), "nowhere") == 0
        assert query.isActive


@pytest.mark.promise("streams", "Example: windows of N records")
def test_the_state_of_count_windows_is_seen_by_name(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    penstock.create_topic("numbers")
    numbers = stream(spark, penstock, {"subscribe": "numbers"}).select(
        F.col("key").cast("string").alias("name"), F.col("value").cast("string").alias("number"), "offset"
    )
    windows = count_windows(numbers, "name", 3, advance=1)
    with running(windows, tmp_path, {"format": "memory", "queryName": "sliding"}, "append") as query:
        penstock.produce("numbers", [("a", "1"), ("b", "7"), ("a", "2"), ("a", "3"), ("a", "4")])
        query.processAllAvailable()
        found = spark.table("sliding").select("name", "window", "records.number").collect()
        assert sorted((row.name, row.window, row.number) for row in found) == [
            ("a", 0, ["1", "2", "3"]),
            ("a", 1, ["2", "3", "4"]),
        ]
        (operator,) = stateful_operators(spark, str(tmp_path)).select("operatorName").distinct().collect()
        assert operator.operatorName.startswith("transformWithState")
        waiting = state(spark, str(tmp_path), variable="waiting").select("name", "number").collect()
        assert sorted(map(tuple, waiting)) == [("a", "3"), ("a", "4"), ("b", "7")]
