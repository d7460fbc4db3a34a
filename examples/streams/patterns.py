"""Patterns over several records ("complex event processing"): three failed logins and then one that succeeds.

`penstock.spark.streams.match_recognize` takes the clauses of SQL's MATCH_RECOGNIZE. Logins are matched in the
order of their times, whatever order they arrive in: they wait for those that may be up to ten seconds late.
`event_processing.py` does the same by hand, with a state machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from shared import Streams, as_json, fields, start

from penstock.spark.streams import match_recognize

EIGHT = datetime(2025, 1, 1, 8)
SAMPLE = [
    ("logins", account, {"ok": ok, "at": str(EIGHT + timedelta(seconds=second))})
    for account, ok, second in [
        ("ann", False, 0), ("ann", True, 5), ("eve", False, 10), ("eve", False, 20), ("eve", True, 40),
        ("bob", False, 0), ("bob", False, 60), ("bob", False, 100), ("bob", True, 101), ("eve", False, 30),
        ("ann", True, 300),
    ]
]  # fmt: skip


def alerts(logins: DataFrame) -> DataFrame:
    found = match_recognize(
        logins,
        partition_by="account",
        order_by="at",
        pattern="FAILED{3,} SUCCEEDED",
        define={"FAILED": "NOT ok", "SUCCEEDED": "ok"},
        measures={"failures": "COUNT(FAILED.*)", "began": "FIRST(at)"},
        within="1 minute",
    )
    return found.select(F.col("account").alias("key"), as_json("account", "failures", "began"))


def logins(streams: Streams, **options: str) -> DataFrame:
    records = fields(streams.read("logins", **options), "ok BOOLEAN, at TIMESTAMP")
    return records.withColumn("account", F.col("key").cast("string")).withWatermark("at", "10 seconds")


def main(arguments: Sequence[str] | None = None) -> None:
    streams = start(__doc__, SAMPLE, arguments)
    streams.write(alerts(logins(streams)), "alerts")


if __name__ == "__main__":
    main()
