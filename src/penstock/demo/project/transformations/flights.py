"""Departures of New York's airports, from topic to topics and a table.

What does not parse is set apart with its reason; the rest is joined with the weather of its hour, kept in a
table, counted in windows, and watched for what someone should hear about.
"""

from pyspark import pipelines as dp
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
BOOTSTRAP = str(spark.conf.get("penstock.demo.bootstrap"))
TABLE = str(spark.conf.get("penstock.demo.table"))

AIRPORTS = ("EWR", "JFK", "LGA")
WINDOW = "1 hour"
# Flights may be this much out of order; what is later than that finds its window closed.
LATENESS = "2 hours"
ALERT_MINUTES = 120

# The delay is read as text, so that one that is not a number can be distinguished from one that is missing.
FLIGHT = """
    id BIGINT, flight STRING, tail STRING, origin STRING, dest STRING, scheduled TIMESTAMP,
    departed TIMESTAMP, delay_minutes STRING, cancelled BOOLEAN, broken STRING
"""
OBSERVATION = """
    origin STRING, hour TIMESTAMP, temperature_f DOUBLE, wind_mph DOUBLE, gust_mph DOUBLE,
    rain_inches DOUBLE, visibility_miles DOUBLE
"""


def topic(name: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": BOOTSTRAP, "subscribe": name, "startingOffsets": "earliest"}


def reason() -> Column:
    """Why a record is not a flight; null when it is one."""
    return (
        F.when(~F.is_valid_utf8(F.col("value").cast("string")), "not UTF-8")
        .when(F.col("f.broken").isNotNull(), "not JSON")
        .when(F.col("f.id").isNull() | F.col("f.scheduled").isNull(), "no id or time")
        .when(F.col("f.origin").isNull(), "no origin")
        .when(~F.col("f.origin").isin(*AIRPORTS), F.concat(F.lit("unknown airport "), "f.origin"))
        .when(
            F.col("f.delay_minutes").isNotNull() & F.col("f.delay_minutes").try_cast("int").isNull(),
            F.concat(F.lit("delay_minutes is not a number: "), "f.delay_minutes"),
        )
    )


@dp.temporary_view
def weather() -> DataFrame:
    """The compacted topic as a table: each batch sees it as it is then; the last record of a key holds."""
    observations = spark.read.format("penstock").options(**topic("weather")).load()
    newest = observations.groupBy("key").agg(F.max_by("value", "offset").alias("value"))
    return newest.select(F.from_json(F.col("value").cast("string"), OBSERVATION).alias("w")).select("w.*")


@dp.temporary_view
def records() -> DataFrame:
    """Every record of the topic: why it is not a flight, or the flight with the weather of its hour."""
    flight = F.from_json(
        F.col("value").cast("string"), FLIGHT, {"columnNameOfCorruptRecord": "broken", "mode": "PERMISSIVE"}
    )
    parsed = (
        spark.readStream.format("penstock").options(**topic("flights")).load()
        .withColumn("f", flight)
        .select(
            "key", "value", F.concat_ws("-", "topic", "partition", "offset").alias("source"),
            reason().alias("reason"),
            "f.id", "f.flight", "f.origin", "f.dest", "f.scheduled", "f.cancelled",
            F.coalesce("f.departed", "f.scheduled").alias("at"),
            F.col("f.delay_minutes").try_cast("int").alias("delay_minutes"),
        )
    )  # fmt: skip
    observed = spark.read.table("weather").withColumnRenamed("origin", "airport")
    same_hour = (F.col("origin") == F.col("airport")) & (F.date_trunc("hour", "at") == F.col("hour"))
    return parsed.join(F.broadcast(observed), same_hour, "left").drop("airport")


# Its rows say which topic they are for: one query is cheaper than two.
dp.create_sink("notices", "penstock", {"kafka.bootstrap.servers": BOOTSTRAP, "includeHeaders": "true"})


@dp.append_flow(target="notices", name="dead_letters_and_alerts")
def dead_letters_and_alerts() -> DataFrame:
    """What someone should look at: records that are not flights, byte for byte with the reason as a header,
    and flights that left hours late or not at all.
    """
    dead = F.col("reason").isNotNull()
    alert = F.to_json(
        F.struct(
            "id", "flight", "origin", "dest", "scheduled", "delay_minutes", "cancelled",
            "wind_mph", "visibility_miles", "rain_inches",
        )
    )  # fmt: skip
    return (
        spark.readStream.table("records")
        .where(dead | (F.col("delay_minutes") >= ALERT_MINUTES) | F.col("cancelled"))
        .select(
            F.when(dead, "flights.dead").otherwise("alerts").alias("topic"),
            "key",
            F.when(dead, F.col("value")).otherwise(alert.cast("binary")).alias("value"),
            F.when(dead, F.array(header("reason"), header("source"))).otherwise(F.array()).alias("headers"),
        )
    )


def header(name: str) -> Column:
    """The column of that name as a record's header."""
    return F.struct(F.lit(name).alias("key"), F.col(name).cast("binary").alias("value"))


dp.create_sink("table", "delta", {"path": TABLE})


@dp.append_flow(target="table", name="departures")
def departures() -> DataFrame:
    """Every flight, in a table."""
    flights = spark.readStream.table("records").where("reason IS NULL")
    return flights.drop("key", "value", "source", "reason")


dp.create_sink("delays", "penstock", {"kafka.bootstrap.servers": BOOTSTRAP, "topic": "delays"})


@dp.append_flow(target="delays", name="delays_by_airport")
def delays_by_airport() -> DataFrame:
    """One record for each airport and hour, when no more flights of that hour are waited for."""
    windows = (
        spark.readStream.table("records")
        .where("reason IS NULL")
        .withWatermark("at", LATENESS)
        .groupBy(F.window("at", WINDOW), "origin")
        .agg(
            F.count("*").alias("flights"),
            F.count_if("cancelled").alias("cancelled"),
            F.round(F.avg("delay_minutes"), 1).alias("mean_delay"),
            F.max("delay_minutes").alias("worst_delay"),
            F.max("wind_mph").alias("wind_mph"),
            F.min("visibility_miles").alias("visibility_miles"),
        )
    )
    value = F.to_json(F.struct("origin", F.col("window.start").alias("hour"), *windows.columns[2:]))
    return windows.select(F.col("origin").cast("binary").alias("key"), value.cast("binary").alias("value"))
