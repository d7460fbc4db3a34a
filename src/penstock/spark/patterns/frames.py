"""A pattern over a DataFrame: Spark computes the inputs of each row, and the measures of each match.

Values are passed in types that are the same in Arrow and Python: times as microseconds, dates as days,
numbers in their widest types. Results get the types of Spark SQL.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.spark.patterns.clauses import Clauses, Draft
from penstock.spark.patterns.errors import BadPattern, Fragment
from penstock.spark.patterns.operator import BUCKETS, Packing, Patterns, Whole
from penstock.spark.patterns.registers import Register
from penstock.spark.patterns.rows import BUCKET, HOLDS, PACKED, TIME
from penstock.spark.patterns.values import Kind
from penstock.sqltext.identifiers import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


@dataclass(frozen=True)
class Transport:
    """How values of a type are passed to the matcher."""

    kind: Kind
    type: DataType
    there: Callable[[Column], Column]
    back: Callable[[Column], Column]


def find_matches(
    records: DataFrame, clauses: Clauses, partition_by: Sequence[str], order_by: Sequence[str]
) -> DataFrame:
    """Returns the matches in the records of each partition. The first column of `order_by` is the event time:
    a TIMESTAMP, on a stream with a watermark. BadPattern has the position of an invalid clause.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructField, StructType

    columns = records.columns
    draft = Draft(clauses, columns)
    for number, text in draft.bits.items():
        if _type_of(records, text, draft.places[text]).typeName() != "boolean":
            name = draft.automaton.variables[number]
            raise BadPattern(f"the condition of {name} must be true or false", draft.places[text])
    places = [draft.places.get(text, clauses.pattern) for text in draft.texts]
    types = [_type_of(records, text, place) for text, place in zip(draft.texts, places, strict=True)]
    ways = [_transport(kind, place) for kind, place in zip(types, places, strict=True)]
    plan = draft.plan([way.kind for way in ways], columns)
    key_types = [records.schema[each].dataType for each in partition_by]
    key_ways = [
        _key_transport(kind, each, clauses) for kind, each in zip(key_types, partition_by, strict=True)
    ]
    orders = [_order(records, each, clauses) for each in order_by[1:]]

    time = F.col(quoted(order_by[0]))
    bucket = F.lit(0)
    if partition_by:
        hashed = F.xxhash64(*(F.col(quoted(each)) for each in partition_by))
        bucket = F.pmod(hashed, F.lit(BUCKETS)).cast("int")
    rows = records.where(time.isNotNull()).select(
        bucket.alias(BUCKET),
        F.unix_micros(time).alias(TIME),
        _bits(draft).alias(HOLDS),
        *(
            way.there(F.col(quoted(each))).alias(f"k{at}")
            for at, (way, each) in enumerate(zip(key_ways, partition_by, strict=True))
        ),
        *(
            way.there(F.expr(text)).alias(f"c{at}")
            for at, (way, text) in enumerate(zip(ways, draft.texts, strict=True))
        ),
        *(each.alias(f"o{at}") for at, each in enumerate(orders)),
    )
    inside = StructType([StructField(each.name, each.dataType) for each in rows.schema.fields[1:]])
    out_types = [_output_type(register, types, plan.before) for register in plan.output_registers()]
    out_ways = [_transport(kind, clauses.pattern) for kind in out_types]
    shown = [records.schema[each].dataType for each in columns] if clauses.all_rows else key_types
    shown_ways = [ways[at] for at in plan.shown] if clauses.all_rows else key_ways
    outside = StructType(
        [StructField(f"s{at}", way.type) for at, way in enumerate(shown_ways)]
        + [StructField(f"y{at}", way.type) for at, way in enumerate(out_ways)]
    )
    text = plan.to_json()
    if records.isStreaming:
        small = rows.mapInArrow(Packing(inside.json()), f"{BUCKET} int, {PACKED} binary")
        processor = Patterns(text, inside.json(), len(partition_by), len(orders), tuple(outside.names))
        found = small.groupBy(BUCKET).transformWithState(processor, outside, "Append", "EventTime")
    else:
        whole = Whole(text, len(partition_by), len(orders), outside.json())
        found = rows.groupBy(BUCKET).applyInArrow(_called(whole), outside)

    names = list(columns if clauses.all_rows else partition_by)
    there = [
        way.back(F.col(f"s{at}")).cast(kind).alias(name)
        for at, (way, kind, name) in enumerate(zip(shown_ways, shown, names, strict=True))
    ]
    leaves = [
        out_ways[at].back(F.col(f"y{at}")).cast(out_types[at]).alias(leaf)
        for leaf, at in draft.leaf_outputs.items()
    ]
    _check_names([*names, *(name for name, _ in draft.measures)], clauses)
    matched = found.select(*there, *leaves)
    for _, reading in draft.measures:
        _type_of(matched, reading.text, reading.fragment)
    return matched.select(
        *(F.col(quoted(each)) for each in names),
        *(F.expr(reading.text).alias(name) for name, reading in draft.measures),
    )


def _called(whole: Whole) -> Callable[[Any], Any]:
    """applyInArrow counts the arguments of a function."""

    def of_a_bucket(table: Any) -> Any:
        return whole(table)

    return of_a_bucket


