"""Out-of-order and late records: what comes after its window was closed goes to a topic ("side output").

Events out of order are not a problem until the watermark has passed the end of their window. After that Spark
drops them, and says so only in a counter. `late_to_topic` sends them to `clicks.late`, from the same query.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter
from shared import Streams, as_json, start

from penstock.spark.streams import late_to_topic

SAMPLE = [
    ("clicks", "ann", f"2024-05-01 {time}:00")
    for time in ["10:01", "10:12", "10:08", "10:31", "10:33", "10:34", "10:03", "10:25", "10:59"]
]


def counted(clicks: DataFrame) -> DataFrame:
    timed = clicks.withWatermark("at", "5 minutes")
    counts = timed.groupBy(F.window("at", "10 minutes")).agg(F.count("*").alias("clicks"))
    start = F.date_format("window.start", "HH:mm").alias("start")
    return counts.select(F.lit("clicks.counted").alias("topic"), start.alias("key"), as_json(start, "clicks"))


def query(streams: Streams, **options: str) -> DataStreamWriter:
    clicks = streams.read("clicks", includeHeaders="true", **options)
    clicks = clicks.withColumn("at", F.col("value").cast("string").cast("timestamp"))
    return late_to_topic(
        counted(clicks),
        clicks,
        closes=F.window("at", "10 minutes").end,
        topic="clicks.late",
        checkpoint=streams.checkpoint,
        options=streams.kafka,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    streams = start(__doc__, SAMPLE, arguments)
    # Two clicks at a time: the watermark moves after each batch, and counts from the next but one.
    streams.run(query(streams, maxOffsetsPerTrigger="2"))


if __name__ == "__main__":
    main()
