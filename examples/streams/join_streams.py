"""A join of two streams: each order with its payment, if it comes within an hour ("windowed stream join").

Both sides wait for each other in Spark's state. When the watermark says that no payment can come any more,
the order leaves without one (left outer join).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from shared import as_json, fields, start

SAMPLE = [
    ("orders", None, {"id": 1, "ordered": "2024-05-01T10:00:00Z"}),
    ("orders", None, {"id": 2, "ordered": "2024-05-01T10:05:00Z"}),
    ("payments", None, {"order": 1, "paid": "2024-05-01T10:20:00Z"}),
    ("payments", None, {"order": 2, "paid": "2024-05-01T11:30:00Z"}),
    # Time goes on in both topics: only then is it sure that order 2 was not paid within its hour.
    ("orders", None, {"id": 3, "ordered": "2024-05-01T15:00:00Z"}),
    ("payments", None, {"order": 3, "paid": "2024-05-01T15:01:00Z"}),
]


def settled(orders: DataFrame, payments: DataFrame) -> DataFrame:
    ordered = orders.select("id", "ordered").withWatermark("ordered", "10 minutes")
    paid = payments.select("order", "paid").withWatermark("paid", "10 minutes")
    joined = ordered.join(
        paid,
        F.expr("id = order AND paid BETWEEN ordered AND ordered + INTERVAL 1 HOUR"),
        "left_outer",
    )
    return joined.select(F.col("id").cast("string").alias("key"), as_json("id", "ordered", "paid"))


def main(arguments: Sequence[str] | None = None) -> None:
    streams = start(__doc__, SAMPLE, arguments)
    orders = fields(streams.read("orders"), "id INT, ordered TIMESTAMP")
    payments = fields(streams.read("payments"), "order INT, paid TIMESTAMP")
    streams.write(settled(orders, payments), "orders.settled")


if __name__ == "__main__":
    main()
