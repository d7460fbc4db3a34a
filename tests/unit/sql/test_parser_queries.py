"""The shape of a query is known by its words: sources, clauses, and what is Penstock's own in it."""

from __future__ import annotations

import pytest

from penstock.sql.language.parser import parse
from penstock.sql.language.statements import Query, Select, Span


def query(text: str) -> Query:
    (statement,) = parse(text)
    assert isinstance(statement, Select)
    return statement.query


def at(query: Query, span: Span | None) -> str | None:
    return None if span is None else query.text[slice(*span)]


def names(query: Query) -> list[tuple[str, str]]:
    return [(each.name, each.alias) for each in query.sources]


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        ("SELECT 1", ""),
        ("SELECT * FROM a", "a"),
        ("SELECT * FROM a x", "a AS x"),
        ("SELECT * FROM `a-b` AS `x y`", "a-b AS x y"),
        ("SELECT * FROM my.topic", "my.topic AS topic"),
        ("SELECT * FROM a, b AS c, d", "a, b AS c, d"),
        ("SELECT * FROM a JOIN b ON a.x = b.x LEFT OUTER JOIN c USING (x)", "a, b, c"),
        ("SELECT * FROM a x NATURAL JOIN b y CROSS JOIN c", "a AS x, b AS y, c"),
        ("SELECT * FROM a LEFT SEMI JOIN b ON left(a.x, 2) = right(b.x, 2), c", "a, b, c"),
        ("SELECT * FROM (a JOIN b ON a.x = b.x) JOIN c ON true", "a, b, c"),
        ("SELECT * FROM (SELECT * FROM a WHERE x IN (SELECT x FROM b)) q", "a, b"),
        ("SELECT (SELECT max(x) FROM a) FROM b WHERE EXISTS (SELECT 1 FROM c)", "a, b, c"),
        ("SELECT * FROM a JOIN (SELECT * FROM b) q ON a.x = q.x", "a, b"),
        ("SELECT * FROM a UNION ALL (SELECT * FROM b) EXCEPT SELECT * FROM c", "a, b, c"),
        ("WITH q AS (SELECT * FROM a) SELECT * FROM q JOIN b ON q.x = b.x", "a, b"),
        ("WITH s AS (SELECT * FROM s) SELECT * FROM s", "s"),
        ("WITH q (x, y) AS (SELECT 1, 2), r AS (SELECT * FROM q JOIN a) SELECT * FROM R", "a"),
        ("WITH RECURSIVE q AS (SELECT 1 UNION ALL SELECT * FROM q) SELECT * FROM q", ""),
        ("SELECT * FROM range(10) r JOIN a ON r.id = a.id", "a"),
        ("SELECT * FROM explode(array(1, (SELECT max(x) FROM a)))", "a"),
        ("SELECT * FROM a LATERAL VIEW OUTER explode(a.xs) t AS x", "a"),
        ("SELECT * FROM a, LATERAL explode(a.xs) t", "a"),
        ("SELECT * FROM parquet.`prices` p JOIN a ON p.x = a.x", "parquet.prices AS p, a"),
        ("SELECT * FROM VALUES (1), (2) AS t (x) JOIN a ON t.x = a.x", "a"),
        ("SELECT * FROM a TABLESAMPLE (10 PERCENT) x PIVOT (sum(y) FOR z IN (1, 2))", "a"),
        ("SELECT a IS DISTINCT FROM b, c IS NOT DISTINCT FROM d FROM t", "t"),
        ("SELECT extract(day FROM x), trim(BOTH 'a' FROM y) FROM t", "t"),
        ("SELECT t.from, t.limit FROM t", "t"),
        ("FROM a SELECT x", "a"),
        ("FROM a |> WHERE x > 1 |> JOIN b ON a.x = b.x |> SELECT x", "a, b"),
        ("(SELECT * FROM a) UNION (SELECT * FROM b) ORDER BY 1", "a, b"),
        ("SELECT * FROM a WHERE x = 'FROM b' -- FROM c\n AND y /* FROM d */ = 1", "a"),
    ],
)
def test_sources_are_what_a_query_reads(text: str, sources: str) -> None:
    found = query(text)
    told = [each.name + (f" AS {each.alias}" if each.alias != each.name else "") for each in found.sources]
    assert ", ".join(told) == sources
    for source in found.sources:
        assert (at(found, source.span) or "").replace("`", "") == source.name


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ("a", "a"),
        ("a AS b", "b"),
        ("a b", "b"),
        ("a `b c`", "b c"),
        ("t.a", "a"),
        ("t.`a b`.c", "c"),
        ("*", "*"),
        ("t.*", "*"),
        ("* EXCEPT (a, b)", "*"),
        ("count(*)", None),
        ("count(*) n", "n"),
        ("a + b", None),
        ("NOT a", None),
        ("a AND b", None),
        ("a IS NULL", None),
        ("CASE WHEN a THEN b END", None),
        ("CASE WHEN a THEN b END c", "c"),
        ("a::int", None),
        ("x['y'] z", "z"),
        ("INTERVAL 1 DAY", None),
        ("sum(x) OVER w", None),
        ("sum(x) OVER (PARTITION BY y) z", "z"),
        ("NULL", None),
        ("'text'", None),
        ("1 AS one", "one"),
    ],
)
def test_items_of_the_select_list_have_the_name_that_spark_gives_them(item: str, name: str | None) -> None:
    found = query(f"SELECT first_one, {item} FROM t")
    assert [each for each, _ in found.first.projections] == ["first_one", name]
    assert at(found, found.first.projections[1][1]) == item
    assert found.text[: found.first.projection_end].endswith(item)


