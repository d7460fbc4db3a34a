"""The Spark session of a pipeline: where it runs, and a catalog in the project's storage that outlives it."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.pipelines.errors import PipelineError
from penstock.pipelines.failures import cause
from penstock.pipelines.project.project import DEFAULT_CATALOG, Project
from penstock.sqltext.identifiers import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALOG = "spark.sql.catalogImplementation"
_METASTORE = "spark.hadoop.javax.jdo.option.ConnectionURL"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def session_settings(project: Project, extra: Mapping[str, str]) -> dict[str, str]:
    """Spark settings of a project: ours, under the spec's `configuration`, under the command line's."""
    home = project.state_directory
    metastore = home.parent / "catalog" if project.local_storage else home / "catalog"
    settings = {
        _CATALOG: "hive",
        "spark.sql.warehouse.dir": project.under_storage("tables"),
        _METASTORE: f"jdbc:derby:;databaseName={metastore};create=true",
        # Streams add partitions as directories; the metastore would not know them.
        "spark.sql.hive.manageFilesourcePartitions": "false",
        # A stop that hangs must end, so that the others are stopped too.
        "spark.sql.streaming.stopTimeout": "60s",
        **project.configuration,
        **extra,
    }
    home.mkdir(parents=True, exist_ok=True)
    derby = f"-Dderby.system.home={home} -Dderby.stream.error.file={home / 'derby.log'}"
    settings[_JAVA_OPTIONS] = f"{settings.get(_JAVA_OPTIONS, '')} {derby}".strip()
    return settings


def open_session(project: Project, master: str, extra: Mapping[str, str]) -> SparkSession:
    """A session for this project; PipelineError when Spark cannot start."""
    from penstock.spark import session

    quiet()
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        spark = session(f"penstock {project.name}", master=master, conf=session_settings(project, extra))
    except Exception as error:
        raise PipelineError(f"Spark does not start on {master}: {cause(error)}") from error
    finally:
        if threading.current_thread() is threading.main_thread():
            # PySpark puts in its own, which cancels jobs and raises KeyboardInterrupt.
            signal.signal(signal.SIGINT, on_interrupt)
    use_database(project, spark)
    return spark


def use_database(project: Project, spark: SparkSession) -> None:
    """Makes the project's catalog and database the current ones; a database of Spark's own is created."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        if project.catalog == DEFAULT_CATALOG:
            spark.sql(f"CREATE DATABASE IF NOT EXISTS {quoted(project.database)}")
        spark.catalog.setCurrentCatalog(project.catalog)
        spark.catalog.setCurrentDatabase(project.database)
    except (PySparkException, Py4JJavaError) as error:
        text = cause(error)
        if "Derby may have already booted" in str(error):
            text = f"another process has its catalog open: {text}"
        raise PipelineError(f"catalog '{project.catalog}', database '{project.database}': {text}") from error


def quiet() -> None:
    """PySpark logs each error that it raises once more, as JSON; ours are reported once, by their cause."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def jvm_pid(spark: SparkSession) -> int | None:
    """The process of this session's JVM."""
    from py4j.protocol import Py4JError

    try:
        return int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    except (Py4JError, AttributeError, TypeError):
        return None


def find_bootstrap(options: Mapping[str, str]) -> str | None:
    """The brokers that a source's or sink's options name."""
    for key, value in options.items():
        if key.lower() == "kafka.bootstrap.servers":
            return value
    return None
