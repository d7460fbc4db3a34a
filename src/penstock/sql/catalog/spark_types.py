"""Names of Spark's types, and which types can be assigned to which."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.sql.language.column_types import NAMES, SAME, TIME_PRECISION
from penstock.sqltext.identifiers import quoted, unquoted

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD_OF = {spark: word for word, spark in NAMES.items()} | {"NullType": "VOID"}
_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT")


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
    if isinstance(kind, T.DecimalType):
        return f"DECIMAL({kind.precision},{kind.scale})"
    name = _WORD_OF.get(type(kind).__name__)
    if name == "TIME":
        precision = getattr(kind, "precision", TIME_PRECISION)
        return name if precision == TIME_PRECISION else f"TIME({precision})"
    return name or kind.simpleString().upper()


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


_WORDS = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^\s<>(),:`]+)|([<>(),:]))")


def from_words(text: str) -> DataType:
    """The type with this name, as `words` writes it; ValueError for an unknown one. Needs no running
    Spark.
    """
    tokens = [(unquoted(name), word, mark) for name, word, mark in _WORDS.findall(text)]
    kind, rest = _from_words(tokens)
    if rest:
        raise ValueError(f"{text!r} is not a type")
    return kind


_Tokens = list[tuple[str, str, str]]


def _from_words(tokens: _Tokens) -> tuple[DataType, _Tokens]:
    from pyspark.sql import types as T

    if not tokens:
        raise ValueError("a type is missing")
    word, rest = tokens[0][1].upper(), tokens[1:]
    if word == "ARRAY":
        element, rest = _from_words(_past(rest, "<"))
        return T.ArrayType(element), _past(rest, ">")
    if word == "MAP":
        key, rest = _from_words(_past(rest, "<"))
        value, rest = _from_words(_past(rest, ","))
        return T.MapType(key, value), _past(rest, ">")
    if word == "STRUCT":
        fields: list[T.StructField] = []
        rest = _past(rest, "<")
        while rest and rest[0][2] != ">":
            rest = _past(rest, ",") if fields else rest
            name, _, _ = rest[0]
            kind, after = _from_words(_past(rest[1:], ":") if rest[1:2] and rest[1][2] == ":" else rest[1:])
            fields.append(T.StructField(name or rest[0][1], kind))
            rest = after
        return T.StructType(fields), _past(rest, ">")
    sizes: list[int] = []
    if rest and rest[0][2] == "(":
        end = next(at for at, token in enumerate(rest) if token[2] == ")")
        sizes = [int(token[1]) for token in rest[1:end] if token[1]]
        rest = rest[end + 1 :]
    word = SAME.get(word, word)
    if word == "DECIMAL":
        return T.DecimalType(*sizes) if sizes else T.DecimalType(10, 0), rest
    if word in ("VARCHAR", "CHAR"):
        return T.StringType(), rest
    if word == "VOID":
        return T.NullType(), rest
    if word == "INTERVAL":
        return _interval(rest)
    spark = getattr(T, NAMES.get(word, ""), None)
    if spark is None:
        raise ValueError(f"{word} is not a type")
    return spark(*sizes) if word == "TIME" else spark(), rest


def _interval(tokens: _Tokens) -> tuple[DataType, _Tokens]:
    """`INTERVAL DAY TO SECOND`: not allowed in a column declaration, but a query can return it."""
    from pyspark.sql import types as T

    found: list[str] = []
    while tokens and tokens[0][1] and (not found or tokens[0][1].upper() == "TO"):
        step = 1 if not found else 2
        if len(tokens) < step:
            raise ValueError("an interval has no end")
        found.append(tokens[step - 1][1].upper())
        tokens = tokens[step:]
    if not found:
        return T.CalendarIntervalType(), tokens
    for kind in (T.DayTimeIntervalType, T.YearMonthIntervalType):
        names = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
        fields = {name: getattr(kind, name) for name in names if hasattr(kind, name)}
        if set(found) <= fields.keys():
            return kind(*(fields[each] for each in found)), tokens
    raise ValueError(f"INTERVAL {' TO '.join(found)} is not a type")


def _past(tokens: _Tokens, mark: str) -> _Tokens:
    if not tokens or tokens[0][2] != mark:
        raise ValueError(f"{mark} is missing in a type")
    return tokens[1:]
