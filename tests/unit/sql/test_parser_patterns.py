"""MATCH_RECOGNIZE in the text of a query: its clauses, and what is wrong with them."""

from __future__ import annotations

import pytest

from penstock.sql.errors import SqlError
from penstock.sql.language.parser import parse
from penstock.sql.language.spark_text import to_spark
from penstock.sql.language.statements import Query, Select

WHOLE = """SELECT m.account FROM logins MATCH_RECOGNIZE (
  PARTITION BY account, host ORDER BY at ASC, n
  MEASURES COUNT(F.*) AS failures, LAST(S.at) AS at
  ALL ROWS PER MATCH AFTER MATCH SKIP TO FIRST S
  PATTERN ((F | G){3,}? S) WITHIN INTERVAL '1' MINUTE GRACE PERIOD 10 SECONDS
  SUBSET U = (F, S), V = (G)
  DEFINE F AS NOT ok AND f(a, b) IN (1, 2), S AS ok
) AS m WHERE m.failures > 2"""


def query(text: str) -> Query:
    (statement,) = parse(text)
    assert isinstance(statement, Select)
    return statement.query


def test_all_clauses_are_found() -> None:
    found = query(WHOLE)
    (pattern,) = found.patterns

    def texts(pairs: tuple[tuple[str, tuple[int, int]], ...]) -> list[tuple[str, str]]:
        return [(name, WHOLE[slice(*span)]) for name, span in pairs]

    assert (pattern.source, pattern.alias, pattern.all_rows) == ("logins", "m", True)
    assert [name for name, _ in pattern.partition_by] == ["account", "host"]
    assert [name for name, _ in pattern.order_by] == ["at", "n"]
    assert texts(pattern.measures) == [("failures", "COUNT(F.*)"), ("at", "LAST(S.at)")]
    assert WHOLE[slice(*pattern.pattern)] == "(F | G){3,}? S"
    assert texts(pattern.define) == [("F", "NOT ok AND f(a, b) IN (1, 2)"), ("S", "ok")]
    assert pattern.subsets == (("U", ("F", "S")), ("V", ("G",)))
    assert (pattern.within, pattern.grace, pattern.skip) == (60_000_000, "10 SECONDS", "first")
    assert pattern.skip_to is not None and WHOLE[slice(*pattern.skip_to)] == "S"
    assert [(each.name, each.alias) for each in found.sources] == [("logins", "m")]
    assert to_spark(found).text == "SELECT m.account FROM __penstock_pattern_0 AS m WHERE m.failures > 2"


@pytest.mark.parametrize(
    ("skip", "expected"),
    [
        ("", "past last row"),
        ("AFTER MATCH SKIP PAST LAST ROW", "past last row"),
        ("AFTER MATCH SKIP TO NEXT ROW", "next row"),
        ("AFTER MATCH SKIP TO LAST A", "last"),
        ("AFTER MATCH SKIP TO A", "last"),
        ("ONE ROW PER MATCH AFTER MATCH SKIP TO FIRST A", "first"),
    ],
)
def test_where_the_next_match_may_begin(skip: str, expected: str) -> None:
    text = f"SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at {skip} PATTERN (A) DEFINE A AS x)"
    (pattern,) = query(text).patterns
    assert pattern.skip == expected
    assert to_spark(query(text)).text == "SELECT * FROM __penstock_pattern_0 AS `t`"


@pytest.mark.parametrize(
    ("clauses", "message"),
    [
        ("PATTERN (A) DEFINE A AS x", "ORDER BY and the event time"),
        ("ORDER BY at DESC PATTERN (A) DEFINE A AS x", "without DESC"),
        ("ORDER BY at MEASURES A.x PATTERN (A) DEFINE A AS x", "a measure has a name"),
        ("ORDER BY at ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A) DEFINE A AS x", "WITH UNMATCHED"),
        ("ORDER BY at PATTERN (A)", "DEFINE and the conditions"),
        ("ORDER BY at PATTERN (A) DEFINE A x", "expected AS"),
        ("ORDER BY at PATTERN (A) DEFINE A AS , B AS y", "a condition"),
        ("ORDER BY at PATTERN (A) WITHIN 1 MONTH DEFINE A AS x", "fixed length"),
    ],
)
def test_what_is_wrong_with_a_clause_is_said_at_its_place(clauses: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        query(f"SELECT * FROM t MATCH_RECOGNIZE ({clauses})")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM (SELECT * FROM t) MATCH_RECOGNIZE (ORDER BY at PATTERN (A) DEFINE A AS x)",
        "WITH t AS (SELECT 1) SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at PATTERN (A) DEFINE A AS x)",
        "SELECT * FROM t AS s MATCH_RECOGNIZE (ORDER BY at PATTERN (A) DEFINE A AS x)",
    ],
)
def test_it_stands_behind_a_name(text: str) -> None:
    with pytest.raises(SqlError, match=r"MATCH_RECOGNIZE (reads|stands)"):
        query(text)