def _bits(draft: Draft) -> Column:
    """A bit mask of the conditions that Spark computed; a variable without a condition is always true."""
    from pyspark.sql import functions as F

    always, found = 0, F.lit(0).cast("bigint")
    for number in range(len(draft.automaton.variables)):
        text = draft.bits.get(number)
        if text is None:
            always |= 1 << number
        else:
            found = found + F.when(F.expr(text), F.lit(1 << number)).otherwise(F.lit(0)).cast("bigint")
    return (found + F.lit(always).cast("bigint")).cast("bigint")


# Types


def _type_of(frame: DataFrame, text: str, fragment: Fragment) -> DataType:
    """The type of an expression over the columns of a DataFrame. BadPattern for an invalid expression."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    try:
        selected: Any = frame.select(F.expr(text).alias("x"))
        plan = selected._jdf.queryExecution().analyzed()
    except PySparkException as error:
        raise BadPattern(_reason(error, frame.columns), fragment) from error
    if not plan.subqueries().isEmpty():
        raise BadPattern("a query cannot stand in a pattern's expression", fragment)
    if plan.getClass().getSimpleName() != "Project":
        raise BadPattern(f"`{text}` is not about one row: COUNT, SUM, MIN, MAX and AVG are", fragment)
    kind: DataType = selected.schema["x"].dataType
    return kind


def _reason(error: Exception, columns: Sequence[str]) -> str:
    message = str(error)
    unknown = re.search(r"UNRESOLVED_COLUMN.*? name `(.+?)` cannot be resolved", message, re.DOTALL)
    if unknown:
        name = unknown[1].replace("`.`", ".")
        near = difflib.get_close_matches(name.casefold(), [each.casefold() for each in columns], n=1)
        return f"no column `{name}`" + (f"; did you mean `{near[0]}`?" if near else "")
    first = message.strip().splitlines()[0]
    return re.sub(r"^\[[\w.]+\]\s*", "", first).split(" SQLSTATE")[0].rstrip(". ")


def _transport(kind: DataType, place: Fragment) -> Transport:
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    def same(column: Column) -> Column:
        return column

    def to(name: str) -> Callable[[Column], Column]:
        return lambda column: column.cast(name)

    if isinstance(kind, T.ByteType | T.ShortType | T.IntegerType | T.LongType):
        return Transport("int", T.LongType(), to("bigint"), same)
    if isinstance(kind, T.FloatType | T.DoubleType):
        return Transport("double", T.DoubleType(), to("double"), same)
    if isinstance(kind, T.DecimalType):
        return Transport("decimal", kind, same, same)
    if isinstance(kind, T.BooleanType):
        return Transport("bool", kind, same, same)
    if isinstance(kind, T.StringType | T.CharType | T.VarcharType):
        return Transport("text", T.StringType(), to("string"), same)
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        return Transport(
            "time", T.LongType(), lambda column: F.unix_micros(column.cast("timestamp")), F.timestamp_micros
        )
    if isinstance(kind, T.DateType):
        return Transport("date", T.IntegerType(), F.unix_date, F.date_from_unix_date)
    if isinstance(kind, T.BinaryType):
        return Transport("other", kind, same, same)
    if isinstance(kind, T.ArrayType | T.StructType | T.MapType):
        # As text that Spark writes and parses: Python's lists and dicts cannot represent all values.
        schema = kind.json()
        return Transport("other", T.StringType(), F.to_json, lambda column: F.from_json(column, schema))
    raise BadPattern(f"a pattern cannot keep values of the type {kind.simpleString()}: CAST them", place)


def _key_transport(kind: DataType, name: str, clauses: Clauses) -> Transport:
    from pyspark.sql import types as T

    if isinstance(kind, T.ArrayType | T.StructType | T.MapType | T.VariantType):
        raise BadPattern(f"PARTITION BY `{name}`: a partition is a plain value", clauses.pattern)
    return _transport(kind, clauses.pattern)


def _order(records: DataFrame, name: str, clauses: Clauses) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    kind = records.schema[name].dataType
    if isinstance(kind, T.ArrayType | T.StructType | T.MapType | T.VariantType):
        raise BadPattern(f"ORDER BY `{name}`: rows are ordered by plain values", clauses.pattern)
    return F.col(quoted(name))


def _output_type(
    register: Register, types: Sequence[DataType], before: Sequence[tuple[int, int]]
) -> DataType:
    """The type that Spark SQL gives it."""
    from pyspark.sql import types as T

    if register.kind in ("count", "match_number"):
        return T.LongType()
    if register.kind == "classifier":
        return T.StringType()
    assert register.column is not None
    at = register.column
    kind = types[at] if at < len(types) else types[before[at - len(types)][0]]
    if register.kind == "avg":
        return T.DoubleType()
    if register.kind != "sum":
        return kind
    if isinstance(kind, T.DecimalType):
        return T.DecimalType(min(38, kind.precision + 10), kind.scale)
    return T.DoubleType() if isinstance(kind, T.FloatType | T.DoubleType) else T.LongType()


def _check_names(names: Sequence[str], clauses: Clauses) -> None:
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            raise BadPattern(f"Duplicate column `{name}`. Rename a measure with AS.", clauses.pattern)
        seen.add(name.casefold())
