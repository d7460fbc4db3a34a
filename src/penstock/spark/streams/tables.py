"""A compacted topic as a table: the newest value of each key, without deleted keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def table(records: DataFrame) -> DataFrame:
    """The newest record of each key, from a batch read of a topic; a null value deletes its key.

    Joined with a stream, it is re-read for each micro-batch, so each sees the table as it is then. The newest
    is the one with the highest offset: all records of a key are in one partition, as with Kafka's
    partitioners, and as compaction requires. Whether the topic has been compacted yet makes no difference,
    except to what has to be read.
    """
    from pyspark.sql import functions as F

    columns = [name for name in records.columns if name != "key"]
    newest = F.max_by(F.struct(*columns), "offset").alias("newest")
    latest = records.where("key IS NOT NULL").groupBy("key").agg(newest)
    return latest.where("newest.value IS NOT NULL").select("key", "newest.*")
