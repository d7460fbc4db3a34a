"""A topic as the static side of a streaming join: each micro-batch sees it as it is then."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.testing import PenstockBroker
from tests.spark.source_helpers import Collected, read, running, stream

pytestmark = pytest.mark.timeout(300)


@pytest.mark.promise("streams", "Example: stream-table join")
@pytest.mark.promise("demo", "A topic that a stream is joined with is re-read for each micro-batch")
@pytest.mark.parametrize("how", ["broadcast", "merge"])
def test_each_batch_of_a_stream_sees_the_table_as_it_is_then(
    spark: SparkSession, penstock: PenstockBroker, tmp_path: Path, how: str
) -> None:
    penstock.create_topic("orders")
    penstock.create_topic("prices", partitions=2)
    prices = read(spark, penstock, {"subscribe": "prices"})
    newest = prices.groupBy("key").agg(F.max_by("value", "offset").alias("price"))
    joined = stream(spark, penstock, {"subscribe": "orders"}).join(newest.hint(how), "key", "left")
    collected = Collected()
    with running(joined.select("value", "price"), collected, tmp_path) as query:

        def order(name: str) -> bytes | None:
            penstock.produce("orders", [(b"apple", name.encode())])
            query.processAllAvailable()
            (price,) = [row.price for row in collected.rows if bytes(row.value) == name.encode()]
            return None if price is None else bytes(price)

        # Empty when the query was planned, which is when Spark asks for its partitions.
        assert order("first") is None
        penstock.produce("prices", [(b"apple", b"10")], partition=1)
        assert order("second") == b"10"
        penstock.produce("prices", [(b"apple", b"12")], partition=1)
        assert order("third") == b"12"
