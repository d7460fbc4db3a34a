"""SQL files of a pipeline: statements are found, read around their query, and the query is left as it is."""

from __future__ import annotations

import pytest

from penstock.pipelines.errors import BadDefinition
from penstock.pipelines.project.graph import Graph, Kind
from penstock.pipelines.project.sql import read_sql


def read(text: str) -> Graph:
    graph = Graph("spark_catalog", "default")
    read_sql(text, "a.sql", graph)
    graph.resolve_targets()
    return graph


def table(name: str) -> tuple[str, str, str]:
    return ("spark_catalog", "default", name)


def test_semicolons_in_strings_names_and_comments_do_not_end_a_statement():
    graph = read(
        """-- one; two
        CREATE STREAMING TABLE a AS SELECT 'x;''y' AS `b;c`, "it\\";" /* ; /* nested ; */ ; */ FROM STREAM s;
        CREATE STREAMING TABLE b AS SELECT 2 FROM STREAM a"""
    )
    assert list(graph.flows) == ["a", "b"]
    assert graph.flows["a"].select.strip().endswith("FROM STREAM s")
    assert "`b;c`" in graph.flows["a"].select


def test_all_clauses_of_a_streaming_table_are_read():
    graph = read(
        """CREATE STREAMING TABLE IF NOT EXISTS t (a INT, b DECIMAL(10, 2)) USING orc
        PARTITIONED BY (`a`) COMMENT 'what''s in it' TBLPROPERTIES ('k' = 'v', x.y = 'z')
        AS SELECT * FROM STREAM(s)"""
    )
    dataset = graph.datasets[table("t")]
    assert dataset.kind is Kind.STREAMING_TABLE
    assert dataset.schema == "a INT, b DECIMAL(10, 2)"
    assert dataset.format == "orc"
    assert dataset.partition_by == ("a",)
    assert dataset.comment == "what's in it"
    assert dataset.properties == {"k": "v", "x.y": "z"}
    assert graph.flows["t"].select.strip() == "SELECT * FROM STREAM(s)"
    assert graph.flows["t"].by_default


def test_properties_and_columns_are_cut_at_commas_outside_of_strings_and_parentheses():
    graph = read(
        """CREATE STREAMING TABLE t PARTITIONED BY (bucket(4, a), `b,c`)
        TBLPROPERTIES ('a,b' = 'it''s, one', c.d 5, "e" -1.5) AS SELECT 1 FROM STREAM s"""
    )
    dataset = graph.datasets[table("t")]
    assert dataset.partition_by == ("bucket(4, a)", "b,c")
    assert dataset.properties == {"a,b": "it's, one", "c.d": "5", "e": "-1.5"}


def test_a_name_with_a_backtick_is_quoted_again_in_the_statements_made_of_it():
    graph = read("CREATE STREAMING TABLE `a``b` AS SELECT 1 FROM STREAM s")
    assert graph.datasets[table("a`b")].sql_name == "`spark_catalog`.`default`.`a``b`"


def test_views_flows_and_queries_that_begin_with_WITH():
    graph = read(
        """CREATE MATERIALIZED VIEW m AS WITH x AS (SELECT 1) SELECT * FROM x;
        CREATE TEMPORARY VIEW v AS SELECT 1;
        create streaming table t;
        CREATE FLOW f COMMENT 'c' AS INSERT INTO t BY NAME SELECT * FROM STREAM v;
        CREATE FLOW g AS INSERT INTO t SELECT * FROM STREAM(v);"""
    )
    assert graph.datasets[table("m")].kind is Kind.MATERIALIZED_VIEW
    assert graph.datasets[("v",)].kind is Kind.TEMPORARY_VIEW
    assert graph.flows["m"].select.strip().startswith("WITH x")
    assert graph.flows["f"].target == graph.flows["g"].target == table("t")
    graph.check()


def test_SET_and_USE_hold_for_what_comes_after_them():
    graph = read(
        """CREATE TEMPORARY VIEW a AS SELECT 1;
        SET spark.sql.shuffle.partitions = 7; USE SCHEMA other;
        CREATE STREAMING TABLE b AS SELECT 1 FROM STREAM x;
        USE c2.db2;
        CREATE STREAMING TABLE c AS SELECT 1 FROM STREAM x"""
    )
    assert graph.flows["a"].conf == {}
    b = graph.flows["spark_catalog.other.b"]
    assert (b.conf, b.database) == ({"spark.sql.shuffle.partitions": "7"}, "other")
    assert ("c2", "db2", "c") in graph.datasets


def test_a_query_keeps_its_line_and_column_so_that_sparks_messages_fit_the_file():
    text = "\n\nCREATE STREAMING TABLE t\nAS   SELECT nope\nFROM STREAM s;"
    select = read(text).flows["t"].select
    at = text.index("SELECT")
    assert select.splitlines()[3].index("SELECT") == at - text.rindex("\n", 0, at) - 1
    assert read(text).flows["t"].where.line == 3


@pytest.mark.promise("pipelines", "An error in a project is reported in one line with its position")
@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("SELECT 1", 1, "creates STREAMING TABLE"),
        ("\nINSERT INTO t VALUES (1)", 2, "creates STREAMING TABLE"),
        ("CREATE TABLE t (a INT)", 1, "STREAMING TABLE"),
        ("CREATE MATERIALIZED VIEW m", 1, "needs AS"),
        ("CREATE STREAMING TABLE t AS", 1, "query is missing"),
        ("CREATE STREAMING TABLE t\nLOCATION '/x' AS SELECT 1", 2, "unexpected 'LOCATION'"),
        ("CREATE STREAMING t AS SELECT 1", 1, "TABLE is missing"),
        ("CREATE STREAMING TABLE t (a INT AS SELECT 1", 1, "never closed"),
        ("CREATE FLOW f AS SELECT 1", 1, "INSERT is missing"),
        ("\n\nCREATE VIEW v AS SELECT 'x", 3, "never ends"),
        ("/* CREATE", 1, "never ends"),
        ("CREATE STREAMING TABLE t FLOW AUTO CDC FROM STREAM(s) KEYS (a) SEQUENCE BY b", 1, "--once"),
        ("CREATE FLOW f AS AUTO CDC INTO t FROM STREAM(s) KEYS (a) SEQUENCE BY b", 1, "--once"),
        ("SET", 1, "key = value"),
        ("CREATE STREAMING TABLE 5.'x' AS SELECT 1", 1, "name is missing"),
    ],
)
def test_a_statement_that_cannot_be_read_is_named_by_its_line(text: str, line: int, says: str):
    with pytest.raises(BadDefinition) as raised:
        read(text)
    assert says in str(raised.value)
    assert raised.value.where is not None
    assert (raised.value.where.file, raised.value.where.line) == ("a.sql", line)
