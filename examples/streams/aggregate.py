"""Aggregations: count, sum, least and most of each key, as they are after each batch ("a KTable").

The results go to a compacted topic: of each key the newest record counts ("changelog"). Only those that have
changed are written (update mode), which `batches_to_topics` does exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from shared import as_json, fields, start

from penstock.spark.streams import batches_to_topics

SAMPLE = [
    ("orders", customer, {"amount": amount})
    for customer, amount in [("ann", 10), ("bob", 5), ("ann", 30), ("ann", 2)]
]


def totals(orders: DataFrame) -> DataFrame:
    found = orders.groupBy("key").agg(
        F.count("*").alias("orders"),
        F.sum("amount").alias("sum"),
        F.min("amount").alias("least"),
        F.max("amount").alias("most"),
    )
    return found.select("key", as_json("orders", "sum", "least", "most"))


def main(arguments: Sequence[str] | None = None) -> None:
    streams = start(__doc__, SAMPLE, arguments)
    rows = totals(fields(streams.read("orders"), "amount INT"))
    write = batches_to_topics({**streams.kafka, "topic": "totals"})
    streams.run(rows.writeStream.outputMode("update").foreachBatch(write))


if __name__ == "__main__":
    main()
