"""Every statement is read into its parts, and each part is where its span says."""

from __future__ import annotations

import pytest

from penstock.sql.language.parser import is_complete, parse
from penstock.sql.language.statements import (
    ControlQuery,
    CreateFunction,
    CreateRelation,
    Describe,
    Drop,
    Explain,
    InsertQuery,
    InsertValues,
    Select,
    SetProperty,
    SetVariable,
    Show,
    Statement,
)


def one(text: str) -> Statement:
    (statement,) = parse(text)
    return statement


def test_statements_are_set_apart_by_semicolons_outside_of_strings_comments_and_bodies() -> None:
    text = """
    SELECT ';' AS a, "x;y", `c;d` FROM t; -- a comment; with one
    /* and ; /* nested ; */ here ; */ SHOW TOPICS;;
    CREATE FUNCTION f() RETURNS INT LANGUAGE PYTHON AS $$ a = 1; return a $$
    """
    statements = parse(text)
    assert [type(each) for each in statements] == [Select, Show, CreateFunction]
    assert [each.text[slice(*each.span)].split()[0] for each in statements] == ["SELECT", "SHOW", "CREATE"]
    assert statements[1].text[slice(*statements[1].span)] == "SHOW TOPICS"


@pytest.mark.parametrize("text", ["", "  \n", ";", " ; ;\n", "-- nothing\n", "/* nothing */"])
def test_a_text_without_statements_gives_none(text: str) -> None:
    assert parse(text) == []


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("  -- only a comment", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; -- and\n", True),
        ("SELECT 1; SELECT", False),
        ("SELECT ';", False),
        ("SELECT 'it''s;", False),
        ("SELECT 'it\\'s;", False),
        ("SELECT 'it\\'s';", True),
        ("SELECT `a;", False),
        ("/* ; /* ; */", False),
        ("/* ; /* ; */ */", True),
        ("CREATE FUNCTION f() … AS $$\nreturn 1;", False),
        ("CREATE FUNCTION f() … AS $$\nreturn 1;\n$$;", True),
    ],
)
def test_a_shell_knows_when_a_statement_is_complete(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


def test_create_stream_with_columns_and_options() -> None:
    text = """CREATE STREAM IF NOT EXISTS `page-views` (
        user_id BIGINT KEY, Page VARCHAR, `odd name` STRUCT<x INT, y: ARRAY<MAP<STRING, BYTES>>>,
        price DECIMAL(10, 2), code CHAR(3), at TIMESTAMP
    ) WITH (topic = 'page-views', FORMAT = "json", partitions = 3, kafka.acks = true, 'a.b-c' = -1.5)"""
    statement = one(text)
    assert isinstance(statement, CreateRelation)
    assert (statement.kind, statement.name, statement.if_not_exists, statement.or_replace) == (
        "stream", "page-views", True, False,
    )  # fmt: skip
    assert [(each.name, each.type, each.key) for each in statement.columns] == [
        ("user_id", "BIGINT", True),
        ("Page", "STRING", False),
        ("odd name", "STRUCT<x: INT, y: ARRAY<MAP<STRING, BINARY>>>", False),
        ("price", "DECIMAL(10,2)", False),
        ("code", "CHAR(3)", False),
        ("at", "TIMESTAMP", False),
    ]
    assert statement.options == {
        "topic": "page-views", "format": "json", "partitions": "3", "kafka.acks": "true", "a.b-c": "-1.5",
    }  # fmt: skip
    assert text[slice(*statement.name_span)] == "`page-views`"
    assert [text[slice(*each.span)] for each in statement.columns][2] == "`odd name`"
    assert text[slice(*statement.option_spans["format"])] == "FORMAT"
    assert statement.query is None


def test_primary_keys_stand_at_the_column_or_after_all_of_them() -> None:
    for columns in ("a INT PRIMARY KEY, b INT PRIMARY KEY, c INT", "a INT, b INT, c INT, PRIMARY KEY (a, b)"):
        statement = one(f"CREATE TABLE t ({columns}) WITH (topic='t')")
        assert isinstance(statement, CreateRelation)
        assert statement.kind == "table"
        assert [each.key for each in statement.columns] == [True, True, False]


def test_create_as_select_keeps_the_query_with_its_place() -> None:
    text = (
        "CREATE OR REPLACE TABLE t WITH (format='avro') AS SELECT a, count(*) FROM s GROUP BY a EMIT FINAL;"
    )
    statement = one(text)
    assert isinstance(statement, CreateRelation)
    assert statement.or_replace
    assert statement.query is not None
    assert text[slice(*statement.query.span)] == "SELECT a, count(*) FROM s GROUP BY a"
    assert statement.query.emit == "final"


def test_a_common_table_may_stand_after_as() -> None:
    statement = one("CREATE STREAM x AS WITH c AS (SELECT * FROM s) SELECT * FROM c")
    assert isinstance(statement, CreateRelation)
    assert statement.query is not None
    assert [each.name for each in statement.query.sources] == ["s"]


def test_insert_values() -> None:
    text = "INSERT INTO `a-b` (x, `y z`) VALUES (1, array(1, 2)), ('it''s', NULL)"
    statement = one(text)
    assert isinstance(statement, InsertValues)
    assert (statement.target, statement.columns) == ("a-b", ("x", "y z"))
    assert [text[slice(*span)] for span in statement.column_spans] == ["x", "`y z`"]
    assert [[text[slice(*value)] for value in row] for row in statement.rows] == [
        ["1", "array(1, 2)"],
        ["'it''s'", "NULL"],
    ]


def test_insert_select_with_options_or_with_common_tables() -> None:
    first = one("INSERT INTO x WITH (starting='latest') SELECT * FROM m")
    second = one("INSERT INTO x WITH q AS (SELECT * FROM m) SELECT * FROM q")
    third = one("INSERT INTO x (SELECT * FROM m)")
    assert (
        isinstance(first, InsertQuery) and isinstance(second, InsertQuery) and isinstance(third, InsertQuery)
    )
    assert first.options == {"starting": "latest"}
    assert second.options == {}
    for each in (first, second, third):
        assert [source.name for source in each.query.sources] == ["m"]


def test_create_function_keeps_the_body_as_it_is() -> None:
    text = (
        "CREATE OR REPLACE FUNCTION f (x INT, y ARRAY<VARCHAR>) RETURNS STRUCT<a INT>\n"
        "LANGUAGE PYTHON AS $$\n  return ';' '$' # \\n\n$$"
    )
    statement = one(text)
    assert isinstance(statement, CreateFunction)
    assert (statement.name, statement.returns, statement.language) == ("f", "STRUCT<a: INT>", "python")
    assert [(each.name, each.type) for each in statement.parameters] == [("x", "INT"), ("y", "ARRAY<STRING>")]
    assert statement.body == "\n  return ';' '$' # \\n\n"
    assert statement.or_replace
    other = one("CREATE FUNCTION g() LANGUAGE PYTHON RETURNS INT AS 'return 1'")
    assert isinstance(other, CreateFunction)
    assert (other.body, other.parameters, other.returns) == ("return 1", (), "INT")


@pytest.mark.parametrize(
    ("text", "what", "extended"),
    [
        ("SHOW TOPICS", "topics", False),
        ("LIST STREAMS EXTENDED", "streams", True),
        ("show all topics", "topics", False),
        ("SHOW TABLES", "tables", False),
        ("SHOW QUERIES", "queries", False),
        ("SHOW FUNCTIONS", "functions", False),
        ("SHOW VARIABLES", "variables", False),
        ("SHOW PROPERTIES", "properties", False),
        ("SET", "properties", False),
    ],
)
def test_show(text: str, what: str, extended: bool) -> None:
    statement = one(text)
    assert isinstance(statement, Show)
    assert (statement.what, statement.extended) == (what, extended)


@pytest.mark.parametrize(
    ("text", "name", "extended", "function"),
    [
        ("DESCRIBE t", "t", False, False),
        ("DESC EXTENDED `a-b`", "a-b", True, False),
        ("DESCRIBE t EXTENDED", "t", True, False),
        ("DESCRIBE csas_page-views_3", "csas_page-views_3", False, False),
        ("DESCRIBE FUNCTION f", "f", False, True),
        ("DESCRIBE STREAM s", "s", False, False),
        ("DESCRIBE function", "function", False, False),
        ("DESCRIBE extended", "extended", False, False),
        ("DESCRIBE my.topic", "my.topic", False, False),
    ],
)
def test_describe(text: str, name: str, extended: bool, function: bool) -> None:
    statement = one(text)
    assert isinstance(statement, Describe)
    assert (statement.name, statement.extended, statement.function) == (name, extended, function)


def test_explain_of_a_statement_or_of_a_query_by_its_id() -> None:
    statement = one("EXPLAIN CREATE OR REPLACE STREAM x AS SELECT 1")
    assert isinstance(statement, Explain)
    assert isinstance(statement.statement, CreateRelation)
    assert statement.text[slice(*statement.statement.span)] == "CREATE OR REPLACE STREAM x AS SELECT 1"
    for text in ("EXPLAIN csas_x_1", "EXPLAIN 'csas_x_1'", "EXPLAIN `csas_x_1`", "EXPLAIN QUERY csas_x_1"):
        by_id = one(text)
        assert isinstance(by_id, Explain)
        assert (by_id.statement, by_id.query_id) == (None, "csas_x_1")
    dashed = one("EXPLAIN csas_page-views_1")
    assert isinstance(dashed, Explain)
    assert dashed.query_id == "csas_page-views_1"


@pytest.mark.parametrize(
    ("text", "action", "query_id"),
    [
        ("PAUSE csas_x_1", "pause", "csas_x_1"),
        ("RESUME QUERY csas_x_1", "resume", "csas_x_1"),
        ("TERMINATE ALL", "terminate", None),
        ("TERMINATE csas_page-views_12", "terminate", "csas_page-views_12"),
        ("TERMINATE `csas_page-views_12`", "terminate", "csas_page-views_12"),
        ("PAUSE query", "pause", "query"),
    ],
)
def test_queries_are_controlled_by_id(text: str, action: str, query_id: str | None) -> None:
    statement = one(text)
    assert isinstance(statement, ControlQuery)
    assert (statement.action, statement.query_id) == (action, query_id)


def test_drop() -> None:
    statement = one("DROP STREAM IF EXISTS `a-b` DELETE TOPIC")
    assert isinstance(statement, Drop)
    assert (statement.kind, statement.name, statement.if_exists, statement.delete_topic) == (
        "stream", "a-b", True, True,
    )  # fmt: skip
    function = one("DROP FUNCTION f")
    assert isinstance(function, Drop)
    assert (function.kind, function.if_exists, function.delete_topic) == ("function", False, False)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("SET 'auto.offset.reset' = 'earliest'", "auto.offset.reset", "earliest"),
        ("SET auto.offset.reset = earliest", "auto.offset.reset", "earliest"),
        ("SET spark.sql.shuffle.partitions = 4", "spark.sql.shuffle.partitions", "4"),
        ("SET x = a b, c", "x", "a b, c"),
        ("UNSET 'auto.offset.reset'", "auto.offset.reset", None),
    ],
)
def test_properties(text: str, name: str, value: str | None) -> None:
    statement = one(text)
    assert isinstance(statement, SetProperty)
    assert (statement.name, statement.value) == (name, value)


