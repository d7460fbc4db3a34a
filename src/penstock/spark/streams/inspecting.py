"""The state of a query, looked at from outside while it runs: from any Spark that can read its checkpoint.

What is seen is the state after the last batch that was committed; the query is not stopped, slowed or asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def state(
    spark: SparkSession,
    checkpoint: str,
    *,
    operator: int = 0,
    variable: str | None = None,
    batch: int | None = None,
) -> DataFrame:
    """Keys and values of a stateful operator, a column for each of their fields.

    operator   its number in the query; `stateful_operators` lists them
    variable   which state of a transformWithState: the name that was given to getValueState and the like
    batch      after which batch; the last one that was committed, unless told. Spark keeps 100 of them
    """
    reader = spark.read.format("statestore").option("operatorId", operator)
    if variable is not None:
        reader = reader.option("stateVarName", variable)
    if batch is not None:
        reader = reader.option("batchId", batch)
    found = reader.load(str(checkpoint))
    fields = {field.name: field.dataType.typeName() for field in found.schema}
    return found.select(
        *(
            f"{name}.*" if kind == "struct" else name
            for name, kind in fields.items()
            if name != "partition_id"
        )
    )


def stateful_operators(spark: SparkSession, checkpoint: str) -> DataFrame:
    """The stateful operators of a query: operatorId, operatorName, stateStoreName and more."""
    return spark.read.format("state-metadata").load(str(checkpoint))
