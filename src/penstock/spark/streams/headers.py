"""The origin of a record, as headers of the record that is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def with_origin(records: DataFrame, prefix: str, **more: Column) -> Column:
    """The headers of the source's record, if they were read, followed by its origin.

    Numbers and times are text, as tools show them; the timestamp is in milliseconds.
    """
    from pyspark.sql import functions as F

    columns = {
        **more,
        "topic": F.col("topic"),
        "partition": F.col("partition"),
        "offset": F.col("offset"),
        "timestamp": F.unix_millis("timestamp"),
    }
    added = F.array(
        *(
            F.struct(F.lit(prefix + name).alias("key"), column.cast("string").cast("binary").alias("value"))
            for name, column in columns.items()
        )
    )
    return F.concat("headers", added) if "headers" in records.columns else added
