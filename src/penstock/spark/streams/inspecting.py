"""Reads the state of a query while it runs, from any Spark that can read its checkpoint.

It shows the state after the last committed batch; the query is not involved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def state(
    spark: SparkSession,
    checkpoint: str,
    *,
    operator: int = 0,
    variable: str | None = None,
    batch: int | None = None,
) -> DataFrame:
    """Keys and values of a stateful operator, a column for each of their fields.

    A field of the value that is called as one of the key has the name of what it is in before it, such as
    value_name or list_element_name.

    operator   its number in the query; `stateful_operators` lists them
    variable   which state of a transformWithState: the name that was given to getValueState and the like
    batch      after which batch; the last one that was committed, by default. Spark keeps 100 of them
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    reader = spark.read.format("statestore").option("operatorId", operator)
    if variable is not None:
        reader = reader.option("stateVarName", variable)
    if batch is not None:
        reader = reader.option("batchId", batch)
    found = reader.load(str(checkpoint))
    columns: dict[str, Column] = {}
    for outer in found.schema:
        if isinstance(outer.dataType, StructType):
            for name in outer.dataType.fieldNames():
                taken = name in columns
                columns[f"{outer.name}_{name}" if taken else name] = F.col(outer.name)[name]
        elif outer.name != "partition_id":
            columns[outer.name] = F.col(outer.name)
    return found.select(*(column.alias(name) for name, column in columns.items()))


def stateful_operators(spark: SparkSession, checkpoint: str) -> DataFrame:
    """The stateful operators of a query: operatorId, operatorName, stateStoreName and more."""
    return spark.read.format("state-metadata").load(str(checkpoint))
