"""How queries are run, and what the keys of their outputs are."""

from __future__ import annotations

import pytest

from penstock.sql.catalog.catalog import Relation
from penstock.sql.continuous.planning import KEEP, TIME, Shape, key_columns, output_names, shape, split_list
from penstock.sql.errors import Clash
from penstock.sql.language.parser import parse
from penstock.sql.language.statements import Column, CreateRelation, Query, Select

CLICKS = Relation("clicks", "stream", "clicks", (Column("page", "STRING"), Column("n", "INT")))
VIEWS = Relation("views", "stream", "views", (Column("page", "STRING"),), options={"watermark": "5 minutes"})
PAGES = Relation("pages", "table", "pages", (Column("page", "STRING"), Column("title", "STRING")), ("page",))
FILES = Relation("files", "table", None, (Column("page", "STRING"),), ("page",), path="/tables/files")
TAPS = Relation("taps", "stream", "taps", (Column("page", "STRING"),))
ALL = {each.name: each for each in (CLICKS, VIEWS, PAGES, FILES, TAPS)}


def query_of(text: str) -> Query:
    statement = parse(text)[0]
    assert isinstance(statement, CreateRelation | Select)
    assert statement.query is not None
    return statement.query


def planned(text: str) -> Shape:
    statement = parse(text)[0]
    query = query_of(text)
    sources = {each.name: ALL[each.name] for each in query.sources}
    if isinstance(statement, Select):
        return shape(query, sources, None, push=True)
    assert isinstance(statement, CreateRelation)
    return shape(query, sources, statement.kind)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("CREATE STREAM s AS SELECT page FROM clicks", "append"),
        ("CREATE TABLE t AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page", "update"),
        ("CREATE TABLE t AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page EMIT FINAL", "append"),
        ("CREATE TABLE t AS SELECT page, n FROM clicks PARTITION BY page", "append"),
        ("CREATE TABLE t AS SELECT page, COUNT(*) AS n FROM clicks WINDOW SESSION (5 MINUTES) GROUP BY page",
         "complete"),
        ("CREATE STREAM s AS SELECT COUNT(*) AS n FROM clicks WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY page",
         "append"),
        ("CREATE TABLE t AS SELECT title, COUNT(*) AS n FROM pages GROUP BY title", "refresh"),
        ("CREATE TABLE t AS SELECT p.title, COUNT(*) AS n FROM clicks c JOIN pages p ON c.page = p.page "
         "GROUP BY p.title", "update"),
        ("SELECT page, COUNT(*) FROM clicks GROUP BY page EMIT CHANGES", "update"),
        ("SELECT page FROM pages EMIT CHANGES", "append"),
    ],
)  # fmt: skip
def test_how_rows_come(text: str, mode: str) -> None:
    assert planned(text).mode == mode


def test_tables_beside_a_stream_are_read_as_they_stand() -> None:
    found = planned(
        "CREATE STREAM s AS SELECT c.page, p.title FROM clicks c LEFT JOIN pages p ON c.page = p.page"
    )
    assert found.streams == ("clicks",)
    assert planned("SELECT title FROM pages EMIT CHANGES").streams == ("pages",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CREATE STREAM s AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page", "CREATE TABLE"),
        ("CREATE STREAM s AS SELECT page FROM pages", "CREATE TABLE"),
        ("SELECT page FROM files EMIT CHANGES", "needs a stream"),
        ("SELECT a.page FROM pages a JOIN files b ON a.page = b.page EMIT CHANGES", "needs a stream"),
    ],
)
def test_what_cannot_be_run_says_what_can(text: str, said: str) -> None:
    with pytest.raises(Clash, match=said) as caught:
        planned(text)
    assert caught.value.place is not None


@pytest.mark.promise(
    "sql",
    "The windows of a table end, so that its state does not grow forever: by default 24 hours after "
    "their end if no grace period is given; if several grace periods apply to a source, the longest "
    "counts",
)
def test_how_late_records_may_be() -> None:
    tumbling = (
        "CREATE {} t AS SELECT page, COUNT(*) AS n FROM {} WINDOW TUMBLING (SIZE 1 MINUTE{}) GROUP BY page"
    )
    # Without one the windows of a table would be kept as state forever.
    assert planned(tumbling.format("TABLE", "clicks", "")).watermarks == {"clicks": "24 hours"}
    by_spark = "CREATE TABLE t AS SELECT window(at, '1 hour') AS w, COUNT(*) AS n FROM clicks GROUP BY 1"
    assert planned(by_spark).watermarks == {"clicks": "24 hours"}
    assert planned("CREATE TABLE t AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page").watermarks == {}
    assert planned(tumbling.format("STREAM", "clicks", "")).watermarks == {"clicks": "24 hours"}
    assert planned(tumbling.format("TABLE", "views", "")).watermarks == {"views": "5 minutes"}
    grace = planned(tumbling.format("TABLE", "views", ", GRACE PERIOD 10 SECONDS"))
    assert grace.watermarks == {"views": "10 SECONDS"}
    joined = planned(
        "CREATE STREAM s AS SELECT c.n FROM clicks c JOIN views v WITHIN 1 HOUR ON c.page = v.page"
    )
    assert joined.watermarks == {"clicks": "24 hours", "views": "5 minutes"}


