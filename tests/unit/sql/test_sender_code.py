"""Statements that bring code are refused by a server that was not started to run any."""

from __future__ import annotations

import pytest

from penstock.sql.catalog.catalog import Column, Function
from penstock.sql.continuous.functions import register
from penstock.sql.continuous.sender_code import check_statement
from penstock.sql.errors import NotAllowed
from penstock.sql.language.parser import parse
from penstock.sql.server.engine import Engine
from penstock.sql.settings import EngineSettings
from tests.sql.engines import MemoryLog


@pytest.mark.promise(
    "sql",
    "A server runs code from clients only if it was started with that option: Python functions, and "
    "Spark's ways to call Java or start a program",
)
@pytest.mark.parametrize(
    "text, column",
    [
        ("CREATE FUNCTION f (x INT) RETURNS INT LANGUAGE PYTHON AS $$ x $$;", 17),
        ("CREATE OR REPLACE FUNCTION f (x INT) RETURNS INT LANGUAGE PYTHON AS 'x';", 28),
        ("SELECT reflect('java.lang.System', 'exit', 1) FROM t;", 8),
        ("SELECT `Reflect` /* a */ ('java.lang.System', 'exit', 1) FROM t;", 8),
        ("SELECT system.builtin.java_method('java.lang.System', 'exit', 1) FROM t;", 23),
        ("SELECT x FROM t WHERE try_reflect('java.lang.System', 'exit', 1) = 1;", 23),
        ("SELECT IDENTIFIER('re' || upper('flect'))('java.lang.System', 'exit', 1) FROM t;", 8),
        ("SELECT TRANSFORM(a) USING 'sh -c id' AS (b STRING) FROM t;", 21),
        ('SELECT MAP a USING r"id" AS (b STRING) FROM t;', 14),
        ("SELECT * FROM (SELECT TRANSFORM(a) USING -- x\n 'id' AS (b STRING) FROM t) EMIT CHANGES;", 36),
        ("WITH x AS (SELECT TRANSFORM(a) USING 'id' AS (b INT) FROM t) SELECT * FROM x;", 32),
        ("CREATE STREAM s AS SELECT reflect('a', 'b') FROM t;", 27),
        ("CREATE TABLE s AS SELECT reflect('a', 'b'), count(*) FROM t GROUP BY 1;", 26),
        ("INSERT INTO s SELECT reflect('a', 'b') FROM t;", 22),
        ("INSERT INTO s VALUES (1, reflect('a', 'b'));", 26),
        ("EXPLAIN SELECT reflect('a', 'b') FROM t;", 16),
    ],
)
def test_what_brings_code_is_refused_at_its_place(text, column):
    (statement,) = parse(text)
    with pytest.raises(NotAllowed, match="penstock sql serve --allow-python-functions") as refused:
        check_statement(statement)
    assert refused.value.place is not None and refused.value.place.column == column


@pytest.mark.promise(
    "sql",
    "A server runs code from clients only if it was started with that option: Python functions, and "
    "Spark's ways to call Java or start a program",
)
@pytest.mark.parametrize(
    "text",
    [
        "SELECT transform(a, x -> x + 1) FROM t;",
        "SELECT reflect FROM t;",
        "SELECT 'reflect(', IDENTIFIER('a'), \"USING 'x'\" FROM t;",
        "SELECT a.x FROM a JOIN b USING (k);",
        "SELECT x FROM t -- reflect('a')\n;",
        "SELECT identifier(x) FROM t;",
        "DROP FUNCTION f;",
        "SHOW FUNCTIONS;",
        "SELECT f(x) FROM t;",
    ],
)
def test_other_statements_are_not(text):
    (statement,) = parse(text)
    check_statement(statement)


@pytest.mark.promise(
    "sql",
    "A server runs code from clients only if it was started with that option: Python functions, and "
    "Spark's ways to call Java or start a program",
)
def test_an_engine_refuses_them_unless_it_is_started_to_take_them():
    (statement,) = parse("CREATE FUNCTION f (x INT) RETURNS INT LANGUAGE PYTHON AS $$ x $$;")
    engine = Engine(EngineSettings("127.0.0.1:1", None, ""), MemoryLog())
    engine._spark = object()  # refused before anything is asked of it
    with pytest.raises(NotAllowed):
        engine.execute(statement, {})


@pytest.mark.promise(
    "sql",
    "A server runs code from clients only if it was started with that option: Python functions, and "
    "Spark's ways to call Java or start a program",
)
def test_a_function_that_another_server_took_is_not_run():
    ran = []
    function = Function("f", (Column("x", "INT"),), "INT", "x", "CREATE FUNCTION f …")
    with pytest.raises(NotAllowed, match="`f` is one"):
        register(ran, (function,), allowed=False)  # type: ignore[arg-type]
