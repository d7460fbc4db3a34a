"""The project of `penstock pipeline init --from DATABASE`: tables of a table's changes.

The connector is declared in `connectors/`. The rest is a plain Spark project.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from penstock.pipelines.project.project import SPEC_NAMES
from penstock.pipelines.project.template import SPEC, write_project

_PYTHON = '''\
"""Changes of the table `orders`, which the connector in `connectors/` writes to the topic `{topic}`."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark: SparkSession

# Where the brokers are differs between machines: set PENSTOCK_BOOTSTRAP=HOST:PORT.
BOOTSTRAP = os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")

# The columns of the table that are used here. `op` is c(reate), u(pdate), d(elete) or r(ead by the snapshot).
ROW = "STRUCT<id: BIGINT, customer: STRING, amount: DOUBLE>"


@dp.table(comment="Every change of a row, with its place in the topic.")
def order_changes() -> DataFrame:
    records = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("subscribe", "{topic}")
        .option("startingOffsets", "earliest")
        .load()
        .where("value IS NOT NULL")
    )
    envelope = f"op STRING, ts_ms BIGINT, before {{ROW}}, after {{ROW}}"
    change = F.from_json(F.col("value").cast("string"), envelope)
    return records.select(change.alias("change"), "partition", "offset").select(
        "change.op",
        F.timestamp_millis("change.ts_ms").alias("captured"),
        F.coalesce("change.after.id", "change.before.id").alias("id"),
        "change.after.customer",
        "change.after.amount",
        "partition",
        "offset",
    )
'''

_SQL = """\
-- The rows as they are in the database now: the last change of each, without deleted ones.
CREATE MATERIALIZED VIEW orders
AS SELECT id, last.customer, last.amount
FROM (SELECT id, max_by(struct(op, customer, amount), offset) AS last FROM order_changes GROUP BY id)
WHERE last.op <> 'd';

CREATE MATERIALIZED VIEW customers
AS SELECT customer, count(*) AS orders, sum(amount) AS amount
FROM orders
GROUP BY customer;
"""

_JSON_ROWS = {
    "key.converter": "json",
    "key.converter.schemas.enable": "false",
    "value.converter": "json",
    "value.converter.schemas.enable": "false",
    "decimal.handling.mode": "double",
}


def make_database_project(directory: Path, name: str, database: str) -> list[Path]:
    """Writes a project with a connector into a new directory; gives its files."""
    if database == "postgres":
        config, topic = _postgres(name)
    else:
        config, topic = _mysql(name)
    files = {
        SPEC_NAMES[0]: SPEC.format(name=name),
        f"connectors/{name}.json": json.dumps(config | _JSON_ROWS, indent=2) + "\n",
        "transformations/order_changes.py": _PYTHON.format(topic=topic),
        "transformations/orders.sql": _SQL,
        ".gitignore": "storage/\n",
    }
    return write_project(directory, name, files)


def _password(name: str) -> str:
    """An environment variable of the worker, because passwords do not belong into a repository."""
    return f"${{env:{re.sub('[^A-Z0-9]', '_', name.upper())}_PASSWORD}}"


def _postgres(name: str) -> tuple[dict[str, str], str]:
    config = {
        "name": name,
        "connector.class": "PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": "5432",
        "database.user": "postgres",
        "database.password": _password(name),
        "database.dbname": name,
        "topic.prefix": name,
        "slot.name": re.sub("[^a-z0-9_]", "_", name.lower()),
        "table.include.list": "public.orders",
        "publication.autocreate.mode": "filtered",
    }
    return config, f"{name}.public.orders"


def _mysql(name: str) -> tuple[dict[str, str], str]:
    config = {
        "name": name,
        "connector.class": "MySqlConnector",
        "database.hostname": "127.0.0.1",
        "database.port": "3306",
        "database.user": "penstock",
        "database.password": _password(name),
        "topic.prefix": name,
        "table.include.list": f"{name}.orders",
    }
    return config, f"{name}.{name}.orders"
