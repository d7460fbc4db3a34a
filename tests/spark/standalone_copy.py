"""The driver of the test on a standalone cluster: topic to topic, exactly once, in a process of its own.

Tells, as its last line, what it read and where its tasks ran.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import penstock.spark


def main(master: str, bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    spark = penstock.spark.session(
        "standalone",
        master=master,
        conf={
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            # Both executors first, so that the test shows two of them.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
            "spark.cores.max": "2",
        },
    )
    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", source).option("startingOffsets", "earliest")
    doubled = reader.option("maxOffsetsPerTrigger", "400").load().selectExpr(
        "key", "concat(value, value) AS value"
    )  # fmt: skip
    writer = doubled.writeStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("topic", target).option("checkpointLocation", checkpoint)
    query = writer.queryName("doubled").trigger(availableNow=True).start()
    query.awaitTermination()
    executors: Any = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
    told = {
        "batches": len([one for one in query.recentProgress if one.numInputRows]),
        "rows": sum(one.numInputRows for one in query.recentProgress),
        # The driver is counted with them.
        "executors": int(executors) - 1,
    }
    spark.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
