"""Which values of an INSERT need no Spark, and what they are."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pytest

from penstock.sql.language.literals import UNSURE, reader

PLAIN = [
    ("TINYINT", "-128", -128),
    ("INT", "007", 7),
    ("INT", "2147483647", 2147483647),
    ("BIGINT", "123456789012345678", 123456789012345678),
    ("BIGINT", "null", None),
    ("DOUBLE", "3", 3.0),
    ("DOUBLE", "-12.25", -12.25),
    ("DECIMAL(6, 2)", "-1234.5", Decimal("-1234.5")),
    ("DECIMAL(6,2)", "0001234", Decimal(1234)),
    ("STRING", "'tea'", "tea"),
    ("STRING", "'a\nb -- c'", "a\nb -- c"),
    ("STRING", "NULL", None),
    ("BOOLEAN", "True", True),
    ("DATE", "'2025-02-28'", datetime.date(2025, 2, 28)),
    ("DATE", "date '2025-02-28'", datetime.date(2025, 2, 28)),
    ("TIMESTAMP", "'2025-02-28T10:00:01Z'", datetime.datetime(2025, 2, 28, 10, 0, 1, 0, datetime.UTC)),
    (
        "TIMESTAMP",
        "TIMESTAMP '2025-02-28 10:00:01.25'",
        datetime.datetime(2025, 2, 28, 10, 0, 1, 250000, datetime.UTC),
    ),
]
OF_SPARK = [
    ("TINYINT", "128"),
    ("INT", "2147483648"),
    ("INT", "1.0"),
    ("INT", "'1'"),
    ("INT", "1L"),
    ("INT", "1 + 1"),
    ("BIGINT", "12345678901234567890"),
    ("DOUBLE", "1e3"),
    ("DOUBLE", "1234567890.1234567"),
    ("FLOAT", "1.5"),
    ("DECIMAL(6, 2)", "12345"),
    ("DECIMAL(6, 2)", "1.234"),
    ("STRING", "1"),
    ("STRING", "'it''s'"),
    ("STRING", r"'a\tb'"),
    ("STRING", "'a' 'b'"),
    ("STRING", "'${spark.app.name}'"),
    ("STRING", '"tea"'),
    ("VARCHAR(2)", "'tea'"),
    ("BOOLEAN", "'true'"),
    ("DATE", "'2025-02-29'"),
    ("DATE", "'2025-2-3'"),
    ("DATE", "'0001-01-01'"),
    ("TIMESTAMP", "'2025-02-28 24:00:00'"),
    ("TIMESTAMP", "'2025-02-28 10:00:00 Europe/Berlin'"),
    ("TIMESTAMP", "DATE '2025-02-28'"),
    ("BINARY", "'tea'"),
    ("ARRAY<INT>", "array(1)"),
]


@pytest.mark.parametrize(("kind", "text", "value"), PLAIN, ids=[f"{each[0]} {each[1]}" for each in PLAIN])
def test_a_plain_value_is_read_without_spark(kind: str, text: str, value: Any) -> None:
    found = reader(kind, utc=True)(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.promise(
    "sql",
    "INSERT … VALUES writes all rows or none, and reports the position of the first wrong value; "
    "literals have the same meaning as in Spark",
)
@pytest.mark.parametrize(("kind", "text"), OF_SPARK, ids=[" ".join(each) for each in OF_SPARK])
def test_what_is_not_certain_is_left_to_spark(kind: str, text: str) -> None:
    assert reader(kind, utc=True)(text) is UNSURE


def test_a_time_without_its_zone_is_left_to_spark_unless_it_is_one_of_utc() -> None:
    assert reader("TIMESTAMP", utc=False)("'2025-02-28 10:00:00'") is UNSURE
    assert reader("TIMESTAMP", utc=False)("NULL") is None


def test_a_negative_zero_is_zero_as_it_is_for_spark() -> None:
    assert math.copysign(1, reader("DOUBLE", utc=True)("-0.0")) == 1
    assert not reader("DECIMAL(4, 2)", utc=True)("-0.0").is_signed()