def test_variables_are_replaced_in_what_follows_but_not_in_comments_and_bodies() -> None:
    text = (
        "DEFINE v = 'pay';\n"
        "CREATE STREAM ${v}_s (a INT) WITH (topic = 'x-${V}' /* ${nope} */); -- ${nope}\n"
        "CREATE FUNCTION f() RETURNS INT LANGUAGE PYTHON AS $$ return '${nope}' $$;\n"
        "SELECT a FROM `${v}_s` WHERE b = '${w}';\n"
        "UNDEFINE v;"
    )
    define, create, function, select, undefine = parse(text, {"w": "1;2"})
    assert isinstance(define, SetVariable) and (define.name, define.value) == ("v", "pay")
    assert isinstance(undefine, SetVariable) and (undefine.name, undefine.value) == ("v", None)
    assert isinstance(create, CreateRelation)
    assert (create.name, create.options["topic"]) == ("pay_s", "x-pay")
    assert isinstance(function, CreateFunction) and "${nope}" in function.body
    assert isinstance(select, Select)
    assert select.query.sources[0].name == "pay_s"
    assert select.text[slice(*select.span)] == "SELECT a FROM `pay_s` WHERE b = '1;2'"


def test_a_text_in_which_variables_were_replaced_can_be_read_without_replacing_again() -> None:
    (statement,) = parse("SELECT '${x}'", None)
    assert statement.text[slice(*statement.span)] == "SELECT '${x}'"


def test_strings_are_unquoted_as_spark_does() -> None:
    for written, value in [
        ("'it''s'", "it's"),
        ("'it\\'s'", "it's"),
        ('"say ""x"""', 'say "x"'),
        ("'a\\tb\\\\c'", "a\tb\\c"),
        ("r'a\\tb'", "a\\tb"),
        ("'\\u00e9'", "é"),
        ("'\\\\''x'", "\\'x"),
    ]:
        statement = one(f"SET x = {written}")
        assert isinstance(statement, SetProperty)
        assert statement.value == value
