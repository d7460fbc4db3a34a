"""The program that test_sink_kills.py kills: it copies a topic to a topic and to two Delta tables.

Started with the brokers' address and a directory. Runs until there is a file `stop` in the directory; then it
finishes what is there and ends.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame

import penstock.spark
from penstock.spark import delta


def main(bootstrap: str, home: Path) -> None:
    spark = penstock.spark.session(
        "killed",
        # Eight attempts: a task whose worker is killed is run again, and the query goes on.
        master="local[2,8]",
        conf={
            "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": str(home / "scratch"),
            "spark.sql.warehouse.dir": str(home / "warehouse"),
            "spark.log.level": "OFF",
        },
    )
    spark.dataSource.register(penstock.spark.PenstockDataSource)
    source = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "in")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "4000")
        .load()
    )
    copy = (
        source.select("key", "value")
        .writeStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", "out")
        .option("checkpointLocation", str(home / "checkpoint-topic"))
    )
    text = source.selectExpr("cast(key as string) as key", "cast(cast(value as string) as long) as value")
    append = delta.writer(str(home / "appended"))
    upsert = delta.writer(str(home / "upserted"), "upsert", ["key"])

    def both(df: DataFrame, batch_id: int) -> None:
        append(df, batch_id)
        upsert(df, batch_id)

    tables = text.writeStream.foreachBatch(both).option("checkpointLocation", str(home / "checkpoint-delta"))
    writers = [copy, tables]
    queries = [writer.start() for writer in writers]
    (home / f"started-{os.getpid()}").touch()

    def tend(waiting: bool) -> bool:
        """Starts a query that has failed again; whether all have come to the end of what is there."""
        for index, writer in enumerate(writers):
            try:
                if waiting:
                    queries[index].processAllAvailable()
                elif not queries[index].isActive:
                    raise queries[index].exception() or RuntimeError("it ended by itself")
            except Exception as error:  # noqa: BLE001 - whatever it was: it goes on from its checkpoint
                print(f"{time.ctime()} query {index} failed: {error}", flush=True)
                queries[index] = writer.start()
                return False
        return waiting

    while not (home / "stop").exists():
        time.sleep(0.05)
        tend(waiting=False)
    while not tend(waiting=True):
        pass
    for query in queries:
        query.stop()
    (home / "done").touch()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
