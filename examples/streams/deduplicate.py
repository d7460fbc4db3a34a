"""Deduplication: of records with the same id one goes on, however often it was sent ("effectively once").

Ids are remembered for an hour of event time: a sender that tries again later than that is not noticed. What
is remembered is in the checkpoint, and the output is written in transactions: the result has each id once.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from shared import as_json, fields, start

SAMPLE = [
    ("payments", None, {"id": id, "amount": amount, "at": f"2024-05-01T{time}Z"})
    for id, amount, time in [
        ("p1", 10, "10:00:00"), ("p2", 20, "10:01:00"), ("p1", 10, "10:00:00"), ("p1", 10, "10:30:00"),
        ("p3", 30, "10:31:00"),
    ]
]  # fmt: skip


def once(payments: DataFrame) -> DataFrame:
    unique = payments.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["id"])
    return unique.select(F.col("id").alias("key"), as_json("id", "amount"))


def main(arguments: Sequence[str] | None = None) -> None:
    streams = start(__doc__, SAMPLE, arguments)
    payments = fields(streams.read("payments"), "id STRING, amount INT, at TIMESTAMP")
    streams.write(once(payments), "payments.once")


if __name__ == "__main__":
    main()
