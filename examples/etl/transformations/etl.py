"""Orders of one database joined with the customers of another, as a Delta table and as sums of each hour."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
BOOTSTRAP = os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")
TABLE = os.environ.get("ETL_TABLE", "tables/orders")

WINDOW = "1 hour"
# Orders may be this much out of order; what is later than that finds its window closed.
LATENESS = "2 hours"

CUSTOMER = "id BIGINT, name STRING, city STRING"
ORDER = """
    id BIGINT, customer BIGINT, amount DECIMAL(10, 2), status STRING, ordered_at TIMESTAMP, __op STRING
"""


def topic(name: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": BOOTSTRAP,
        "kafka.isolation.level": "read_committed",
        "subscribe": name,
        "startingOffsets": "earliest",
    }


@dp.temporary_view
def customers() -> DataFrame:
    """Each batch sees the customers as they are then: the last record of a key holds."""
    records = spark.read.format("penstock").options(**topic("customers")).load()
    newest = records.groupBy("key").agg(F.max_by("value", "offset").alias("value"))
    return newest.select(F.from_json(F.col("value").cast("string"), CUSTOMER).alias("c")).select("c.*")


@dp.temporary_view
def orders() -> DataFrame:
    """Every change of an order, with its customer. An order without one is kept."""
    records = spark.readStream.format("penstock").options(**topic("orders")).load()
    order = F.from_json(F.col("value").cast("string"), ORDER)
    parsed = records.select(order.alias("o"), F.col("offset").alias("change")).select("o.*", "change")
    known = spark.read.table("customers").withColumnRenamed("id", "customer")
    return parsed.join(F.broadcast(known), "customer", "left")


# A changed order replaces its row.
dp.create_sink("table", "delta", {"path": TABLE, "mode": "upsert", "key": "id", "orderBy": "change"})


@dp.append_flow(target="table", name="orders_with_customers")
def orders_with_customers() -> DataFrame:
    rows = spark.readStream.table("orders")
    return rows.select("id", "customer", "name", "city", "amount", "status", "ordered_at", "change")


dp.create_sink("revenue", "penstock", {"kafka.bootstrap.servers": BOOTSTRAP, "topic": "revenue"})


@dp.append_flow(target="revenue", name="revenue_by_city")
def revenue_by_city() -> DataFrame:
    """One record for each city and hour, when no more orders of that hour are waited for."""
    windows = (
        spark.readStream.table("orders")
        .where(F.col("__op").isin("r", "c"))  # orders as they came; later changes are no new revenue
        .withWatermark("ordered_at", LATENESS)
        .groupBy(F.window("ordered_at", WINDOW), F.coalesce("city", F.lit("unknown")).alias("city"))
        .agg(F.count("*").alias("orders"), F.sum("amount").alias("revenue"))
    )
    hour = F.date_format("window.start", "yyyy-MM-dd HH:mm").alias("hour")
    key = F.concat_ws(" ", "city", hour)
    # As text: a number of JSON would be a double.
    value = F.to_json(F.struct("city", hour, "orders", F.col("revenue").cast("string").alias("revenue")))
    return windows.select(key.cast("binary").alias("key"), value.cast("binary").alias("value"))
