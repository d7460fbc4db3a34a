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

# The delay is read as text, so that one that is no number can be told from one that is missing.
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
    """Why a record is no flight; null when it is one."""
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
def records() -> DataFrame:
    """Every record of the topic, parsed, with the reason why it is no flight."""
    flight = F.from_json(
        F.col("value").cast("string"), FLIGHT, {"columnNameOfCorruptRecord": "broken", "mode": "PERMISSIVE"}
    )
    return (
        spark.readStream.format("penstock").options(**topic("flights")).load()
        .withColumn("f", flight)
        .withColumn("reason", reason())
    )  # fmt: skip


@dp.temporary_view
def weather() -> DataFrame:
    """The compacted topic as a table: read anew for each batch, the last record of a key holds."""
    observations = spark.read.format("penstock").options(**topic("weather")).load()
    newest = observations.groupBy("key").agg(F.max_by("value", "offset").alias("value"))
    return newest.select(F.from_json(F.col("value").cast("string"), OBSERVATION).alias("w")).select("w.*")


@dp.temporary_view
def departures() -> DataFrame:
    """The flights, each with the weather of its airport in the hour in which it left or should have."""
    flights = (
        spark.readStream.table("records")
        .where("reason IS NULL")
        .select(
            "f.id", "f.flight", "f.origin", "f.dest", "f.scheduled", "f.cancelled",
            F.coalesce("f.departed", "f.scheduled").alias("at"),
            F.col("f.delay_minutes").cast("int").alias("delay_minutes"),
        )
        .withWatermark("at", LATENESS)
    )  # fmt: skip
    observed = spark.read.table("weather").withColumnRenamed("origin", "airport")
    return flights.join(
        F.broadcast(observed),
        (F.col("origin") == F.col("airport")) & (F.date_trunc("hour", "at") == F.col("hour")),
        "left",
    ).drop("airport")


dp.create_sink(
    "dead",
    "penstock",
    {"kafka.bootstrap.servers": BOOTSTRAP, "topic": "flights.dead", "includeHeaders": "true"},
)


@dp.append_flow(target="dead", name="dead_letters")
def dead_letters() -> DataFrame:
    """What is no flight, byte for byte, with the reason and where it came from as headers."""
    return (
        spark.readStream.table("records")
        .where("reason IS NOT NULL")
        .select(
            "key",
            "value",
            F.array(
                header("reason", F.col("reason")),
                header("source", F.concat_ws("-", "topic", "partition", "offset")),
            ).alias("headers"),
        )
    )


def header(key: str, value: Column) -> Column:
    return F.struct(F.lit(key).alias("key"), value.cast("binary").alias("value"))


dp.create_sink("table", "penstock_delta", {"path": TABLE})


@dp.append_flow(target="table", name="departures_table")
def departures_table() -> DataFrame:
    return spark.readStream.table("departures")


dp.create_sink("delays", "penstock", {"kafka.bootstrap.servers": BOOTSTRAP, "topic": "delays"})


@dp.append_flow(target="delays", name="delays_by_airport")
def delays_by_airport() -> DataFrame:
    """One record for each airport and hour, when no more flights of that hour are waited for."""
    windows = (
        spark.readStream.table("departures")
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
    return windows.select(
        F.col("origin").cast("binary").alias("key"),
        F.to_json(
            F.struct("origin", F.col("window.start").alias("hour"), *windows.columns[2:])
        ).cast("binary").alias("value"),
    )  # fmt: skip


dp.create_sink("alerts", "penstock", {"kafka.bootstrap.servers": BOOTSTRAP, "topic": "alerts"})


@dp.append_flow(target="alerts", name="alerts")
def alerts() -> DataFrame:
    """Flights that left hours late, or not at all."""
    return (
        spark.readStream.table("departures")
        .where((F.col("delay_minutes") >= ALERT_MINUTES) | F.col("cancelled"))
        .select(
            F.col("flight").cast("binary").alias("key"),
            F.to_json(
                F.struct(
                    "id", "flight", "origin", "dest", "scheduled", "delay_minutes", "cancelled",
                    "wind_mph", "visibility_miles", "rain_inches",
                )
            ).cast("binary").alias("value"),
        )
    )  # fmt: skip
