"""Spark's types in words, and which of them go into which."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT")


def quoted(name: str) -> str:
    """A name as SQL takes it whatever it is."""
    return "`" + name.replace("`", "``") + "`"


def plain_or_quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quoted(name)


def words(kind: DataType) -> str:
    """A type as DESCRIBE shows it and Spark reads it: `BIGINT`, `STRUCT<a: INT>`."""
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        inside = ", ".join(f"{plain_or_quoted(each.name)}: {words(each.dataType)}" for each in kind.fields)
        return f"STRUCT<{inside}>"
    if isinstance(kind, T.ArrayType):
        return f"ARRAY<{words(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"MAP<{words(kind.keyType)}, {words(kind.valueType)}>"
    if isinstance(kind, T.NullType):
        return "VOID"
    return kind.simpleString().upper()


def fits(given: DataType, wanted: DataType) -> bool:
    """Whether every value of one type is a value of the other: nothing is lost, and no text is parsed."""
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
        # Integers up to 2^24 and 2^53 are floats and doubles exactly; Spark's own assignments allow all.
        return other == "DOUBLE" or (other == "FLOAT" and one in ("TINYINT", "SMALLINT"))
    if isinstance(given, T.DecimalType):
        if isinstance(wanted, T.DecimalType):
            whole = given.precision - given.scale <= wanted.precision - wanted.scale
            return whole and given.scale <= wanted.scale
        return other == "DOUBLE"
    return (one, other) in (("FLOAT", "DOUBLE"), ("DATE", "TIMESTAMP"), ("DATE", "TIMESTAMP_NTZ"))
