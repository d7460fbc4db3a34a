"""A join of a stream with a table: each order with the price of its product ("KStream-KTable join").

The table is a compacted topic: of each product the newest price counts, and a price of null takes it off the
list. Each batch of orders sees the prices as they are then.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from shared import as_json, fields, start

from penstock.spark.streams import table

SAMPLE = [
    ("prices", "tea", "3"),
    ("prices", "milk", "1"),
    ("prices", "tea", "4"),
    ("prices", "milk", None),
    ("orders", "ann", {"product": "tea", "pieces": 2}),
    ("orders", "bob", {"product": "milk", "pieces": 1}),
]


def priced(orders: DataFrame, prices: DataFrame) -> DataFrame:
    newest = table(prices).select(
        F.col("key").cast("string").alias("product"), F.col("value").cast("string").cast("int").alias("price")
    )
    cost = (F.col("pieces") * F.col("price")).alias("cost")
    return orders.join(newest, "product", "left").select("key", as_json("product", "pieces", cost))


def main(arguments: Sequence[str] | None = None) -> None:
    streams = start(__doc__, SAMPLE, arguments)
    orders = fields(streams.read("orders"), "product STRING, pieces INT")
    streams.write(priced(orders, streams.read_now("prices")), "orders.priced")


if __name__ == "__main__":
    main()
