"""Spark's classes in an archive that Java maps instead of loading each: half of a Spark's start.

`python -m tests.spark.class_archive` makes it in build/, once for a Java and a Spark, and the home of Spark
that tests use (`spark_home`), as `make test-spark` does first. Where they are missing, or Java cannot use
the archive, tests run without them, and take longer.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import penstock.spark
from penstock.spark.errors import NoJava
from penstock.spark.java import find_java_home
from penstock.testing import PenstockBroker
from tests.spark import spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUILD = Path(__file__).resolve().parents[2] / "build"
# Tests are many short queries on few cores: compile quickly rather than well, and collect without threads.
JVM_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# For the Spark and the SQL server that tests share. For each file of a checkpoint in a directory, Spark's
# default starts eight `readlink` processes: 80 for a micro-batch of a query with state.
# Sparks that are killed, and those of users' programs, keep the default.
SHARED_CONF = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}
END_SECONDS = 300


def archive() -> Path:
    """Where the archive for this machine's Java and Spark is, or would be."""
    java = (find_java_home(os.environ) / "bin" / "java").resolve()
    made_of = f"{java} {java.stat().st_mtime_ns} {version('pyspark')} {spark_home.home()}"
    return BUILD / f"spark-classes-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}.jsa"


def prepare_environment() -> None:
    """Every Spark driver that is started from here, by whatever process, starts with the archive."""
    flags = [JVM_FLAGS]
    if spark_home.home().exists():
        os.environ["SPARK_HOME"] = str(spark_home.home())
    try:
        found = archive()
    except NoJava:
        return
    if found.exists():
        # An archive that does not fit is left aside; that is no reason for words among a program's output.
        flags.append(f"-Xshare:auto -XX:SharedArchiveFile={found} -Xlog:disable -Xlog:all=error:stderr")
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join(flags)


def make(target: Path) -> None:
    """Runs what most tests run, and has Java write down the classes when it ends."""
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="spark-classes-") as scratch:
        beside = Path(scratch) / target.name
        log = "-Xlog:disable -Xlog:all=error:stderr"
        os.environ["SPARK_HOME"] = str(spark_home.home())
        os.environ["SPARK_SUBMIT_OPTS"] = f"{JVM_FLAGS} -XX:ArchiveClassesAtExit={beside} {log}"
        _work(Path(scratch))
        if beside.exists():
            # Written beside and renamed: another run may be starting a Spark at this moment.
            beside.replace(target)
        else:
            print("this Java writes no archive of classes: Spark starts without one", file=sys.stderr)


def _work(scratch: Path) -> None:
    spark = penstock.spark.session(
        "classes", conf={"spark.sql.warehouse.dir": str(scratch), "spark.sql.session.timeZone": "UTC"}
    )
    spark.sparkContext.setLogLevel("OFF")
    (scratch / "in").mkdir()
    lines = [f'{{"n": {n}, "t": "a-{n % 3}"}}' for n in range(100)]
    (scratch / "in" / "rows.json").write_text("\n".join(lines))
    rows = spark.readStream.schema("n INT, t STRING").json(str(scratch / "in"))
    timed = rows.selectExpr("timestamp_seconds(n) AS at", "n", "t").withWatermark("at", "1 second")
    counted = timed.groupBy("t").agg({"n": "sum"})
    doubled = rows.mapInArrow(lambda batches: batches, "n INT, t STRING")
    for name, frame, kind, mode in (
        ("parquet", doubled.selectExpr("n", "to_json(struct(*)) AS j"), "parquet", "append"),
        ("counted", counted, "memory", "complete"),
        ("distinct", timed.dropDuplicates(["n", "at"]), "noop", "append"),
    ):
        writing = frame.writeStream.format(kind).queryName(name).outputMode(mode)
        options = {"checkpointLocation": str(scratch / f"{name}-log"), "path": str(scratch / name)}
        writing.options(**options).trigger(availableNow=True).start().awaitTermination()
    written = spark.read.parquet(str(scratch / "parquet"))
    written.selectExpr("n", "from_json(j, 'n INT, t STRING') AS row").createOrReplaceTempView("written")
    spark.sql("SELECT row.t, count(*), collect_list(n) FROM written GROUP BY 1 ORDER BY 1").collect()
    spark.sql("SELECT * FROM written a JOIN written b USING (n) LIMIT 5").collect()
    spark.createDataFrame([(1, "a")], "n INT, t STRING").toPandas()
    with PenstockBroker() as broker:
        _copy_topics(spark, broker, scratch)
    java = spark.sparkContext._gateway.proc
    spark.stop()
    # It ends when its standard input does, and writes the archive then.
    java.stdin.close()
    java.wait(END_SECONDS)


def _copy_topics(spark: SparkSession, broker: PenstockBroker, scratch: Path) -> None:
    """Topics in a batch and in a stream, read and written."""
    broker.create_topic("in", partitions=2)
    broker.create_topic("out", partitions=2)
    topic = {"kafka.bootstrap.servers": broker.bootstrap, "startingOffsets": "earliest"}
    rows = spark.sql("SELECT 'k' AS key, 'v' AS value")
    rows.write.format("penstock").options(**topic, topic="in").mode("append").save()
    spark.read.format("penstock").options(**topic, subscribe="in").load().collect()
    stream = spark.readStream.format("penstock").options(**topic, subscribe="in").load()
    writing = stream.selectExpr("key", "value").writeStream.format("penstock").options(**topic, topic="out")
    writing = writing.option("checkpointLocation", str(scratch / "copied"))
    writing.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    try:
        target = archive()
    except NoJava:
        return  # the tests say so
    spark_home.make()
    if not target.exists():
        print(f"== {target.name}: Spark's classes, once")
        make(target)


if __name__ == "__main__":
    main()
