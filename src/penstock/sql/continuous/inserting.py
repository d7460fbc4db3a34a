"""INSERT INTO … VALUES: validates rows (`values`) and writes them at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.sql.catalog.catalog import Relation
from penstock.sql.catalog.declare import check_target
from penstock.sql.catalog.relations import key_text, sink_options, value_column, value_names
from penstock.sql.continuous.preparing import new_session
from penstock.sql.continuous.values import computed
from penstock.sql.errors import Clash, Place, Unknown, did_you_mean
from penstock.sql.language.statements import Column, InsertValues
from penstock.sql.settings import EngineSettings
from penstock.sqltext.identifiers import quoted
from penstock.sqltext.spark_types import from_words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OWN = (Column("__key", "STRING"), Column("__timestamp", "TIMESTAMP"))
"""The pseudo columns of a record that INSERT can set."""


def insert_values(
    spark: SparkSession, statement: InsertValues, target: Relation, settings: EngineSettings, properties: Any
) -> int:
    """Returns the number of rows written."""
    place = Place.of(statement.text, statement.target_span[0])
    if target.topic is None:
        raise Clash(f"`{target.name}` is kept in files, which INSERT does not write", place)
    check_target(target.topic, place)
    if target.made_by is not None and target.kind == "table":
        raise Clash(
            f"`{target.name}` is written by query {target.made_by}. Other writes are not allowed.", place
        )
    columns = _columns(statement, target, place)
    # Wrong types are an error here; in continuous queries they become null.
    session = new_session(
        spark,
        {**properties, "spark.sql.ansi.enabled": "true"},
        1,
        streaming=False,
        any_setting=settings.python_functions,
    )
    rows = computed(session, statement, columns)
    _check_keys(statement, target, columns, rows, place)
    _write(session, target, settings, columns, rows)
    return len(rows)


def _columns(statement: InsertValues, target: Relation, place: Place) -> list[Column]:
    if not statement.columns:
        width = len(statement.rows[0]) if statement.rows else 0
        if width != len(target.columns):
            names = ", ".join(each.name for each in target.columns)
            raise Clash(
                f"`{target.name}` has {len(target.columns)} columns ({names}), and {width} are given", place
            )
        return list(target.columns)
    found: list[Column] = []
    for name, span in zip(statement.columns, statement.column_spans, strict=True):
        column = target.column(name) or next((each for each in _OWN if each.name == name.casefold()), None)
        if column is None:
            near = did_you_mean(name, (each.name for each in (*target.columns, *_OWN)))
            raise Unknown(f"`{target.name}` has no column `{name}`{near}", Place.of(statement.text, span[0]))
        if column in found:
            raise Clash(f"column `{column.name}` is listed twice", Place.of(statement.text, span[0]))
        found.append(column)
    return found


def _check_keys(
    statement: InsertValues, target: Relation, columns: list[Column], rows: list[list[Any]], place: Place
) -> None:
    if target.kind != "table":
        return
    names = [each.name for each in columns]
    for key in target.key_columns:
        if key not in names:
            raise Clash(f"the key of `{target.name}`, `{key}`, is not given", place)
        for row, spans in zip(rows, statement.rows, strict=True):
            if row[names.index(key)] is None:
                where = Place.of(statement.text, spans[names.index(key)][0])
                raise Clash(f"`{key}` is the key of a row of `{target.name}`, and cannot be NULL", where)


def _write(
    session: SparkSession,
    target: Relation,
    settings: EngineSettings,
    columns: list[Column],
    rows: list[list[Any]],
) -> None:
    import pyarrow as pa
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StructField, StructType

    every = [*target.columns, *(each for each in _OWN if each in columns)]
    given = {column.name: [row[at] for row in rows] for at, column in enumerate(columns)}
    fields = StructType([StructField(each.name, from_words(each.type)) for each in every])
    arrays = [
        pa.array(given.get(each.name, [None] * len(rows)), to_arrow_type(each.dataType, timezone="UTC"))
        for each in fields
    ]
    table: Any = pa.table(arrays, names=[each.name for each in every])
    frame = session.createDataFrame(table, schema=fields)
    keys = [each.name for each in target.columns if each.key] or list(target.key_columns)
    if "__key" in given:
        key = F.col("__key")
    elif not keys:
        key = F.lit(None).cast("string")
    elif target.kind == "stream":  # a stream may have records without a key
        empty = F.lit(True)
        for name in keys:
            empty = empty & F.col(quoted(name)).isNull()
        key = F.when(~empty, key_text(keys))
    else:
        key = key_text(keys)
    chosen = [key.alias("key"), value_column(target, value_names(target)).alias("value")]
    options = {**sink_options(target, settings), "delivery": "exactly_once"}
    if "__timestamp" in given:
        chosen.append(F.col("__timestamp").alias("timestamp"))
        options["timestampColumn"] = "timestamp"
    # In one task and one transaction: all rows or none, in their order.
    (frame.select(*chosen).coalesce(1).write.format("penstock").options(**options).mode("append").save())
