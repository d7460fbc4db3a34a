"""INSERT INTO … VALUES: the rows are checked, value by value where one is wrong, and written at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.sql.catalog import Relation
from penstock.sql.creating import check_target
from penstock.sql.errors import Clash, Place, SqlError, Unknown, did_you_mean
from penstock.sql.preparing import new_session, spark_errors
from penstock.sql.relations import key_text, sink_options, value_column, value_names
from penstock.sql.settings import EngineSettings
from penstock.sql.spark_types import fits, from_words, quoted, words
from penstock.sql.statements import Column, InsertValues, Span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

_OWN = (Column("__key", "STRING"), Column("__timestamp", "TIMESTAMP"))
"""What can be said of a record besides its columns."""
_AT_ONCE = 500
"""Values that one query of Spark computes; more take long to plan."""


def insert_values(
    spark: SparkSession, statement: InsertValues, target: Relation, settings: EngineSettings, properties: Any
) -> int:
    """How many rows were written."""
    place = Place.of(statement.text, statement.target_span[0])
    if target.topic is None:
        raise Clash(f"`{target.name}` is kept in files, which INSERT does not write", place)
    check_target(target.topic, place)
    if target.made_by is not None and target.kind == "table":
        raise Clash(
            f"`{target.name}` is what the query {target.made_by} makes: nothing else may write to it", place
        )
    columns = _columns(statement, target, place)
    # Whoever writes a value wants to know that it is none of its type; queries that run for ever give null.
    session = new_session(spark, {**properties, "spark.sql.ansi.enabled": "true"}, 1, streaming=False)
    rows = _values(session, statement, columns)
    if rows is None:
        rows = [
            [_value(session, statement, span, column) for span, column in zip(row, columns, strict=True)]
            for row in statement.rows
        ]
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
    found = []
    for name in statement.columns:
        column = target.column(name) or next((each for each in _OWN if each.name == name.casefold()), None)
        if column is None:
            near = did_you_mean(name, (each.name for each in target.columns))
            raise Unknown(f"`{target.name}` has no column `{name}`{near}", place)
        found.append(column)
    return found


def _values(session: SparkSession, statement: InsertValues, columns: list[Column]) -> list[list[Any]] | None:
    """All values, many in a query; None if one is wrong, which `_value` then says with its place."""
    from pyspark.errors import PySparkException

    wanted = [column for _ in statement.rows for column in columns]
    texts = [statement.text[span[0] : span[1]] for row in statement.rows for span in row]
    found: list[Any] = []
    for first in range(0, len(texts), _AT_ONCE):
        some = list(zip(texts[first : first + _AT_ONCE], wanted[first : first + _AT_ONCE]))
        plain = ", ".join(f"{text}\n AS c{at}" for at, (text, _) in enumerate(some))
        cast = ", ".join(f"CAST({text}\n AS {each.type}) AS c{at}" for at, (text, each) in enumerate(some))
        try:
            types = session.sql(f"SELECT {plain}").schema
            if len(types) != len(some) or not all(
                _may_become(field.dataType, from_words(each.type)) for field, (_, each) in zip(types, some)
            ):
                return None
            (row,) = session.sql(f"SELECT {cast}").toArrow().to_pylist()
        except PySparkException:
            return None
        found += [row[f"c{at}"] for at in range(len(some))]
    width = len(columns)
    return [found[at : at + width] for at in range(0, len(found), width)]


def _value(session: SparkSession, statement: InsertValues, span: Span, column: Column) -> Any:
    """One value in the column's type, as Arrow has it."""
    text = statement.text[span[0] : span[1]]
    place = Place.of(statement.text, span[0])

    def place_at(offset: int) -> Place:
        return Place.of(statement.text, span[0] + max(0, offset - len("SELECT ")))

    wanted = from_words(column.type)
    with spark_errors(f"SELECT {text}", place_at, {}, session):
        given = session.sql(f"SELECT {text} AS c").schema[0].dataType
    if not _may_become(given, wanted):
        raise Clash(f"`{column.name}` is {column.type}, and {text.strip()} is {words(given)}", place)
    try:
        with spark_errors(f"SELECT {text}", lambda offset: place, {}, session):
            found = session.sql(f"SELECT CAST({text} AS {column.type}) AS c").toArrow()
    except SqlError as error:
        said = error.message.partition(". Use `")[0]
        raise Clash(
            f"`{column.name}` is {column.type}, and {text.strip()} cannot be one: {said}", place
        ) from error
    return found["c"][0].as_py()


def _may_become(given: DataType, wanted: DataType) -> bool:
    """Whether a written value is meant to be of a type: 1 is a double, and '2025-01-01' a date."""
    from pyspark.sql import types as T

    if fits(given, wanted):
        return True
    if isinstance(given, T.StringType):
        return isinstance(wanted, T.DateType | T.TimestampType | T.TimestampNTZType | T.BinaryType)
    if isinstance(given, T.IntegralType):
        return isinstance(wanted, T.NumericType)
    if isinstance(given, T.DecimalType | T.DoubleType | T.FloatType):
        return isinstance(wanted, T.DecimalType | T.DoubleType | T.FloatType)
    if isinstance(given, T.ArrayType) and isinstance(wanted, T.ArrayType):
        return _may_become(given.elementType, wanted.elementType)
    if isinstance(given, T.MapType) and isinstance(wanted, T.MapType):
        return _may_become(given.keyType, wanted.keyType) and _may_become(given.valueType, wanted.valueType)
    if isinstance(given, T.StructType) and isinstance(wanted, T.StructType) and len(given) == len(wanted):
        return all(
            _may_become(one.dataType, other.dataType) for one, other in zip(given, wanted, strict=True)
        )
    return isinstance(given, T.TimestampType) and isinstance(wanted, T.TimestampNTZType)


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
