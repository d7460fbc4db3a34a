"""Names of Spark's types, and which types can be assigned to which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.sqltext.types import CLASSES, TIME_PRECISION, TypeName, type_of

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_WORD_OF = {spark: word for word, spark in CLASSES.items()} | {"NullType": "VOID"}
_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT")


def words(kind: DataType) -> str:
    """A type as DESCRIBE shows it and Spark reads it: `BIGINT`, `STRUCT<a: INT>`."""
    return str(_name_of(kind))


def _name_of(kind: DataType) -> TypeName:
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        inside = tuple(_name_of(each.dataType) for each in kind.fields)
        return TypeName("STRUCT", inside=inside, fields=tuple(each.name for each in kind.fields))
    if isinstance(kind, T.ArrayType):
        return TypeName("ARRAY", inside=(_name_of(kind.elementType),))
    if isinstance(kind, T.MapType):
        return TypeName("MAP", inside=(_name_of(kind.keyType), _name_of(kind.valueType)))
    if isinstance(kind, T.DecimalType):
        return TypeName("DECIMAL", (kind.precision, kind.scale))
    name = _WORD_OF.get(type(kind).__name__)
    if name == "TIME":
        precision = getattr(kind, "precision", TIME_PRECISION)
        return TypeName("TIME", () if precision == TIME_PRECISION else (precision,))
    return TypeName(name or kind.simpleString().upper())


def fits(given: DataType, wanted: DataType) -> bool:
    """Whether every value of one type is a value of the other, without loss and without parsing text."""
    from pyspark.sql import types as T

    if isinstance(given, T.NullType):
        return True
    if isinstance(given, T.StructType) and isinstance(wanted, T.StructType):
        there = {each.name.casefold(): each.dataType for each in wanted.fields}
        return all(
            each.name.casefold() in there and fits(each.dataType, there[each.name.casefold()])
            for each in given.fields
        )
    if isinstance(given, T.ArrayType) and isinstance(wanted, T.ArrayType):
        return fits(given.elementType, wanted.elementType)
    if isinstance(given, T.MapType) and isinstance(wanted, T.MapType):
        return fits(given.keyType, wanted.keyType) and fits(given.valueType, wanted.valueType)
    if isinstance(given, T.StringType) and isinstance(wanted, T.StringType):
        return True
    one, other = words(given), words(wanted)
    if one == other:
        return True
    if one in _WHOLE and other in _WHOLE:
        return _WHOLE.index(one) <= _WHOLE.index(other)
    if one in _WHOLE:
        if isinstance(wanted, T.DecimalType):
            return wanted.precision - wanted.scale >= (3, 5, 10, 19)[_WHOLE.index(one)]
        # Integers up to 2^24 and 2^53 fit into floats and doubles exactly; Spark's own assignment rules allow
        # all.
        return other == "DOUBLE" or (other == "FLOAT" and one in ("TINYINT", "SMALLINT"))
    if isinstance(given, T.DecimalType):
        if isinstance(wanted, T.DecimalType):
            whole = given.precision - given.scale <= wanted.precision - wanted.scale
            return whole and given.scale <= wanted.scale
        return other == "DOUBLE"
    return (one, other) in (("FLOAT", "DOUBLE"), ("DATE", "TIMESTAMP"), ("DATE", "TIMESTAMP_NTZ"))


def from_words(text: str) -> DataType:
    """The type with this name, as `words` writes it; ValueError for an unknown one. Needs no running
    Spark.
    """
    return _spark_type(type_of(text))


def _spark_type(kind: TypeName) -> DataType:
    from pyspark.sql import types as T

    inside = [_spark_type(each) for each in kind.inside]
    match kind.word:
        case "ARRAY":
            return T.ArrayType(inside[0])
        case "MAP":
            return T.MapType(inside[0], inside[1])
        case "STRUCT":
            return T.StructType([T.StructField(*each) for each in zip(kind.fields, inside, strict=True)])
        case "DECIMAL":
            return T.DecimalType(*kind.sizes) if kind.sizes else T.DecimalType(10, 0)
        case "VARCHAR" | "CHAR":
            return T.StringType()
        case "VOID":
            return T.NullType()
        case word if word.startswith("INTERVAL"):
            return _interval(word.split()[1::2])
    found: DataType = getattr(T, CLASSES[kind.word])(*kind.sizes)
    return found


def _interval(found: list[str]) -> DataType:
    """Of `INTERVAL DAY TO SECOND`, its first and its last field."""
    from pyspark.sql import types as T

    if not found:
        return T.CalendarIntervalType()
    for kind in (T.DayTimeIntervalType, T.YearMonthIntervalType):
        names = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
        fields = {name: getattr(kind, name) for name in names if hasattr(kind, name)}
        if set(found) <= fields.keys():
            return kind(*(fields[each] for each in found))
    raise ValueError(f"INTERVAL {' TO '.join(found)} is not a type")
