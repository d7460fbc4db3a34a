"""Windows of time: tumbling, hopping and session windows, by the time of the event ("event time").

tumbling   every ten minutes stand alone
hopping    ten minutes, every five: an event is in two of them ("sliding" in some lectures)
session    as long as a visitor goes on: ended by ten minutes without a click

A window's result is written once, when no more of its events are waited for: when an event has come that is
five minutes later than its end (the watermark).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from shared import as_json, fields, start

SAMPLE = [
    ("clicks", None, {"who": who, "at": f"2024-05-01T{time}Z"})
    for who, time in [
        ("ann", "10:01:00"), ("bob", "10:02:00"), ("ann", "10:12:00"), ("ann", "10:08:00"),
        ("ann", "10:40:00"), ("cas", "12:00:00"),
    ]
]  # fmt: skip


def counts(clicks: DataFrame, window: Column, topic: str) -> DataFrame:
    found = clicks.groupBy(window.alias("window"), "who").agg(F.count("*").alias("clicks"))
    value = as_json("who", F.col("window.start").alias("start"), F.col("window.end").alias("end"), "clicks")
    return found.select(F.lit(topic).alias("topic"), F.col("who").alias("key"), value)


def all_windows(clicks: DataFrame) -> DataFrame:
    timed = clicks.withWatermark("at", "5 minutes")
    tumbling = counts(timed, F.window("at", "10 minutes"), "clicks.tumbling")
    hopping = counts(timed, F.window("at", "10 minutes", "5 minutes"), "clicks.hopping")
    session = counts(timed, F.session_window("at", "10 minutes"), "clicks.session")
    return tumbling.union(hopping).union(session)


def main(arguments: Sequence[str] | None = None) -> None:
    streams = start(__doc__, SAMPLE, arguments)
    streams.write(all_windows(fields(streams.read("clicks"), "who STRING, at TIMESTAMP")))


if __name__ == "__main__":
    main()
