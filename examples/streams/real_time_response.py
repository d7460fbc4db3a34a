"""Real-time response: each request is answered as soon as it comes ("request-reply").

A request says in its headers where it wants the answer (reply-to) and how it will know it (correlation-id).
The answer goes to that topic, with that header. Without a trigger interval, Spark begins a batch as soon as
there is something to read; the answers can be read when its transaction is committed, well within a second.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from shared import as_json, start

LIMITS = {"ann": 100, "bob": 20}


def header(name: str) -> Column:
    return F.expr(f"try_element_at(filter(headers, header -> header.key = '{name}'), 1).value")


def answers(requests: DataFrame) -> DataFrame:
    """May this customer buy for so much?"""
    limits = F.create_map(*(F.lit(word) for pair in LIMITS.items() for word in pair))
    customer = F.col("key").cast("string")
    asked = F.col("value").cast("string").try_cast("int").alias("asked")
    granted = F.coalesce(asked <= F.try_element_at(limits, customer), F.lit(False)).alias("granted")
    correlation = F.struct(F.lit("correlation-id").alias("key"), header("correlation-id").alias("value"))
    return requests.where(header("reply-to").isNotNull()).select(
        header("reply-to").cast("string").alias("topic"),
        "key",
        as_json(asked, granted),
        F.array(correlation).alias("headers"),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    streams = start(__doc__, (), arguments)
    streams.write(answers(streams.read("requests", includeHeaders="true")))


if __name__ == "__main__":
    main()
