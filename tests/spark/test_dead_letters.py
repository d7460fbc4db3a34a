"""The topic of dead letters is made with the first letter, and each letter says which query wrote it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.client import ClientSettings, Cluster
from penstock.spark.dead_letters import DeadLetters
from penstock.spark.source.reading import ARROW_SCHEMA_WITH_HEADERS
from penstock.spark.typed.columns import Failure
from penstock.testing import PenstockBroker
from tests.spark.source_helpers import Collected, failure, read, run_available, stream

TASKS = 8


def given(topic: str, **more: str) -> dict[str, str]:
    return {
        "subscribe": topic,
        "value.format": "json-text",
        "value.schema": "n INT",
        "value.decode.errors": "dead-letter",
        "dead.letter.topic": f"{topic}.dead",
        **more,
    }


def connected(broker: PenstockBroker) -> Cluster:
    return Cluster(ClientSettings.from_kafka({"bootstrap.servers": broker.bootstrap}))


def partitions(broker: PenstockBroker, topic: str) -> int | None:
    with connected(broker) as cluster:
        found = cluster.partitions([topic]).get(topic)
        return None if found is None else found.partition_count


@pytest.mark.promise("spark source", "The option `dead.letter.topic` works as documented")
@pytest.mark.promise(
    "spark source",
    "The dead-letter topic is created with the first dead letter, by one task or by many at once, and no "
    "dead letter is lost; if it cannot be created, the error says what to do",
)
@pytest.mark.parametrize("broker_makes_topics", [pytest.param(True, marks=pytest.mark.long), False])
def test_the_topic_is_made_with_the_first_letter(
    spark: SparkSession, tmp_path: Path, broker_makes_topics: bool
) -> None:
    settings = {"auto.create.topics.enable": broker_makes_topics, "num.partitions": 3}
    with PenstockBroker(settings) as broker:
        broker.create_topic("numbers", 2)
        broker.produce("numbers", [b'{"n": 1}'])
        collected = Collected()
        run_available(stream(spark, broker, given("numbers")), collected, tmp_path)
        assert [row.value.n for row in collected.rows] == [1]
        assert partitions(broker, "numbers.dead") is None
        for partition in range(2):  # a task for each
            broker.produce("numbers", [b"poison"], partition=partition)
        run_available(stream(spark, broker, given("numbers")), collected, tmp_path)
        assert partitions(broker, "numbers.dead") == 1
        letters = broker.consume("numbers.dead", 2)
        places = [dict(letter.headers)["penstock.dead.partition"] for letter in letters]
        assert sorted(places) == [b"0", b"1"]
        broker.delete_topic("numbers.dead")
        broker.produce("numbers", [b"more poison"])
        run_available(stream(spark, broker, given("numbers")), collected, tmp_path)
        assert [letter.value for letter in broker.consume("numbers.dead", 1)] == [b"more poison"]


@pytest.mark.promise(
    "spark source",
    "The dead-letter topic is created with the first dead letter, by one task or by many at once, and no "
    "dead letter is lost; if it cannot be created, the error says what to do",
)
@pytest.mark.parametrize("broker_makes_topics", [True, False])
def test_tasks_that_make_the_topic_at_the_same_time_lose_no_letter(broker_makes_topics: bool) -> None:
    settings = {"auto.create.topics.enable": broker_makes_topics, "num.partitions": 3}
    together = threading.Barrier(TASKS)

    def task(number: int) -> None:
        row = [None, b"poison", "numbers", number, 5, 0, 0, []]
        arrays = [pa.array([each], field.type) for each, field in zip(row, ARROW_SCHEMA_WITH_HEADERS)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA_WITH_HEADERS)
        with connected(broker) as cluster:
            assert not cluster.partitions(["letters"])
            letters = DeadLetters(cluster, "letters", {"bootstrap.servers": broker.bootstrap}, None)
            together.wait(60)
            letters.send(batch, 0, Failure("value", "it is poison", None, "dead-letter"))
            letters.flush()

    with PenstockBroker(settings) as broker:
        with ThreadPoolExecutor(TASKS) as pool:
            list(pool.map(task, range(TASKS)))
        assert partitions(broker, "letters") == 1
        told = [dict(letter.headers)["penstock.dead.partition"] for letter in broker.consume("letters")]
        assert sorted(told) == [b"%d" % number for number in range(TASKS)]


@pytest.mark.promise(
    "spark source",
    "The dead-letter topic is created with the first dead letter, by one task or by many at once, and no "
    "dead letter is lost; if it cannot be created, the error says what to do",
)
def test_a_topic_that_cannot_be_made_fails_the_query_with_what_to_do(spark: SparkSession) -> None:
    with PenstockBroker({"default.replication.factor": 3, "auto.create.topics.enable": False}) as broker:
        with connected(broker) as cluster:
            cluster.create_topic("numbers", replication_factor=1)
        broker.produce("numbers", [b'{"n": 1}', b"poison"])
        with pytest.raises(PySparkException) as failed:
            read(spark, broker, given("numbers")).collect()
        told = failure(failed.value)
        assert "dead.letter.topic=numbers.dead does not exist and cannot be created. " in told
        assert "only 1 broker(s) are registered" in told
        with connected(broker) as cluster:
            cluster.create_topic("numbers.dead", replication_factor=1)
        assert [row.value.n for row in read(spark, broker, given("numbers")).collect()] == [1]
        assert [letter.value for letter in broker.consume("numbers.dead")] == [b"poison"]


@pytest.mark.promise("spark source", "The option `dead.letter.query` works as documented")
@pytest.mark.promise("spark source", "A dead letter names the query that wrote it")
def test_a_letter_says_which_query_wrote_it(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    penstock.create_topic("numbers")
    penstock.produce("numbers", [b"poison"])
    ids = []
    for name in ("first", "second"):
        frame = stream(spark, penstock, given("numbers", **{"dead.letter.query": name}))
        run_available(frame, Collected(), tmp_path / name)
    for place in ("third", "fourth"):  # that have no name are known by the id that Spark gave them
        run_available(stream(spark, penstock, given("numbers")), Collected(), tmp_path / place)
        metadata = (tmp_path / place / "metadata").read_text()
        ids.append(metadata.split('"')[3])
    read(spark, penstock, given("numbers")).collect()
    told = [dict(letter.headers).get("penstock.dead.query") for letter in penstock.consume("numbers.dead", 5)]
    assert told == [b"first", b"second", *(each.encode() for each in ids), None]


@pytest.mark.promise("spark source", "A micro-batch that runs again writes its dead letters again")
def test_a_batch_that_is_run_again_writes_its_letters_again(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path
) -> None:
    penstock.create_topic("numbers")
    penstock.produce("numbers", [b"poison", b'{"n": 1}'])

    class Dying(Collected):
        def __call__(self, frame: DataFrame, batch_id: int) -> None:
            super().__call__(frame, batch_id)
            raise RuntimeError("the batch has been read, and is not done")

    collected = Collected()
    frame = stream(spark, penstock, given("numbers"))
    with pytest.raises(PySparkException, match="the batch has been read"):
        run_available(frame, Dying(), tmp_path)
    run_available(frame, collected, tmp_path)
    assert [row.value.n for row in collected.rows] == [1]
    first, second = penstock.consume("numbers.dead", 2)
    assert (first.value, first.headers) == (second.value, second.headers)
