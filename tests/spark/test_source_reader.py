"""The stream reader by itself, as Spark drives it, on a real broker: what is hard to time through a query."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.client import ClientSettings, Cluster, ClusterTimeout
from penstock.spark.errors import DataLoss, NoSuchTopic
from penstock.spark.source.data_source import StreamReader
from penstock.spark.source.lookup import Lookup
from penstock.spark.source.options import parse_source_options
from penstock.testing import PenstockBroker
from tests.spark.source_helpers import add_partitions, delete_records


def reader(broker: PenstockBroker, **options: str) -> StreamReader:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "startingOffsets": "earliest"}
    named = {name.replace("__", "."): value for name, value in options.items()}
    return StreamReader(parse_source_options({**given, **named}, streaming=True))


def read_between(source: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    return [
        value.decode()
        for partition in source.partitions(start, end)
        for batch in source.read(partition)
        for value in batch.column("value").to_pylist()
    ]


def test_the_same_offsets_are_the_same_text(penstock: PenstockBroker) -> None:
    """Spark takes a difference in the text for new data, and would run empty batches forever."""
    penstock.create_topic("b", partitions=12)
    penstock.create_topic("a")
    source = reader(penstock, subscribe="b,a")
    first = source.initialOffset()
    end = source.latestOffset(json.loads(json.dumps(first)), ReadAllAvailable())
    assert json.dumps(end) == json.dumps(first)
    assert list(end) == ["a", "b"]
    assert list(end["b"]) == [str(partition) for partition in range(12)]
    source.stop()


@pytest.mark.promise(
    "spark source", "A query that starts at the end of a topic loses nothing where its first batch runs again"
)
def test_the_first_batch_of_a_query_from_the_end_can_run_again(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    penstock.produce("t", ["old"])
    source = reader(penstock, subscribe="t", startingOffsets="latest")
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    penstock.produce("t", ["new"])
    assert source.initialOffset() == start == end == {"t": {"0": 1}}
    assert read_between(source, source.initialOffset(), end) == []
    source.stop()
    again = reader(penstock, subscribe="t", startingOffsets="latest")  # of the same checkpoint
    assert read_between(again, again.initialOffset(), end) == []
    assert read_between(again, end, again.latestOffset(end, ReadAllAvailable())) == ["new"]
    again.stop()


def test_a_limit_does_not_bind_a_trigger_that_asks_for_all(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    penstock.produce("t", ["a", "b", "c"])
    source = reader(penstock, subscribe="t", maxOffsetsPerTrigger="2")
    start = source.initialOffset()
    assert source.getDefaultReadLimit() == ReadMaxRows(2)
    assert source.latestOffset(start, ReadMaxRows(2)) == {"t": {"0": 2}}
    assert source.reportLatestOffset() == {"t": {"0": 3}}
    assert source.latestOffset(start, ReadAllAvailable()) == {"t": {"0": 3}}
    source.stop()


@pytest.mark.promise("spark source", "A micro-batch that runs again reads the same range of offsets")
def test_a_batch_is_read_again_the_same(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    penstock.produce("t", ["a", "b", "c"])
    source = reader(penstock, subscribe="t")
    penstock.produce("t", ["d"])
    for _ in range(2):
        assert read_between(source, {"t": {"0": 1}}, {"t": {"0": 3}}) == ["b", "c"]
    assert source.partitions({"t": {"0": 3}}, {"t": {"0": 3}}) == []
    source.stop()


@pytest.mark.parametrize("accepted", [False, True])
def test_a_topic_made_again_while_its_offsets_are_asked_for_is_not_taken_for_the_old_one(
    penstock: PenstockBroker, accepted: bool
) -> None:
    penstock.create_topic("t")
    penstock.produce("t", ["old"])
    source = reader(penstock, subscribe="t", failOnDataLoss=str(not accepted).lower())
    start = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    # As when the topic is gone at that moment: the offsets are asked for again until there is one.
    penstock.faults.fail("ListOffsets", "UNKNOWN_TOPIC_OR_PARTITION", times=None)
    with ThreadPoolExecutor(1) as pool:
        look = pool.submit(source.latestOffset, start, ReadAllAvailable())
        penstock.wait_for_requests("ListOffsets", penstock.requests["ListOffsets"] + 1, timeout=60)
        penstock.delete_topic("t")
        penstock.create_topic("t")
        penstock.produce("t", ["new 1", "new 2"])
        penstock.faults.clear()
        if not accepted:
            with pytest.raises(DataLoss, match="topic t was deleted and created again"):
                look.result(60)
        else:
            assert look.result(60) == {"t": {"0": 0}}, "from the start of the new one, none of it twice"
            assert source.latestOffset({"t": {"0": 0}}, ReadAllAvailable()) == {"t": {"0": 2}}
    source.stop()


@pytest.mark.promise("spark source", "The option `partition.metadata.cache.ttl.ms` works as documented")
def test_the_partitions_are_remembered_for_as_long_as_is_asked(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    often = reader(penstock, subscribe="t")
    seldom = reader(penstock, subscribe="t", partition__metadata__cache__ttl__ms="3600000")
    start = often.initialOffset()
    assert seldom.initialOffset() == start
    add_partitions(penstock, "t", 2)
    assert often.latestOffset(start, ReadAllAvailable()) == {"t": {"0": 0, "1": 0}}
    assert seldom.latestOffset(start, ReadAllAvailable()) == start
    often.stop()
    seldom.stop()


@pytest.mark.promise(
    "spark source",
    "The options `fetchOffset.numRetries` and `fetchOffset.retryIntervalMs` work as documented",
)
def test_an_end_before_the_query_is_asked_for_again(penstock: PenstockBroker) -> None:
    """A leader that has just been elected may tell an older end than the one before."""
    penstock.create_topic("t")
    penstock.produce("t", ["a"])
    options = parse_source_options(
        {
            "kafka.bootstrap.servers": penstock.bootstrap,
            "subscribe": "t",
            "fetchOffset.numRetries": "4",
            "fetchOffset.retryIntervalMs": "7",
        },
        streaming=True,
    )
    pauses: list[float] = []
    with Cluster(ClientSettings.from_kafka(options.client_settings)) as cluster:
        lookup = Lookup(cluster, options, sleep=pauses.append)
        assert lookup.latest_not_before([("t", 0)], {("t", 0): 1}) == {("t", 0): 1}
        assert pauses == []
        assert lookup.latest_not_before([("t", 0)], {("t", 0): 5}) == {("t", 0): 1}
        assert pauses == [0.007] * 3
    assert penstock.requests["ListOffsets"] == 1 + 4 * 2, "each time also whatever the isolation level"


@pytest.mark.promise(
    "spark source",
    "Records of aborted and open transactions are not read by default; a query whose checkpoint is "
    "inside an open transaction waits until it ends",
)
@pytest.mark.parametrize("lossy", ["true", "false"])
def test_a_query_that_has_read_into_an_open_transaction_waits_for_its_end(
    penstock: PenstockBroker, lossy: str
) -> None:
    """Its checkpoint, of a run with read_uncommitted, lies past the last stable offset, and in the log."""
    penstock.create_topic("t")
    producer = Producer(
        {"bootstrap.servers": penstock.bootstrap, "transactional.id": "open", "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in ("a", "b"):
        producer.produce("t", value, partition=0)
    producer.flush(30)
    source = reader(penstock, subscribe="t", failOnDataLoss=lossy)
    start = {"t": {"0": 2}}
    assert source.latestOffset(start, ReadAllAvailable()) == start
    producer.commit_transaction(30)
    penstock.produce("t", ["c"])
    assert source.latestOffset(start, ReadAllAvailable()) == {"t": {"0": 4}}
    source.stop()


@pytest.mark.promise("spark source", "The option `commitProgress` works as documented")
@pytest.mark.promise(
    "sql", "A push query has no consumer group; the group of a query that is terminated or dropped is deleted"
)
@pytest.mark.parametrize("commits", ["true", "false"])
def test_a_query_that_commits_no_progress_has_no_group(penstock: PenstockBroker, commits: str) -> None:
    penstock.create_topic("t")
    penstock.produce("t", ["a"])
    source = reader(penstock, subscribe="t", kafka__group__id="g", commitProgress=commits)
    source.commit({"t": {"0": 1}})
    source.stop()
    with Cluster(ClientSettings.from_kafka({"bootstrap.servers": penstock.bootstrap})) as cluster:
        assert cluster.committed("g", [("t", 0)]) == {("t", 0): 1 if commits == "true" else None}
    unnamed = reader(penstock, subscribe="t", commitProgress=commits)
    (planned,) = unnamed.partitions({"t": {"0": 0}}, {"t": {"0": 1}})
    assert (planned.token is not None) is (commits == "true"), "by which its task would announce a group"
    unnamed.stop()


@pytest.mark.promise(
    "spark source", "The error for a missing topic suggests the topic with the most similar name"
)
def test_a_topic_that_is_missing_is_told_with_the_one_that_is_near(penstock: PenstockBroker) -> None:
    penstock.create_topic("orders")
    with pytest.raises(NoSuchTopic, match=r"topic order, zzz does not exist at .*: did you mean orders\?"):
        reader(penstock, subscribe="order,zzz").initialOffset()
    with pytest.raises(NoSuchTopic, match=r"topic zzz does not exist at [^ ]*: create it before"):
        reader(penstock, subscribe="zzz").initialOffset()


@pytest.mark.promise("spark source", "The option `kafkaConsumer.pollTimeoutMs` works as documented")
def test_a_topic_deleted_under_a_task(penstock: PenstockBroker, caplog: pytest.LogCaptureFixture) -> None:
    penstock.create_topic("t")
    penstock.produce("t", ["a"])
    options = {"subscribe": "t", "kafkaConsumer__pollTimeoutMs": "1000"}
    strict = reader(penstock, **options)
    planned = list(strict.partitions({"t": {"0": 0}}, {"t": {"0": 1}}))
    penstock.delete_topic("t")
    with pytest.raises(DataLoss, match="topic t was deleted before t-0 was read up to 1"):
        list(strict.read(planned[0]))
    lenient = reader(penstock, **options, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        assert list(lenient.read(planned[0])) == []
    assert "continuing, because failOnDataLoss is false" in caplog.text
    strict.stop()


@pytest.mark.promise("spark source", "A data loss that `failOnDataLoss=false` accepts is logged once")
def test_a_loss_that_is_accepted_is_told_once(
    penstock: PenstockBroker, caplog: pytest.LogCaptureFixture
) -> None:
    penstock.create_topic("t")
    penstock.produce("t", ["a", "b", "c", "d"])
    source = reader(penstock, subscribe="t", failOnDataLoss="false")
    start = source.initialOffset()
    penstock.delete_topic("t")
    penstock.create_topic("t")
    penstock.produce("t", ["new"] * 6)
    delete_records(penstock, "t", 0, 1)
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        # A batch of its own puts the new position into the checkpoint, before anything is read from there.
        moved = source.latestOffset({"t": {"0": 4}}, ReadAllAvailable())
        assert moved == {"t": {"0": 1}}
        assert source.partitions({"t": {"0": 4}}, moved) == []
        end = source.latestOffset(moved, ReadAllAvailable())
    assert end == {"t": {"0": 6}}
    assert read_between(source, moved, end) == ["new"] * 5
    assert caplog.text.count("topic t was deleted and created again; continuing") == 1
    assert start == {"t": {"0": 0}}
    source.stop()


def test_an_option_without_effect_is_told(penstock: PenstockBroker, caplog: pytest.LogCaptureFixture) -> None:
    penstock.create_topic("t")
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        source = reader(penstock, subscribe="t", kafka__group__id="g", groupIdPrefix="p", mergeSchema="true")
        source.initialOffset()
    assert "groupIdPrefix is ignored" in caplog.text
    assert "unknown option mergeschema has no effect" in caplog.text
    source.stop()


@pytest.mark.promise(
    "spark source",
    "The options `kafka.default.api.timeout.ms` and `kafka.request.timeout.ms` work as documented",
)
def test_a_broker_that_hangs_is_given_up(penstock: PenstockBroker) -> None:
    penstock.create_topic("t")
    source = reader(
        penstock, subscribe="t", kafka__request__timeout__ms="300", kafka__default__api__timeout__ms="1000"
    )
    start = source.initialOffset()
    penstock.pause()
    try:
        with pytest.raises(ClusterTimeout, match=f"did not succeed within 1000 ms.*{penstock.bootstrap}"):
            source.latestOffset(start, ReadAllAvailable())
    finally:
        penstock.resume()
    assert source.latestOffset(start, ReadAllAvailable()) == start
    source.stop()
