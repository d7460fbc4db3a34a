"""When things go wrong under a stream: brokers away, records gone, topics made anew, a wrong checkpoint.

Each ends well, or with an error that says what to do; never in a hang or with records missing in silence.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from penstock.testing import PenstockBroker
from tests.spark.source_helpers import (
    Collected,
    delete_records,
    failure,
    read,
    run_available,
    running,
    stream,
)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """Connections are taken here, and nothing is ever answered."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.promise(
    "spark source",
    "The options `kafka.bootstrap.servers`, `kafka.default.api.timeout.ms` and "
    "`kafka.request.timeout.ms` work as documented",
)
@pytest.mark.promise(
    "spark source",
    "A query continues when brokers restart and leaders move; a broker that does not respond causes an "
    "error within the timeout",
)
def test_an_unreachable_broker_is_an_error_within_the_timeout(
    spark: SparkSession, tmp_path: Path, deaf_port: int
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        options = {
            "kafka.bootstrap.servers": f"127.0.0.1:{unused.getsockname()[1]}",
            "kafka.default.api.timeout.ms": "1500",
            "kafka.request.timeout.ms": "1000",
            "subscribe": "t",
        }
        with pytest.raises(PySparkException) as refused:
            spark.read.format("penstock").options(**options).load().collect()
        told = failure(refused.value)
        assert "did not succeed within 1500 ms (default.api.timeout.ms)" in told
        assert options["kafka.bootstrap.servers"] in told
        assert "Check that the brokers run" in told

    options["kafka.bootstrap.servers"] = f"127.0.0.1:{deaf_port}"
    frame = spark.readStream.format("penstock").options(**options).load()
    with pytest.raises(StreamingQueryException) as silent:
        run_available(frame, Collected(), tmp_path)
    assert "did not succeed within 1500 ms" in failure(silent.value)


@pytest.mark.promise(
    "spark source",
    "A query continues when brokers restart and leaders move; a broker that does not respond causes an "
    "error within the timeout",
)
def test_a_broker_that_comes_back_is_read_on(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    penstock.create_topic("t", partitions=2)
    penstock.produce("t", ["a"])
    collected = Collected()
    with running(stream(spark, penstock, {"subscribe": "t"}), collected, tmp_path) as query:
        query.processAllAvailable()
        penstock.kill()
        penstock.restart()
        penstock.produce("t", ["b"], partition=1)
        query.processAllAvailable()
        assert collected.values == ["a", "b"]


@pytest.mark.promise(
    "spark source",
    "A query continues when brokers restart and leaders move; a broker that does not respond causes an "
    "error within the timeout",
)
def test_leaders_that_move_are_followed(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    penstock.create_topic("t")
    penstock.produce("t", ["a", "b"])
    for api in ("Fetch", "ListOffsets"):
        penstock.faults.fail(api, "NOT_LEADER_OR_FOLLOWER", times=2)
    penstock.faults.drop("Fetch", times=1, after=True)
    collected = Collected()
    run_available(stream(spark, penstock, {"subscribe": "t"}), collected, tmp_path)
    assert collected.values == ["a", "b"]
    assert penstock.faults.hits["ListOffsets"] == 2
    assert penstock.faults.hits["Fetch"] == 3


def lost_and_accepted(
    spark: SparkSession,
    penstock: PenstockBroker,
    tmp_path: Path,
    lose: Callable[[], None],
    options: dict[str, str] | None = None,
) -> tuple[str, Collected]:
    """Reads three records of `t`, loses some, and goes on: the error, and what comes once it is accepted."""
    penstock.create_topic("t")
    penstock.produce("t", ["a", "b", "c"])
    collected = Collected()
    options = {"subscribe": "t", **(options or {})}
    run_available(stream(spark, penstock, options), collected, tmp_path)
    assert collected.values == ["a", "b", "c"]
    lose()
    with pytest.raises(StreamingQueryException) as lost:
        run_available(stream(spark, penstock, options), collected, tmp_path)
    run_available(stream(spark, penstock, {**options, "failOnDataLoss": "false"}), collected, tmp_path)
    return failure(lost.value), collected


@pytest.mark.promise(
    "spark source",
    "With `failOnDataLoss=false` a query continues after retention or DeleteRecords deleted records "
    "before it read them",
)
@pytest.mark.promise("spark source", "The option `failOnDataLoss` works as documented")
@pytest.mark.promise(
    "spark source",
    "Deleted records fail the query with an error that says what to do, or are skipped with "
    "`failOnDataLoss=false`",
)
def test_retention_that_overtakes_the_reader(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    def lose() -> None:
        penstock.produce("t", ["gone", "gone", "d"])
        delete_records(penstock, "t", 0, 5)

    told, collected = lost_and_accepted(spark, penstock, tmp_path, lose)
    assert told.startswith("t-0 has lost the offsets from 3 to 5: retention deleted them")
    assert "set the option failOnDataLoss to false" in told
    assert "choose another checkpointLocation" in told
    assert collected.values == ["a", "b", "c", "d"]


@pytest.mark.promise(
    "spark source",
    "With `failOnDataLoss=false` a query continues after a topic was deleted and created again while it "
    "was stopped",
)
@pytest.mark.promise(
    "spark source",
    "Deleted records fail the query with an error that says what to do, or are skipped with "
    "`failOnDataLoss=false`",
)
def test_a_topic_deleted_and_made_again_between_two_runs(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    def lose() -> None:
        penstock.delete_topic("t")
        penstock.create_topic("t")
        penstock.produce("t", ["new"])

    told, collected = lost_and_accepted(spark, penstock, tmp_path, lose)
    assert told.startswith(
        "t-0 ends at 1, before offset 3 of the query: the topic was deleted and created again"
    )
    assert "set the option failOnDataLoss to false" in told
    assert collected.values == ["a", "b", "c", "new"]


@pytest.mark.promise(
    "spark source", "With `failOnDataLoss=false` a query continues after a topic was deleted"
)
@pytest.mark.promise(
    "spark source",
    "Deleted records fail the query with an error that says what to do, or are skipped with "
    "`failOnDataLoss=false`",
)
def test_a_topic_that_is_gone(spark: SparkSession, penstock: PenstockBroker, tmp_path: Path) -> None:
    penstock.create_topic("kept")
    told, collected = lost_and_accepted(
        spark, penstock, tmp_path, lambda: penstock.delete_topic("t"), {"subscribe": "t,kept"}
    )
    assert told.startswith("t-0 no longer exist: the topic was deleted")
    assert collected.values == ["a", "b", "c"]
    # It comes back as a new topic, read from its start.
    penstock.create_topic("t")
    penstock.produce("t", ["back"])
    options = {"subscribe": "t,kept", "failOnDataLoss": "false"}
    run_available(stream(spark, penstock, options), collected, tmp_path)
    assert collected.values == ["a", "b", "back", "c"]


@pytest.mark.promise(
    "spark source",
    "With `failOnDataLoss=false` a query continues after a topic was deleted and created again while it ran",
)
@pytest.mark.promise(
    "spark source",
    "Deleted records fail the query with an error that says what to do, or are skipped with "
    "`failOnDataLoss=false`",
)
@pytest.mark.parametrize("accepted", [False, True])
def test_a_topic_made_again_under_a_running_query_is_known_by_its_id(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path, accepted: bool
) -> None:
    penstock.create_topic("t")
    penstock.produce("t", ["a", "b"])
    collected = Collected()
    options = {"subscribePattern": "^t$", "failOnDataLoss": str(not accepted).lower()}
    # One batch of the old topic is held up until the new one has grown past it: only its id tells.
    frame = stream(spark, penstock, options)

    def remake(batch: object, batch_id: int) -> None:
        Collected.__call__(collected, batch, batch_id)  # type: ignore[arg-type]
        if batch_id == 0:
            penstock.delete_topic("t")
            penstock.create_topic("t")
            penstock.produce("t", ["A", "B", "C", "D"])

    query = frame.writeStream.foreachBatch(remake).option("checkpointLocation", str(tmp_path)).start()
    try:
        if accepted:
            query.processAllAvailable()
            assert collected.values == ["A", "B", "C", "D", "a", "b"]
        else:
            with pytest.raises(StreamingQueryException) as lost:
                query.processAllAvailable()
            assert failure(lost.value).startswith("topic t was deleted and created again")
    finally:
        query.stop()


@pytest.mark.promise(
    "spark source", "With `failOnDataLoss=false` a query continues with the checkpoint of another topic"
)
@pytest.mark.promise(
    "spark source", "A checkpoint of another topic or source is rejected with an error that says what to do"
)
def test_a_checkpoint_of_another_topic(spark: SparkSession, penstock: PenstockBroker, tmp_path: Path) -> None:
    for topic in ("first", "second"):
        penstock.create_topic(topic)
        penstock.produce(topic, [topic])
    run_available(stream(spark, penstock, {"subscribe": "first"}), Collected(), tmp_path)
    with pytest.raises(StreamingQueryException) as refused:
        run_available(stream(spark, penstock, {"subscribe": "second"}), Collected(), tmp_path)
    told = failure(refused.value)
    assert told.startswith("the checkpoint has offsets of first, which this query does not read")
    assert "choose another checkpointLocation" in told
    collected = Collected()
    options = {"subscribe": "second", "failOnDataLoss": "false"}
    run_available(stream(spark, penstock, options), collected, tmp_path)
    assert collected.values == ["second"]


@pytest.mark.promise(
    "spark source", "A checkpoint of another topic or source is rejected with an error that says what to do"
)
def test_a_checkpoint_of_another_source(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    run_available(spark.readStream.format("rate").load(), Collected(), tmp_path)
    penstock.create_topic("t")
    with pytest.raises(StreamingQueryException) as refused:
        run_available(stream(spark, penstock, {"subscribe": "t"}), Collected(), tmp_path)
    assert "belongs to a query with another source: choose another checkpointLocation" in failure(
        refused.value
    )


def test_a_stream_of_a_missing_topic(spark: SparkSession, penstock: PenstockBroker, tmp_path: Path) -> None:
    with pytest.raises(StreamingQueryException) as refused:
        run_available(stream(spark, penstock, {"subscribe": "nothing"}), Collected(), tmp_path)
    assert "topic nothing does not exist" in failure(refused.value)
    assert "create it before the query starts" in failure(refused.value)
    # Reading has not made it.
    with pytest.raises(PySparkException):
        read(spark, penstock, {"subscribe": "nothing"}).collect()


@pytest.mark.promise(
    "spark source",
    "With `failOnDataLoss=false` a query continues when a new partition has already lost its first records",
)
def test_a_new_partition_that_has_lost_its_beginning(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    penstock.create_topic("a")
    penstock.produce("a", ["a"])
    options = {"subscribePattern": "^[ab]$"}
    collected = Collected()
    run_available(stream(spark, penstock, options), collected, tmp_path)
    penstock.create_topic("b")
    penstock.produce("b", ["gone", "b"])
    delete_records(penstock, "b", 0, 1)
    with pytest.raises(StreamingQueryException) as lost:
        run_available(stream(spark, penstock, options), collected, tmp_path)
    assert failure(lost.value).startswith("the new partition b-0 starts at offset 1 instead of 0")
    run_available(stream(spark, penstock, {**options, "failOnDataLoss": "false"}), collected, tmp_path)
    assert collected.values == ["a", "b"]


@pytest.mark.promise("spark source", "A failed commit to the query's group does not fail the query")
def test_a_failed_commit_does_not_fail_the_query(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    penstock.create_topic("t")
    penstock.produce("t", ["a"])
    penstock.faults.fail("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", times=None)
    collected = Collected()
    options = {"subscribe": "t", "kafka.group.id": "g"}
    run_available(stream(spark, penstock, options), collected, tmp_path)
    assert collected.values == ["a"]
    assert penstock.faults.hits["OffsetCommit"] >= 2
