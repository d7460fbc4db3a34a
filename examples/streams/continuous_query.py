"""Continuous querying: an SQL query that never ends; its result changes as records come.

The topic `orders` is a table without end. What changes in the result goes to the topic `answers`, keyed by
a column of the result: of each key the newest record is the answer of now.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from shared import as_json, connect, fields, options

from penstock.spark.streams import batches_to_topics

SAMPLE = [
    ("orders", None, {"product": product, "pieces": pieces, "price": price})
    for product, pieces, price in [("tea", 2, 4), ("milk", 10, 1), ("tea", 3, 4), ("salt", 1, 1)]
]
QUERY = """
    SELECT product, count(*) AS orders, sum(pieces * price) AS revenue
    FROM orders GROUP BY product HAVING sum(pieces * price) >= 10
"""


def answers(orders: DataFrame, query: str, key: str) -> DataFrame:
    orders.createOrReplaceTempView("orders")
    found = orders.sparkSession.sql(query)
    return found.select(F.col(key).cast("string").alias("key"), as_json(*found.columns))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__)
    parser.add_argument("--query", default=QUERY, help="what to ask, of product, pieces and price in orders")
    parser.add_argument(
        "--key", default="product", help="the column that distinguishes answers (%(default)s)"
    )
    parsed = parser.parse_args(arguments)
    streams = connect(parsed, SAMPLE)
    orders = fields(streams.read("orders"), "product STRING, pieces INT, price INT")
    write = batches_to_topics({**streams.kafka, "topic": "answers"})
    rows = answers(orders, parsed.query, parsed.key)
    streams.run(rows.writeStream.outputMode("update").foreachBatch(write))


if __name__ == "__main__":
    main()
