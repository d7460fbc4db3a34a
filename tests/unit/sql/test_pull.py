"""Which SELECTs are pull queries, and what they look up."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from penstock.sql.language.statements import Query, Source
from penstock.sql.pull.plan import plan

COLUMNS = (
    ("region", "STRING"),
    ("n", "BIGINT"),
    ("total", "DECIMAL(10,2)"),
    ("rate", "DOUBLE"),
    ("open", "BOOLEAN"),
    ("day", "DATE"),
    ("at", "TIMESTAMP"),
    ("place", "STRUCT<x: INT>"),
)
ROW = {
    "region": "north",
    "n": 3,
    "total": Decimal("1.50"),
    "rate": 0.5,
    "open": True,
    "day": date(2024, 1, 2),
    "at": datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
    "place": {"x": 1},
}
WINDOWED = (
    ("region", "STRING"),
    ("n", "BIGINT"),
    ("window_start", "TIMESTAMP"),
    ("window_end", "TIMESTAMP"),
)


def query(text, name="t", alias=None, **fields):
    words = frozenset(text.casefold().replace(",", " ").replace("(", " ").split())
    return Query(text, (0, len(text)), (Source(name, alias or name, (0, 0)),), columns=words, **fields)


def pulled(text, columns=COLUMNS, key=("region",), **fields):
    return plan(query(text, **fields), columns, key)


def keeps(text, row=ROW):
    found = pulled(f"SELECT * FROM t WHERE region = 'north' AND {text}")
    assert found is not None and found.plain, text
    return all(condition(row) for condition in found.conditions)


def test_equality_on_the_key_is_a_pull():
    found = pulled("SELECT region, n AS count, T.rate FROM t WHERE region = 'north'")
    assert found.plain and found.keys == (("north",),)
    assert found.projections == (("region", "region"), ("count", "n"), ("rate", "rate"))
    assert found.limit is None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t WHERE 'north' = region",
        "SELECT * FROM t WHERE (region = 'north')",
        "SELECT t.* FROM t WHERE t.REGION = 'north'",
        "SELECT * FROM t WHERE `region` <=> 'north'",
        "SELECT * FROM t WHERE region IN ('north')",
        "SELECT * FROM t WHERE (n > 1 AND region = 'north') AND open",
    ],
)
def test_the_key_is_found_however_it_is_said(text):
    assert pulled(text).keys == (("north",),)


def test_in_gives_several_keys_and_limit_is_kept():
    found = pulled("SELECT * FROM t WHERE region IN ('a', 'b', 'a') LIMIT 1")
    assert found.keys == (("a",), ("b",)) and found.limit == 1 and found.plain
    assert [name for name, _ in found.projections] == [name for name, _ in COLUMNS]


def test_a_key_of_several_columns_needs_all_of_them():
    key = ("region", "n")
    assert pulled("SELECT * FROM t WHERE region = 'a'", key=key) is None
    found = pulled("SELECT * FROM t WHERE n IN (1, 2) AND region = 'a'", key=key)
    assert found.keys == (("a", 1), ("a", 2))


def test_bounds_of_windows_are_conditions_and_not_asked_for():
    key = ("region", "window_start", "window_end")
    found = plan(query("SELECT * FROM t WHERE region = 'a'"), WINDOWED, key)
    assert found.keys == (("a",),) and found.plain
    found = plan(
        query(
            "SELECT n, WINDOWSTART FROM t WHERE region = 'a' "
            "AND WINDOWSTART >= '2024-01-01T00:00:00Z' AND window_start < TIMESTAMP '2024-01-01 00:02:00'"
        ),
        WINDOWED,
        key,
    )
    assert found.plain and found.projections == (("n", "n"), ("window_start", "window_start"))

    def holds(minute):
        row = {"region": "a", "n": 1, "window_start": datetime(2024, 1, 1, 0, minute, tzinfo=UTC)}
        return all(condition(row) for condition in found.conditions)

    assert [holds(0), holds(1), holds(2)] == [True, True, False]


@pytest.mark.promise(
    "sql", "A pull query that cannot be answered from memory with exactly Spark's result is run by Spark"
)
@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t",
        "SELECT * FROM t WHERE n = 3",
        "SELECT * FROM t WHERE region > 'north'",
        "SELECT * FROM t WHERE region = 'north' OR n = 3",
        "SELECT * FROM t WHERE NOT region = 'north'",
        "SELECT * FROM t WHERE region = n",
        "SELECT * FROM t WHERE region = 5",
        "SELECT * FROM t WHERE region = NULL",
        "SELECT * FROM t WHERE region LIKE 'north'",
        "SELECT * FROM t WHERE other.region = 'north'",
        "SELECT * FROM t JOIN u ON t.n = u.n WHERE region = 'north'",
        "SELECT * FROM t WHERE region = 'north' AND n = (SELECT max(n) FROM t)",
        "SELECT * FROM (SELECT * FROM t) WHERE region = 'north'",
        "SELECT __offset FROM t WHERE region = 'north'",
        "SELECT * FROM t TABLESAMPLE (10 ROWS) WHERE region = 'north'",
    ],
)
def test_what_does_not_fix_the_key_is_no_pull(text):
    assert pulled(text) is None


def test_a_push_is_no_pull():
    assert pulled("SELECT * FROM t WHERE region = 'north'", emit="changes") is None


@pytest.mark.promise(
    "sql", "A pull query that cannot be answered from memory with exactly Spark's result is run by Spark"
)
@pytest.mark.parametrize(
    "text",
    [
        "SELECT n + 1 FROM t WHERE region = 'north'",
        "SELECT count(*) FROM t WHERE region = 'north'",
        "SELECT DISTINCT n FROM t WHERE region = 'north'",
        "SELECT n FROM t WHERE region = 'north' ORDER BY n",
        "SELECT n FROM t WHERE region = 'north' AND length(region) = 5",
        "SELECT n FROM t WHERE region = 'north' AND (n = 1 OR n = 2)",
        "SELECT n FROM t WHERE region = 'north' AND n = '3.0'",
        "SELECT place.x FROM t WHERE region = 'north'",
        "SELECT n FROM t WHERE region = 'north' GROUP BY n",
        "SELECT n FROM t WHERE region = 'north' LIMIT 1 + 1",
        "SELECT n FROM t WHERE region = 'north' LIMIT 1 OFFSET 1",
        "SELECT nothing FROM t WHERE region = 'north'",
    ],
)
def test_what_is_not_plain_is_left_to_spark_over_the_rows_of_the_key(text):
    found = pulled(text)
    assert not found.plain and found.keys == (("north",),) and found.conditions == ()


@pytest.mark.parametrize(
    "text",
    [
        "n = 3",
        "n >= 3",
        "n <> 4",
        "-4 < n",
        "n BETWEEN 3 AND 4",
        "n IN (1, 3)",
        "n = '3'",
        "total = 1.5",
        "rate < 1",
        "open = true",
        "day = DATE '2024-01-02'",
        "day >= '2024-01-01'",
        "at = TIMESTAMP '2024-01-02 03:04:05'",
        "at = '2024-01-02T05:04:05+02:00'",
        "at > '2024-01-02'",
        "n IS NOT NULL",
        "region < 'south'",
    ],
)
def test_plain_conditions_hold_as_in_spark(text):
    assert keeps(text)


@pytest.mark.parametrize(
    "text", ["n = 4", "n < 3", "n != 3", "n NOT IN (3)", "at < '2024-01-02'", "n IS NULL"]
)
def test_plain_conditions_that_do_not_hold(text):
    if "NOT IN" in text:
        assert not pulled(f"SELECT * FROM t WHERE region = 'north' AND {text}").plain
    else:
        assert not keeps(text)


@pytest.mark.parametrize(
    "text", ["n = 3", "n <> 3", "n < 3", "n BETWEEN 1 AND 5", "n IN (3)", "n IS NOT NULL"]
)
def test_null_compared_with_anything_is_not_true(text):
    assert not keeps(text, {**ROW, "n": None})
