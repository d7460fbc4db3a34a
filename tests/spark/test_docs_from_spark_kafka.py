"""docs/from-spark-kafka.md: its programs run as they stand there, one after the other."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.testing import PenstockBroker
from tests.doc_blocks import programs


@pytest.mark.promise(
    "docs",
    "The programs of from-spark-kafka.md run, and a checkpoint shows the offsets at which its query ended",
)
@pytest.mark.timeout(300)
def test_the_copy_runs_and_its_checkpoint_says_where_it_ended(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    penstock.create_topic("shop-orders", partitions=2)
    penstock.create_topic("shop-orders-copy")
    penstock.produce("shop-orders", [{"value": f"{n}", "partition": n % 2} for n in range(5)])
    copy, offsets = programs("docs/from-spark-kafka.md")
    monkeypatch.chdir(tmp_path)

    # Spark resolves a relative path where its session was started.
    copy = copy.replace("localhost:9092", penstock.bootstrap).replace(
        '"checkpoints', f'"{tmp_path}/checkpoints'
    )
    exec(copy, {})
    copied = penstock.consume("shop-orders-copy", isolation="read_committed")
    assert sorted(record.value for record in copied) == [b"0", b"1", b"2", b"3", b"4"]

    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(offsets, {})
    assert json.loads(output.getvalue()) == {"shop-orders": {"0": 3, "1": 2}}