@pytest.mark.parametrize(
    ("text", "aggregates"),
    [
        ("SELECT a FROM t", False),
        ("SELECT DISTINCT a FROM t", True),
        ("SELECT count(*) FROM t", True),
        ("SELECT 1 + Max_By(a, b) FROM t", True),
        ("SELECT a FROM t GROUP BY a", True),
        ("SELECT a FROM t HAVING count(*) > 1", True),
        ("SELECT sum(a) OVER (PARTITION BY b) FROM t", False),
        ("SELECT sum(a) FILTER (WHERE b) OVER w FROM t WINDOW w AS (ORDER BY c)", False),
        ("SELECT count(*) FILTER (WHERE b) FROM t", True),
        ("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) FROM t", True),
        ("SELECT (SELECT max(a) FROM u) FROM t", False),
        ("SELECT a FROM (SELECT a, count(*) FROM t GROUP BY a) q", False),
        ("SELECT a LIKE ANY ('x', 'y') FROM t", False),
        ("SELECT a FROM t UNION ALL SELECT count(*) FROM u", True),
        ("SELECT count, max FROM t", False),
    ],
)
def test_aggregates_of_the_outermost_select_are_seen(text: str, aggregates: bool) -> None:
    assert query(text).aggregates is aggregates


def test_the_clauses_of_the_outermost_select_have_their_places() -> None:
    found = query(
        "SELECT a, max(b) m FROM t WHERE c IN (SELECT c FROM u GROUP BY c HAVING count(*) > 9)\n"
        "GROUP BY a, f(b, c) HAVING max(b) > 3 AND a < 9 ORDER BY a LIMIT 10"
    )
    assert [at(found, each) for each in found.first.group_by] == ["a", "f(b, c)"]
    assert found.text[: found.first.group_end].endswith("f(b, c)")
    assert at(found, found.first.having) == "max(b) > 3 AND a < 9"
    assert at(found, found.first.having_clause) == "HAVING max(b) > 3 AND a < 9"
    assert (found.limit, at(found, found.limit_clause)) == (10, "LIMIT 10")
    assert not found.union
    assert {"a", "m", "t", "u", "max"} <= found.columns


def test_a_group_by_with_rollup_ends_before_it() -> None:
    found = query("SELECT a, b, count(*) FROM t GROUP BY a, b WITH ROLLUP")
    assert [at(found, each) for each in found.first.group_by] == ["a", "b"]


