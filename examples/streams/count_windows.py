"""Windows of N records: every three readings of a sensor, however long they take ("count-based windows").

`penstock.spark.streams.count_windows` keeps the readings of a window that is not full yet in Spark's state.
What comes out is an array of three readings, and Spark's words for arrays say what is wanted of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from shared import as_json, fields, start

from penstock.spark.streams import count_windows

SAMPLE = [
    ("readings", None, {"sensor": sensor, "degrees": degrees})
    for sensor, degrees in [
        ("a", 1),
        ("b", 50),
        ("a", 2),
        ("a", 6),
        ("b", 52),
        ("a", 10),
        ("a", 11),
        ("a", 12),
    ]
]


def means(readings: DataFrame) -> DataFrame:
    windows = count_windows(readings.select("sensor", "degrees", "offset"), "sensor", 3)
    mean = F.expr("aggregate(records.degrees, 0D, (sum, one) -> sum + one) / size(records)")
    return windows.select(F.col("sensor").alias("key"), as_json("sensor", "window", mean.alias("mean")))


def main(arguments: Sequence[str] | None = None) -> None:
    streams = start(__doc__, SAMPLE, arguments)
    streams.write(means(fields(streams.read("readings"), "sensor STRING, degrees DOUBLE")), "means")


if __name__ == "__main__":
    main()