@pytest.mark.promise(
    "sql",
    "The windows of a table end, so that its state does not grow forever: by default 24 hours after "
    "their end if no grace period is given; if several grace periods apply to a source, the longest "
    "counts",
)
def test_each_source_has_the_grace_of_what_reads_it_and_of_several_the_longest() -> None:
    joined = (
        "CREATE STREAM s AS SELECT c.page, COUNT(*) AS n FROM clicks c JOIN {} ON c.page = v.page {} "
        "GROUP BY c.page"
    )
    window = "WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD {})"
    within = "views v WITHIN 1 HOUR GRACE PERIOD {}"
    both = joined.format(within.format("10 MINUTES"), window.format("30 SECONDS"))
    assert planned(both).watermarks == {"clicks": "10 MINUTES", "views": "10 MINUTES"}
    other = joined.format(within.format("10 SECONDS"), window.format("2 MINUTES"))
    assert planned(other).watermarks == {"clicks": "2 MINUTES", "views": "10 SECONDS"}
    # What says nothing has the relation's own, or the longest that is said at all.
    silent = joined.format("views v WITHIN 1 HOUR", window.format("30 SECONDS"))
    assert planned(silent).watermarks == {"clicks": "30 SECONDS", "views": "5 minutes"}
    taps = silent.replace("views v", "taps v")
    assert planned(taps).watermarks == {"clicks": "30 SECONDS", "taps": "30 SECONDS"}
    inner = "CREATE STREAM s AS SELECT page, COUNT(*) AS n FROM (SELECT * FROM views) v {} GROUP BY page"
    assert planned(inner.format(window.format("30 SECONDS"))).watermarks == {"views": "30 SECONDS"}


COUNTS = "SELECT page, COUNT(*) AS n FROM clicks WINDOW TUMBLING (SIZE 1 HOUR{}) GROUP BY page"


@pytest.mark.promise(
    "sql",
    "The windows of a table end, so that its state does not grow forever: by default 24 hours after "
    "their end if no grace period is given; if several grace periods apply to a source, the longest "
    "counts",
)
@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t AS SELECT * FROM ({}) x PARTITION BY page",
        "CREATE TABLE t AS SELECT page, n AS m FROM (SELECT * FROM ({}) x WHERE n > 1) y PARTITION BY page",
        "CREATE TABLE t AS WITH x AS ({}) SELECT * FROM x PARTITION BY page",
        "CREATE STREAM t AS SELECT * FROM ({}) x PARTITION BY page",
        "CREATE STREAM t AS WITH x AS ({}) SELECT * FROM x PARTITION BY page",
        "SELECT * FROM ({}) x EMIT CHANGES",
    ],
)
def test_windows_of_subqueries_end_too(text: str) -> None:
    assert planned(text.format(COUNTS.format(""))).watermarks == {"clicks": "24 hours"}
    grace = planned(text.format(COUNTS.format(", GRACE PERIOD 10 SECONDS")))
    assert grace.watermarks == {"clicks": "10 SECONDS"}


def test_a_stream_that_is_joined_with_itself_forgets_what_is_no_longer_near() -> None:
    joined = "CREATE STREAM s AS SELECT a.n FROM clicks a JOIN clicks b WITHIN 1 HOUR ON a.page = b.page"
    assert planned(joined).watermarks == {"clicks": "24 hours"}


def test_having_is_a_column_where_rows_can_go() -> None:
    table = "CREATE TABLE t AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page HAVING COUNT(*) < 5"
    found = planned(table)
    assert found.drop_having
    assert KEEP in dict(found.extra)
    final = planned(f"{table} EMIT FINAL")
    assert not final.drop_having
    assert KEEP not in dict(final.extra)


