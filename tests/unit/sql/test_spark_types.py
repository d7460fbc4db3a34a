"""Types in words, without Spark."""

import pytest

from penstock.sql.catalog.spark_types import from_words, words


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


def test_other_spellings_are_the_same_type():
    assert words(from_words("struct<a int, b decimal( 5 , 1 )>")) == "STRUCT<a: INT, b: DECIMAL(5,1)>"
    assert words(from_words("VARCHAR(5)")) == "STRING"


@pytest.mark.parametrize("text", ["", "NOTHING", "ARRAY<", "ARRAY<INT", "STRUCT<a>", "INT INT", "MAP<INT>"])
def test_what_is_no_type_is_refused(text):
    with pytest.raises(ValueError):
        from_words(text)
