"""Calls a function that may fail on a record, and sends the records on which it failed to a topic.

    tried = attempt(records, parse, "sku string, amount int")
    rows = divert(tried, topic="orders", value=F.to_json("result"), dead="orders.dead")
    rows.writeStream.format("penstock").options(**kafka)...

Both kinds of rows are written by one query, in the same transactions: no record is in neither topic, or in
both. A dead letter has the record's key, value and headers (with `includeHeaders`) as they were, and the
headers penstock.dead.reason, .topic, .partition, .offset and .timestamp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.spark.dead_letters import MOST_OF_A_REASON, PREFIX
from penstock.spark.errors import BadOption
from penstock.spark.streams.headers import with_origin

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame


def attempt(
    records: DataFrame, function: Callable[[dict[str, Any]], Mapping[str, Any] | None], schema: str
) -> DataFrame:
    """The records with two more columns: `result`, what the function gave for each, and `error`.

    The function gets a record as a dict of its columns, and gives one of the fields of `schema`. `error` is
    null, or says what it raised or why what it gave does not fit `schema`; `result` is null then.
    """
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StringType, StructType

    if taken := {"result", "error"} & set(records.columns):
        raise BadOption(f"attempt adds the columns result and error; rename {', '.join(sorted(taken))} first")
    wanted = StructType.fromDDL(schema)
    kind = to_arrow_type(wanted, timezone="UTC")
    extended = StructType([*records.schema.fields]).add("result", wanted).add("error", StringType())
    return records.mapInArrow(_attempts(function, kind), extended)


def divert(
    attempted: DataFrame,
    *,
    topic: str | Column,
    value: Column,
    dead: str,
    key: Column | None = None,
    error: str = "error",
) -> DataFrame:
    """Rows for the sink: `value` to `topic`, and where the column `error` is not null, a letter to `dead`.

    `error` may be any column, such as one that shows what from_json could not read.
    """
    from pyspark.sql import functions as F

    good = F.col(error).isNull()
    none = F.array().cast("array<struct<key: string, value: binary>>")
    headers = with_origin(attempted, PREFIX, reason=F.col(error))
    return attempted.select(
        F.when(good, topic if not isinstance(topic, str) else F.lit(topic))
        .otherwise(F.lit(dead))
        .alias("topic"),
        (F.col("key") if key is None else F.when(good, key.cast("binary")).otherwise(F.col("key"))).alias(
            "key"
        ),
        F.when(good, value.cast("binary")).otherwise(F.col("value")).alias("value"),
        F.when(good, none).otherwise(headers).alias("headers"),
    )


def _attempts(
    function: Callable[[dict[str, Any]], Mapping[str, Any] | None], kind: pa.DataType
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            results: list[Any] = []
            errors: list[str | None] = []
            for record in batch.to_pylist():
                try:
                    results.append(function(record))
                    errors.append(None)
                except Exception as error:  # noqa: BLE001  whatever a user's function raises
                    results.append(None)
                    errors.append(_reason(error))
            column = _convert(results, errors, kind)
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, column, pa.array(errors, pa.string())],
                names=[*batch.schema.names, "result", "error"],
            )

    return run


def _convert(results: list[Any], errors: list[str | None], kind: pa.DataType) -> pa.Array:
    """The results as a column; if that fails, one by one, so that only those that do not fit become
    errors.
    """
    import pyarrow as pa

    wrong = (pa.ArrowException, TypeError, ValueError, OverflowError)
    try:
        return pa.array(results, kind)
    except wrong:
        for index, result in enumerate(results):
            try:
                pa.array([result], kind)
            except wrong as error:
                results[index], errors[index] = None, f"the result does not fit: {_reason(error)}"
        return pa.array(results, kind)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:MOST_OF_A_REASON]
