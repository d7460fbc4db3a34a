"""Branch and merge: several topics become one stream, and one stream several topics.

Merging is reading several topics at once (or `union`, where they look different). Branching is a column
`topic`: the sink sends each row where it says, all in the same transactions, so no row is lost between two
branches or is in both.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from shared import as_json, fields, start

SAMPLE = [
    ("orders.web", "ann", {"amount": 250}),
    ("orders.web", "bob", {"amount": 20}),
    ("orders.shop", "cas", {"amount": -15}),
    ("orders.shop", "dee", {"amount": 30}),
]


def branches(orders: DataFrame) -> DataFrame:
    topic = (
        F.when(F.col("amount") < 0, "orders.refunds")
        .when(F.col("amount") >= 100, "orders.large")
        .otherwise("orders.small")
    )
    return orders.select(topic.alias("topic"), "key", as_json("amount", F.col("topic").alias("from")))


def main(arguments: Sequence[str] | None = None) -> None:
    streams = start(__doc__, SAMPLE, arguments)
    orders = fields(streams.read("orders.web,orders.shop"), "amount INT")
    streams.write(branches(orders))


if __name__ == "__main__":
    main()