@pytest.mark.parametrize(
    ("text", "key", "names"),
    [
        ("CREATE STREAM s AS SELECT n FROM clicks", ("{source}.`__key`",), None),
        ("CREATE STREAM s AS SELECT n FROM clicks PARTITION BY page", ("page",), None),
        ("CREATE STREAM s AS SELECT n FROM clicks c PARTITION BY c.page, UPPER(page) AS loud, n + 1",
         ("c.page", "UPPER(page)", "n + 1"), ("page", "loud", "key_3")),
        ("CREATE STREAM s AS SELECT COUNT(*) AS n FROM clicks WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY page",
         ("page",), None),
        ("CREATE STREAM s AS SELECT x.n FROM (SELECT n FROM clicks) x", (), None),
        ("CREATE STREAM s AS SELECT n FROM clicks UNION ALL SELECT 1 FROM views",
         ("{source}.`__key`",), None),
    ],
)  # fmt: skip
def test_the_key_of_a_stream(text: str, key: tuple[str, ...], names: tuple[str, ...] | None) -> None:
    found = planned(text)
    extra = dict(found.extra)
    assert (
        tuple(each if isinstance(each := extra[name], str) else text[slice(*each)] for name in found.key)
        == key
    )
    if names is not None:
        assert found.key_names == names


def test_the_time_of_what_is_written() -> None:
    assert dict(planned("CREATE STREAM s AS SELECT n FROM clicks").extra)[TIME] == "{source}.`__timestamp`"
    window = "CREATE STREAM s AS SELECT COUNT(*) AS n FROM clicks WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY page"
    assert "WINDOWEND" in str(dict(planned(window).extra)[TIME])
    assert TIME not in dict(planned("CREATE STREAM s AS SELECT n FROM (SELECT n FROM clicks)").extra)


@pytest.mark.parametrize(
    ("text", "columns", "key"),
    [
        ("SELECT page, COUNT(*) AS n FROM clicks GROUP BY page", ["page", "n"], ("page",)),
        ("SELECT UPPER(page), COUNT(*) AS n FROM clicks GROUP BY upper( `page` )",
         ["col_1", "n"], ("col_1",)),
        ("SELECT UPPER(page) AS p, COUNT(*) AS n FROM clicks GROUP BY 1", ["p", "n"], ("p",)),
        ("SELECT UPPER(page) AS p, COUNT(*) AS n FROM clicks GROUP BY p", ["p", "n"], ("p",)),
        ("SELECT c.page AS p, COUNT(*) AS n FROM clicks c GROUP BY page", ["p", "n"], ("p",)),
        ("SELECT COUNT(*) AS n, page FROM clicks WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY page",
         ["n", "page", "window_start", "window_end"], ("page", "window_start", "window_end")),
        ("SELECT COUNT(*) AS n FROM clicks WINDOW TUMBLING (SIZE 1 HOUR)",
         ["n", "window_start", "window_end"], ("window_start", "window_end")),
        ("SELECT p.page AS id, p.title FROM pages p", ["id", "title"], ("id",)),
        ("SELECT * FROM pages", ["page", "title"], ("page",)),
        ("SELECT title, page FROM (SELECT *, 1 AS one FROM pages) WHERE one = 1",
         ["title", "page"], ("page",)),
        ("SELECT COUNT(*) AS n FROM pages", ["n"], ()),
    ],
)  # fmt: skip
def test_the_key_of_a_table_is_among_its_columns(text: str, columns: list[str], key: tuple[str, ...]) -> None:
    assert key_columns(query_of(text), ALL, columns) == key


@pytest.mark.parametrize(
    ("text", "columns", "said"),
    [
        ("SELECT COUNT(*) AS n FROM clicks GROUP BY page", ["n"], "`page` is part of the table's key"),
        ("SELECT title FROM pages", ["title"], "`page` is part of the table's key"),
        ("SELECT page FROM clicks", ["page"], "PARTITION BY"),
    ],
)
def test_a_table_without_its_key_is_refused(text: str, columns: list[str], said: str) -> None:
    with pytest.raises(Clash, match=said):
        key_columns(query_of(text), ALL, columns)


def test_columns_without_a_name_are_called_by_their_place() -> None:
    query = query_of("SELECT page, UPPER(page), n + 1 AS m FROM clicks")
    assert output_names(query, ["page", "upper(page)", "m"]) == ["page", "col_2", "m"]
    with pytest.raises(Clash, match="Duplicate column `page`"):
        output_names(query_of("SELECT a.page, b.page FROM clicks a, pages b"), ["page", "page"])


def test_what_a_star_brings_keeps_its_name() -> None:
    query = query_of("SELECT n + 1, *, page || '!', n AS `m-m` FROM clicks")
    found = ["(n + 1)", "order-no", "no 2", "concat(page, !)", "m-m"]
    assert output_names(query, found) == ["col_1", "order-no", "no 2", "col_4", "m-m"]
    assert output_names(query_of("SELECT * FROM clicks"), ["order-no", "n"]) == ["order-no", "n"]


def test_lists_are_cut_at_their_own_commas() -> None:
    assert split_list("a, f(b, c)[1, 2], 'x, (y', `d,e`") == ["a", "f(b, c)[1, 2]", "'x, (y'", "`d,e`"]
