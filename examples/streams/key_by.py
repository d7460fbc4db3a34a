"""Key by: give records another key, so that what belongs together is in one partition ("repartition topic").

Orders come keyed by customer and leave keyed by product: whoever reads a partition of the new topic sees all
orders of its products, in the order in which this query wrote them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from shared import as_json, fields, start

SAMPLE = [
    ("orders", customer, {"product": product})
    for customer, product in [
        ("ann", "tea"),
        ("bob", "milk"),
        ("cas", "tea"),
        ("ann", "milk"),
        ("bob", "tea"),
    ]
]


def by_product(orders: DataFrame) -> DataFrame:
    customer = F.col("key").cast("string").alias("customer")
    return orders.select(F.col("product").alias("key"), as_json("product", customer))


def main(arguments: Sequence[str] | None = None) -> None:
    streams = start(__doc__, SAMPLE, arguments)
    streams.write(by_product(fields(streams.read("orders"), "product STRING")), "orders.by-product")


if __name__ == "__main__":
    main()