@pytest.mark.parametrize(
    ("clause", "kind", "size", "advance", "grace"),
    [
        ("WINDOW TUMBLING (SIZE 1 MINUTE)", "tumbling", "1 MINUTE", None, None),
        ("window tumbling (size '1 day', grace period 10 seconds)", "tumbling", "1 DAY", None, "10 SECONDS"),
        ("WINDOW TUMBLING (SIZE 1 HOUR 30 MINUTES)", "tumbling", "1 HOUR 30 MINUTES", None, None),
        ("WINDOW HOPPING (SIZE INTERVAL '10' MINUTE, ADVANCE BY 500 MILLISECONDS)", "hopping", "10 MINUTE",
         "500 MILLISECONDS", None),
        ("WINDOW SESSION (5 MINUTES, GRACE PERIOD 0 SECONDS)", "session", "5 MINUTES", None, "0 SECONDS"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "rest", ["", " WHERE b > 1 GROUP BY a", " GROUP BY a HAVING count(*) > 1 EMIT CHANGES"]
)
def test_windows(
    clause: str, kind: str, size: str, advance: str | None, grace: str | None, rest: str
) -> None:
    found = query(f"SELECT count(*) FROM s AS x JOIN u ON x.a = u.a {clause}{rest}")
    assert found.first.window is not None
    window = found.first.window
    assert (window.kind, window.size, window.advance, window.grace) == (kind, size, advance, grace)
    assert at(found, window.span) == clause
    assert found.selects[0].source == "x"
    assert names(found) == [("s", "x"), ("u", "u")]


def test_a_named_window_is_sparks_own() -> None:
    found = query("SELECT sum(a) OVER w, window FROM t WINDOW w AS (PARTITION BY b), v AS (ORDER BY c)")
    assert found.first.window is None
    assert [name for name, _ in found.first.projections] == [None, "window"]


def test_a_window_inside_belongs_to_the_select_inside() -> None:
    found = query("SELECT max(n) FROM (SELECT count(*) n FROM s WINDOW TUMBLING (SIZE 1 DAY)) q GROUP BY n")
    assert found.first.window is None
    assert [(part.outermost, part.window is not None, part.source) for part in found.selects] == [
        (True, False, "q"),
        (False, True, "s"),
    ]


@pytest.mark.parametrize(
    ("clause", "before", "after", "grace"),
    [
        ("WITHIN 10 MINUTES", "10 MINUTES", "10 MINUTES", None),
        ("WITHIN (5 MINUTES, 1 HOUR)", "5 MINUTES", "1 HOUR", None),
        ("WITHIN (5 MINUTES)", "5 MINUTES", "5 MINUTES", None),
        ("WITHIN INTERVAL 10 SECONDS GRACE PERIOD 1 DAY", "10 SECONDS", "10 SECONDS", "1 DAY"),
    ],
)
@pytest.mark.parametrize("alias", ["", " y", " AS y"])
def test_within(clause: str, before: str, after: str, grace: str | None, alias: str) -> None:
    right = "y" if alias else "b-c"
    found = query(f"SELECT * FROM a x LEFT JOIN `b-c`{alias} {clause} ON x.id = f(1, 2) OR x.k WHERE x.v")
    (within,) = found.withins
    assert (within.left, within.right) == ("x", right)
    assert (within.before, within.after, within.grace) == (before, after, grace)
    assert at(found, within.span) == clause
    assert at(found, within.condition) == "x.id = f(1, 2) OR x.k"


def test_within_of_a_third_stream_counts_from_the_one_that_its_condition_names() -> None:
    found = query(
        "SELECT * FROM a JOIN b WITHIN 1 HOUR ON a.x = b.x JOIN c WITHIN 2 HOURS ON c.y = b.y"
        " JOIN d ON d.z = a.z"
    )
    assert [(each.left, each.right, each.before) for each in found.withins] == [
        ("a", "b", "1 HOUR"),
        ("b", "c", "2 HOURS"),
    ]
    assert [at(found, each.condition) for each in found.withins] == ["a.x = b.x", "c.y = b.y"]


def test_partition_by_at_the_end_is_ours_and_inside_over_is_not() -> None:
    found = query(
        "SELECT a, sum(b) OVER (PARTITION BY c) FROM t WHERE d PARTITION BY a, f(b, c) EMIT CHANGES"
    )
    assert at(found, found.partition_by) == "a, f(b, c)"
    assert at(found, found.partition_clause) == "PARTITION BY a, f(b, c)"
    assert query("SELECT sum(b) OVER (PARTITION BY c) FROM t").partition_by is None
    before = query("SELECT a, count(*) FROM t GROUP BY a PARTITION BY a HAVING count(*) > 1")
    assert (at(before, before.partition_by), at(before, before.first.having)) == ("a", "count(*) > 1")


@pytest.mark.parametrize("end", ["EMIT CHANGES LIMIT 5", "LIMIT 5 EMIT CHANGES"])
def test_limit_stands_before_or_after_emit(end: str) -> None:
    found = query(f"SELECT * FROM t {end}")
    assert (found.emit, found.limit, at(found, found.limit_clause)) == ("changes", 5, "LIMIT 5")


def test_words_of_ours_can_be_names() -> None:
    found = query("SELECT emit, t.changes, final AS emit, size, within, partition, window FROM t AS emit")
    assert found.emit is None
    assert names(found) == [("t", "emit")]
    assert query("SELECT emit FROM t").emit is None
    assert names(query("SELECT * FROM stream JOIN within ON stream.a = within.a")) == [
        ("stream", "stream"),
        ("within", "within"),
    ]


def test_names_of_the_windows_bounds_are_found_where_they_stand() -> None:
    found = query(
        "SELECT WINDOWSTART, WINDOW_END e, date(windowend), x.window_start,"
        " coalesce(a, WINDOWSTART) AS windowstart FROM s x WINDOW TUMBLING (SIZE 1 DAY)"
        " GROUP BY a HAVING windowstart > '2024-01-01'"
    )
    marks = found.selects[0].marks
    assert [(mark.bound, mark.bare, at(found, mark.span)) for mark in marks] == [
        ("start", True, "WINDOWSTART"),
        ("end", False, "WINDOW_END"),
        ("end", False, "windowend"),
        ("start", False, "WINDOWSTART"),
        ("start", False, "windowstart"),
    ]
    assert [name for name, _ in found.first.projections] == [
        "window_start",
        "e",
        None,
        "window_start",
        "windowstart",
    ]


@pytest.mark.promise("sql", "A query without Penstock's clauses reaches Spark unchanged")
def test_what_sqlglot_cannot_read_is_not_refused() -> None:
    found = query("SELECT a ~~~ b c, x FROM t WHERE a :::: 1 GROUP BY x EMIT CHANGES")
    assert names(found) == [("t", "t")]
    assert found.emit == "changes"
