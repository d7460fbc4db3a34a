"""Writes micro-batches to topics from `foreachBatch`, exactly once.

For update mode, which Spark does not offer to Python sinks: a batch has the rows that changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from penstock.spark.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY_ID = "sql.streaming.queryId"


def batches_to_topics(
    options: Mapping[str, str], app_id: str | None = None
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch`: writes each batch with these options of the sink, once.

    The batch is known by the query's id and its number, so it is written once however often it is run. If a
    query writes several sets of rows in one batch, give each its own `app_id`.
    """

    def write(batch: DataFrame, batch_id: int) -> None:
        query = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        name = app_id or query
        if name is None:
            raise SparkError("this is not called by foreachBatch of a streaming query; give it an app_id")
        given = {**options, "delivery": "exactly_once", "txnAppId": name, "txnVersion": str(batch_id)}
        batch.write.format("penstock").options(**given).mode("append").save()

    return write
