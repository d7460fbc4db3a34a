"""The project of `penstock pipeline init`: a topic of orders, tables of them, and alerts to a topic.

It is a plain Spark project; only the format "penstock" of its source and sink is Penstock's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from penstock.pipelines.errors import BadProject
from penstock.pipelines.project.project import SPEC_NAMES

SPEC = """\
name: {name}
# Checkpoints, tables and the catalog: next to this file, or any place that Spark can write to: hdfs:, s3a: …
# `penstock pipeline` takes a relative one. For Spark's own spark-pipelines write file:///… in full.
storage: storage
libraries:
  - glob:
      include: transformations/**
"""

_PYTHON = '''\
"""Orders come from the topic `{source}` as JSON; large ones go to the topic `{sink}`."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark: SparkSession

# Where the brokers are differs between machines: set PENSTOCK_BOOTSTRAP=HOST:PORT.
BOOTSTRAP = os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")


@dp.table(comment="Every order as it came, with its place in the topic.")
def orders() -> DataFrame:
    records = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("subscribe", "{source}")
        .option("startingOffsets", "earliest")
        .load()
    )
    order = F.from_json(F.col("value").cast("string"), "id STRING, customer STRING, amount DOUBLE")
    return records.select(order.alias("order"), "timestamp", "partition", "offset").select(
        "order.*", "timestamp", "partition", "offset"
    )


dp.create_sink(
    "{sink}",
    format="penstock",
    options={{"kafka.bootstrap.servers": BOOTSTRAP, "topic": "{sink}"}},
)


@dp.append_flow(target="{sink}")
def alert_on_large_orders() -> DataFrame:
    return (
        spark.readStream.table("valid_orders")
        .where("amount >= 1000")
        .select(F.col("id").alias("key"), F.to_json(F.struct("id", "customer", "amount")).alias("value"))
    )
'''

_SQL = """\
-- Orders that can be counted: an id, and an amount above zero.
CREATE STREAMING TABLE valid_orders
COMMENT 'Orders with an id and an amount.'
AS SELECT id, customer, amount, timestamp
FROM STREAM(orders)
WHERE id IS NOT NULL AND amount > 0;

-- Computed again whenever valid_orders has grown.
CREATE MATERIALIZED VIEW customers
AS SELECT customer, count(*) AS orders, sum(amount) AS amount
FROM valid_orders
GROUP BY customer;
"""


def make_project(directory: Path, name: str, source: str, sink: str) -> list[Path]:
    """Writes a project to a new directory. Returns its files."""
    for topic in (source, sink):
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic):
            raise BadProject(f"'{topic}' cannot be a topic's name")
    files = {
        SPEC_NAMES[0]: SPEC.format(name=name),
        "transformations/orders.py": _PYTHON.format(source=source, sink=sink),
        "transformations/customers.sql": _SQL,
        ".gitignore": "storage/\n",
    }
    return write_project(directory, name, files)


def write_project(directory: Path, name: str, files: Mapping[str, str]) -> list[Path]:
    """The files of a new project, by their paths in it."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,99}", name):
        raise BadProject(f"'{name}' cannot be a pipeline's name: letters, digits, - and _, a letter first")
    target = directory / name
    if target.exists():
        raise BadProject(f"{target} exists already: choose another name, or remove it")
    for path, text in files.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_text(text, encoding="utf-8")
    return [target / path for path in files]
