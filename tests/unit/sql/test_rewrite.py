"""Spark gets a query without what is Penstock's own, and its complaints find back to what the user wrote."""

from __future__ import annotations

import re

import pytest

from penstock.sql.errors import BadSyntax, Place
from penstock.sql.language.parser import parse
from penstock.sql.language.spark_text import Rewritten, to_spark
from penstock.sql.language.statements import Query, Select


def query(text: str) -> Query:
    statement = parse(text)[-1]
    assert isinstance(statement, Select)
    return statement.query


def plain(rewritten: Rewritten) -> str:
    return re.sub(r"\s+", " ", rewritten.text).strip()


@pytest.mark.promise("sql", "A query without Penstock's clauses reaches Spark unchanged")
@pytest.mark.parametrize(
    "text",
    [
        "SELECT a, 'x;' /* c */ FROM t -- d\n WHERE b > 1 GROUP BY a HAVING count(*) > 1 ORDER BY a LIMIT 3",
        "WITH q AS (SELECT * FROM a) SELECT * FROM q UNION ALL SELECT * FROM `b-c`",
        "SELECT sum(a) OVER w FROM t WINDOW w AS (PARTITION BY b)",
        "FROM a |> WHERE x > 1",
    ],
)
def test_a_query_without_clauses_of_ours_stays_as_it_is(text: str) -> None:
    assert to_spark(query(text)).text == text


def test_a_tumbling_window_is_a_group() -> None:
    found = query(
        "SELECT a, count(*) n FROM s x WINDOW TUMBLING (SIZE 1 MINUTE) WHERE b GROUP BY a EMIT CHANGES"
    )
    assert plain(to_spark(found)) == (
        "SELECT a, count(*) n FROM s x WHERE b GROUP BY a, window(`x`.`__timestamp`, '1 MINUTE')"
    )


def test_a_window_without_group_by_gets_one_before_having_and_order() -> None:
    found = query(
        "SELECT count(*) n FROM s WINDOW HOPPING (SIZE 1 MINUTE, ADVANCE BY 30 SECONDS)"
        " WHERE b HAVING n > 1 ORDER BY n"
    )
    assert plain(to_spark(found)) == (
        "SELECT count(*) n FROM s WHERE b"
        " GROUP BY window(`s`.`__timestamp`, '1 MINUTE', '30 SECONDS') HAVING n > 1 ORDER BY n"
    )


def test_a_session_has_bounds_of_its_own_name() -> None:
    found = query("SELECT WINDOWSTART, WINDOWEND AS e, a FROM s WINDOW SESSION (5 MINUTES) GROUP BY a")
    assert plain(to_spark(found)) == (
        "SELECT session_window.start AS window_start, session_window.end AS e, a FROM s"
        " GROUP BY a, session_window(`s`.`__timestamp`, '5 MINUTES')"
    )


def test_the_time_of_a_relation_can_be_another_column() -> None:
    found = query("SELECT count(*) FROM s X WINDOW TUMBLING (SIZE 1 DAY)")
    assert "window(x.seen_at, '1 DAY')" in to_spark(found, time_columns={"x": "x.seen_at"}).text


def test_columns_of_the_window_are_added_where_they_are_not_selected() -> None:
    none = query("SELECT a, count(*) FROM s WINDOW TUMBLING (SIZE 1 DAY) GROUP BY a")
    assert "count(*), (window.start) AS `window_start`, (window.end) AS `window_end` FROM" in to_spark(
        none, window_columns=True
    ).text  # fmt: skip
    one = query("SELECT a, WINDOWSTART, count(*) FROM s WINDOW TUMBLING (SIZE 1 DAY) GROUP BY a")
    text = to_spark(one, window_columns=True).text
    assert text.count("window_start") == 1
    assert text.count("AS `window_end`") == 1
    without = query("SELECT a FROM s")
    assert to_spark(without, window_columns=True).text == "SELECT a FROM s"


def test_a_window_inside_is_rewritten_where_it_stands() -> None:
    found = query(
        "SELECT max(n) FROM (SELECT count(*) n, WINDOWSTART FROM s WINDOW TUMBLING (SIZE 1 DAY)) q"
        " GROUP BY window_start"
    )
    assert plain(to_spark(found, window_columns=True)) == (
        "SELECT max(n) FROM (SELECT count(*) n, window.start AS window_start FROM s"
        " GROUP BY window(`s`.`__timestamp`, '1 DAY')) q GROUP BY window_start"
    )


