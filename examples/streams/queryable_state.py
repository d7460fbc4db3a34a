"""State that can be looked at from outside while the query runs ("interactive queries", "queryable state").

One process counts the visits of each page. Any other that can read the checkpoint looks them up
(--look PAGE), as they were after the last batch; the query is not disturbed and does not even know.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from shared import as_json, connect, options

from penstock.spark.streams import batches_to_topics, state

SAMPLE = [("visits", page, "") for page in ["home", "about", "home", "home"]]


def visits(records: DataFrame) -> DataFrame:
    # A column with a name, not an expression: by that name the state has it.
    pages = records.select(F.col("key").cast("string").alias("page"))
    return pages.groupBy("page").agg(F.count("*").alias("visits"))


def look_up(spark: SparkSession, checkpoint: str, page: str) -> int:
    """How many visits of the page the running query has counted."""
    found = state(spark, checkpoint).where(F.col("page") == page).first()
    return 0 if found is None else int(found["count"])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__)
    parser.add_argument("--look", metavar="PAGE", help="look into the state of the query of --checkpoint")
    parsed = parser.parse_args(arguments)
    streams = connect(parsed, SAMPLE)
    if parsed.look is not None:
        print(look_up(streams.spark, streams.checkpoint, parsed.look))
        return
    rows = visits(streams.read("visits")).select(F.col("page").alias("key"), as_json("visits"))
    write = batches_to_topics({**streams.kafka, "topic": "visits.counted"})
    streams.run(rows.writeStream.outputMode("update").foreachBatch(write))


if __name__ == "__main__":
    main()
