"""A table that is compared as a whole is written by the server that took over last. Starts no Spark."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from penstock.spark.errors import BatchChanged
from penstock.spark.sink import writers as sink
from penstock.spark.sink.finish_batch import WhichBatch
from penstock.sql.catalog.catalog import Catalog, leader_record
from penstock.sql.continuous.table_versions import Versions, fence
from penstock.sql.settings import EngineSettings
from penstock.testing import PenstockBroker


@pytest.mark.promise(
    "sql",
    "After a takeover, only the new server writes a table over tables or with session windows; a server "
    "that was paused writes nothing when it resumes, whatever the clocks say",
)
def test_versions_grow_with_each_write_and_with_each_leader() -> None:
    now_ms = time.time_ns() // 1_000_000
    first, second = Versions(1), Versions(2)
    numbers = [first.next("a"), first.next("a"), first.next("b")]
    assert now_ms < numbers[0] < numbers[1], "an earlier version wrote milliseconds"
    assert numbers[2] == numbers[0]
    assert max(first.next("a") for _ in range(1000)) < second.next("a")


@pytest.mark.promise(
    "sql",
    "After a takeover, only the new server writes a table over tables or with session windows; a server "
    "that was paused writes nothing when it resumes, whatever the clocks say",
)
def test_each_server_that_takes_over_has_a_higher_epoch() -> None:
    catalog = Catalog()
    for epoch in (1, 2, 3):
        catalog = catalog.apply(leader_record(catalog))
        assert catalog.epoch == epoch


def write(penstock: PenstockBroker, version: int, text: str) -> None:
    """As a task of Spark does."""
    options = sink.parse_sink_options(
        StructType([StructField("value", StringType())]),
        {
            "kafka.bootstrap.servers": penstock.bootstrap,
            "topic": "out",
            "delivery": "exactly_once",
            "txnAppId": "q",
            "txnVersion": str(version),
        },
        streaming=False,
    )
    rows = [pa.record_batch({"value": pa.array([text], pa.string())})]
    sink._write_exactly_once(iter(rows), options, WhichBatch("q", version, text), 0)


@pytest.mark.promise(
    "sql",
    "After a takeover, only the new server writes a table over tables or with session windows; a server "
    "that was paused writes nothing when it resumes, whatever the clocks say",
)
def test_a_leader_that_was_paused_writes_nothing_once_another_has_taken_over(
    penstock: PenstockBroker,
) -> None:
    penstock.create_topic("out")
    settings = EngineSettings(penstock.bootstrap, None, "")
    paused, successor = Versions(1), Versions(2)
    fence(settings, "q", paused.next("q"))
    write(penstock, paused.next("q"), "before")
    fence(settings, "q", successor.next("q"))  # before it reads what is there: nothing comes after that
    with pytest.raises(BatchChanged, match="has written batch"):
        write(penstock, paused.next("q"), "after it woke")
    with pytest.raises(BatchChanged, match="another server leads"):
        fence(settings, "q", paused.next("q"))  # its query was started again
    write(penstock, successor.next("q"), "of the successor")
    values = [each.value for each in penstock.consume("out", isolation="read_committed")]
    assert values == [b"before", b"of the successor"]