def test_within_bounds_the_time_between_the_records() -> None:
    found = query(
        "SELECT * FROM a x LEFT JOIN `b-c` WITHIN (5 MINUTES, 1 HOUR) GRACE PERIOD 1 DAY"
        " ON x.i = `b-c`.i OR x.j"
        " JOIN d ON d.k = x.k EMIT CHANGES"
    )
    assert plain(to_spark(found)) == (
        "SELECT * FROM a x LEFT JOIN `b-c` ON (x.i = `b-c`.i OR x.j)"
        " AND `b-c`.`__timestamp` >= `x`.`__timestamp` - INTERVAL 5 MINUTES"
        " AND `b-c`.`__timestamp` <= `x`.`__timestamp` + INTERVAL 1 HOUR JOIN d ON d.k = x.k"
    )


def test_partition_by_emit_and_the_limit_of_a_push_are_left_out() -> None:
    for end in ("PARTITION BY a, b EMIT CHANGES LIMIT 3", "PARTITION BY a, b LIMIT 3 EMIT CHANGES"):
        assert plain(to_spark(query(f"SELECT a FROM t WHERE b {end}"))) == "SELECT a FROM t WHERE b"
    assert plain(to_spark(query("SELECT a FROM t LIMIT 3"))) == "SELECT a FROM t LIMIT 3"


def test_columns_are_added_to_every_branch_of_a_union() -> None:
    found = query("SELECT a FROM s UNION ALL (SELECT a FROM (SELECT * FROM t) q)")
    rewritten = to_spark(found, extra=[("__key", "{source}.`__key`"), ("n", "1 + 1")])
    assert plain(rewritten) == (
        "SELECT a, (`s`.`__key`) AS `__key`, (1 + 1) AS `n` FROM s UNION ALL"
        " (SELECT a, (`q`.`__key`) AS `__key`, (1 + 1) AS `n` FROM (SELECT * FROM t) q)"
    )


def test_having_becomes_a_column() -> None:
    found = query(
        "SELECT a, count(*) n FROM s WINDOW TUMBLING (SIZE 1 DAY) GROUP BY a"
        " HAVING n > 1 AND WINDOWEND < now()"
    )
    assert found.first.having is not None
    rewritten = to_spark(found, extra=[("__keep", found.first.having)], drop_having=True)
    assert plain(rewritten) == (
        "SELECT a, count(*) n, (n > 1 AND window.end < now()) AS `__keep` FROM s"
        " GROUP BY a, window(`s`.`__timestamp`, '1 DAY')"
    )
    at = rewritten.text.index("now()")
    assert rewritten.place(at) == Place.of(found.text, found.text.index("now()"))


def test_a_name_with_dots_is_one_name() -> None:
    found = query("SELECT * FROM my.topic JOIN other.topic o ON topic.a = o.a")
    assert plain(to_spark(found)) == (
        "SELECT * FROM `my.topic` AS `topic` JOIN `other.topic` o ON topic.a = o.a"
    )


def test_columns_cannot_be_added_to_what_has_no_select_list() -> None:
    with pytest.raises(BadSyntax, match="must begin with SELECT"):
        to_spark(query("VALUES (1), (2)"), extra=[("a", "1")])


@pytest.mark.promise("sql", "Errors from Spark point to the position in the user's statement")
def test_every_place_in_the_new_text_is_known_in_the_old_one() -> None:
    text = (
        "SHOW TOPICS;\nSELECT a,\n  b\nFROM s x WINDOW TUMBLING (SIZE 1 MINUTE)\n"
        "WHERE regon = 1\nGROUP BY a PARTITION BY a EMIT CHANGES"
    )
    rewritten = to_spark(query(text), extra=[("k", "x.k")])
    for word in ("SELECT", "regon", "GROUP BY"):
        assert rewritten.place(rewritten.text.index(word)) == Place.of(text, text.index(word))
    # What was put in stands for the place where it was put.
    assert rewritten.place(rewritten.text.index("window(")) == Place.of(text, text.index(" PARTITION"))
    line = rewritten.text[: rewritten.text.index("regon")].count("\n") + 1
    assert rewritten.place_at(line, 6) == Place(5, 7)


def test_places_are_those_of_the_text_with_its_variables() -> None:
    text = "DEFINE c = 'a_rather_long_name';\nSELECT ${c}, nope\nFROM s EMIT CHANGES"
    rewritten = to_spark(query(text))
    assert rewritten.text == "SELECT a_rather_long_name, nope\nFROM s"
    assert rewritten.place(rewritten.text.index("nope")) == Place(2, 14)
    assert rewritten.place(rewritten.text.index("long")) == Place(2, 8)
    assert rewritten.place(rewritten.text.index("FROM")) == Place(3, 1)
