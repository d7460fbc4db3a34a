"""Types in words, without Spark."""

import re

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import types as T

from penstock.sql.catalog.declare import check_column_types
from penstock.sql.errors import Clash
from penstock.sql.language.lexer.cursor import Cursor
from penstock.sql.language.lexer.tokens import tokenize
from penstock.sql.language.statements import Column
from penstock.sqltext.spark_types import from_words, words
from penstock.sqltext.types import CLASSES, NAMES, SAME, read_type


@pytest.mark.parametrize(
    "text",
    [
        "STRING",
        "BIGINT",
        "DECIMAL(10,2)",
        "TIMESTAMP",
        "TIMESTAMP_NTZ",
        "ARRAY<STRING>",
        "MAP<STRING, ARRAY<INT>>",
        "STRUCT<a: INT, b: STRUCT<c: STRING, `d e`: DOUBLE>>",
        "STRUCT<`x:y`: MAP<INT, DECIMAL(38,18)>>",
        "VOID",
    ],
)
def test_words_of_a_type_give_it_back(text):
    assert words(from_words(text)) == text


def every_type() -> list[T.DataType]:
    """One of each, by Spark's own list of the words that it reads and of what queries give."""
    plain = [getattr(T, name)() for name in CLASSES.values()]
    days = [T.DayTimeIntervalType(), T.DayTimeIntervalType(1, 2), T.DayTimeIntervalType(0, 0)]
    intervals = [*days, T.YearMonthIntervalType(), T.YearMonthIntervalType(1, 1), T.CalendarIntervalType()]
    sized = [T.DecimalType(38, 18), T.DecimalType(5, 0), T.TimeType(0), T.TimeType(3), T.NullType()]
    flat = [*plain, *intervals, *sized]
    structs = [T.StructType([T.StructField(f"a-{at}", each) for at, each in enumerate(flat)])]
    nested = [T.ArrayType(T.VariantType()), T.MapType(T.TimeType(3), T.ArrayType(T.TimeType())), *structs]
    return [*flat, *nested]


@pytest.mark.promise("sql", "Each Spark type that a column or a query can have has a SQL name")
@pytest.mark.parametrize("kind", every_type(), ids=lambda kind: kind.simpleString()[:40])
def test_every_type_comes_back_from_its_words(kind):
    assert from_words(words(kind)) == kind


@pytest.mark.parametrize("text", [*NAMES, *SAME])
def test_every_word_of_the_language_is_a_type(text):
    written = {"ARRAY": "ARRAY<VARIANT>", "MAP": "MAP<STRING, TIME(3)>", "STRUCT": "STRUCT<a: TIME>",
               "CHAR": "CHAR(3)"}.get(text, text)  # fmt: skip
    read = str(read_type(Cursor(written, tokenize(written))))
    assert words(from_words(read)) == words(from_words(written))
    assert from_words(words(from_words(read))) == from_words(read)


@pytest.mark.promise(
    "sql", "A type that a format cannot represent is rejected, and the error names the format"
)
@pytest.mark.parametrize(
    ("form", "kind", "said"),
    [
        ("json", "VARIANT", "format='json' has no such type: `v` is variant"),
        ("json", "ARRAY<TIME>", "format='json' has no such type: `v`[] is time"),
        ("csv", "TIME", "format='csv' has no such type: `v` is time"),
        ("csv", "VARIANT", "format='csv' has no such type"),
        ("delta", "STRUCT<a: VARIANT>", "format='delta' has no type VARIANT"),
        ("delta", "TIME(3)", "format='delta' has no type TIME"),
    ],
)
def test_a_type_that_a_format_cannot_hold_is_refused(form, kind, said):
    with pytest.raises(Clash, match=re.escape(said)):
        check_column_types(form, [Column("v", kind)], None)
    check_column_types(form, [Column("v", "TIMESTAMP"), Column("w", "DECIMAL(9,2)")], None)


def test_other_spellings_are_the_same_type():
    assert words(from_words("struct<a int, b decimal( 5 , 1 )>")) == "STRUCT<a: INT, b: DECIMAL(5,1)>"
    assert words(from_words("VARCHAR(5)")) == "STRING"


@pytest.mark.parametrize("text", ["", "NOTHING", "ARRAY<", "ARRAY<INT", "STRUCT<a>", "INT INT", "MAP<INT>"])
def test_what_is_no_type_is_refused(text):
    with pytest.raises(ValueError):
        from_words(text)
