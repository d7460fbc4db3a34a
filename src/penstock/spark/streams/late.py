"""Sends late records to a topic; Spark alone drops them silently.

Which records are late is decided per batch, by the watermark before it. A second query with the same
watermark would have other batches, and so other late records. So results and late records are written by one
query: its batches hold the rows of the result and the records that it is made of, and of these only those
pass that its stateful operator has dropped. Spark writes the watermark of a batch into the checkpoint before
it runs it; there it is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.spark.errors import BadOption, SparkError
from penstock.spark.streams.batches import batches_to_topics
from penstock.spark.streams.headers import with_origin

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PREFIX = "penstock.late."
_CLOSES = "__penstock_closes"
_NEVER = 2**63 - 1
_COLUMNS = ("topic", "key", "value", "headers")


def late_to_topic(
    results: DataFrame,
    records: DataFrame,
    *,
    closes: Column,
    topic: str,
    checkpoint: str,
    options: Mapping[str, str],
) -> DataStreamWriter:
    """A query that writes `results` and sends late records to `topic`; start it with `.start()`.

    results     made of `records` by one stateful operator under a watermark; columns of the sink, with topic
    records     columns of the source and what `closes` needs
    closes      until when a record counts: the end of its (last) window, or for joins and deduplication its
                event time. It is late when the watermark has reached that
    options     of the sink, such as kafka.bootstrap.servers

    Late records keep key, value and headers (with `includeHeaders`), and get the headers penstock.late.topic,
    .partition, .offset, .timestamp, and .watermark: what the watermark was, in milliseconds. Delivery is
    exactly once, for both.
    """
    from pyspark.sql import functions as F

    if missing := [name for name in ("topic", "key", "value") if name not in results.columns]:
        raise BadOption(f"late_to_topic: the results have no column {', '.join(missing)}")
    none = F.array().cast("array<struct<key: string, value: binary>>")
    rows = results.select(
        "topic",
        F.col("key").cast("binary").alias("key"),
        F.col("value").cast("binary").alias("value"),
        (F.col("headers") if "headers" in results.columns else none).alias("headers"),
        F.lit(None).cast("bigint").alias(_CLOSES),
    )
    candidates = records.select(
        F.lit(topic).alias("topic"),
        "key",
        "value",
        with_origin(records, PREFIX).alias("headers"),
        # A record without a time is not a result, and is never late.
        F.coalesce(F.unix_micros(closes), F.lit(_NEVER)).alias(_CLOSES),
    )
    write = batches_to_topics(options)

    def write_batch(batch: DataFrame, batch_id: int) -> None:
        watermark_ms = previous_watermark(batch.sparkSession, checkpoint, batch_id)
        added = F.array(
            F.struct(
                F.lit(f"{PREFIX}watermark").alias("key"),
                F.lit(str(watermark_ms)).cast("binary").alias("value"),
            )
        )
        is_result = F.col(_CLOSES).isNull()
        is_late = F.col(_CLOSES) <= F.lit(watermark_ms * 1000)
        headers = F.when(is_result, F.col("headers")).otherwise(F.concat("headers", added))
        write(batch.where(is_result | is_late).withColumn("headers", headers).select(*_COLUMNS), batch_id)

    both = rows.union(candidates).writeStream.outputMode("append")
    return both.option("checkpointLocation", str(checkpoint)).foreachBatch(write_batch)


def previous_watermark(spark: SparkSession, checkpoint: str, batch_id: int) -> int:
    """The watermark before the batch, in milliseconds: stateful operators drop what is not after it."""
    if batch_id == 0:
        return 0
    path = f"{checkpoint}/offsets/{batch_id - 1}"
    found = spark.read.text(path, wholetext=True).first()
    try:
        assert found is not None
        # Version, metadata as JSON, and an offset for each source.
        return int(json.loads(found.value.splitlines()[1])["batchWatermarkMs"])
    except (AssertionError, IndexError, KeyError, ValueError) as error:
        raise SparkError(
            f"{path} has no watermark of its batch; is it the checkpoint of this query?"
        ) from error
