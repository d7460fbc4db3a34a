"""Filter, map, flatMap: each record by itself, without memory ("stateless operations").

Lines of text become words: lines without text are left out (filter), the rest is put in lower case (map),
and each line becomes as many records as it has words (flatMap).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from shared import start

SAMPLE = [
    ("lines", None, "The Log is the truth"),
    ("lines", None, "  "),
    ("lines", None, "and a Table is a view of it"),
]


def words(lines: DataFrame) -> DataFrame:
    line = lines.select(F.trim(F.col("value").cast("string")).alias("line"))
    return (
        line.where("line != ''")
        .select(F.lower("line").alias("line"))
        .select(F.explode(F.split("line", r"\s+")).alias("value"))
    )


def main(arguments: Sequence[str] | None = None) -> None:
    streams = start(__doc__, SAMPLE, arguments)
    streams.write(words(streams.read("lines")), "words")


if __name__ == "__main__":
    main()
