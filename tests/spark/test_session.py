"""The session that `penstock.spark.session` gives."""

from __future__ import annotations

import sys

import pytest
from pyspark.sql import SparkSession

import penstock.spark


@pytest.mark.timeout(300)
def test_the_session_has_the_settings_that_streams_want(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.streaming.stateStore.providerClass").endswith(
        "RocksDBStateStoreProvider"
    )
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.sql.streaming.pollingDelay") == "100ms"
    assert spark.range(100).selectExpr("sum(id)").collect()[0][0] == 4950
    assert spark.sparkContext.uiWebUrl is None


@pytest.mark.timeout(300)
def test_workers_run_the_python_that_started_them(spark: SparkSession) -> None:
    workers = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable)
    assert workers.collect() == [sys.executable]


@pytest.mark.timeout(300)
def test_asking_again_gives_the_running_session(spark: SparkSession) -> None:
    assert penstock.spark.session("penstock-tests") is spark
