"""A statement that cannot be read is told with line and column, and what would be right."""

from __future__ import annotations

import pytest

from penstock.sql.errors import BadSyntax, Place, SqlError
from penstock.sql.language.parser import parse

CASES = [
    ("CREAT STREAM x", 1, 1, "expected a statement, not `CREAT`; did you mean `CREATE`?"),
    ("SELECT 1;\n\n  SHWO TOPICS", 3, 3, "did you mean `SHOW`?"),
    (
        "CREATE STREM x",
        1,
        8,
        "FUNCTION or OR REPLACE, not `STREM`; did you mean `STREAM`?",
    ),
    ("CREATE OR STREAM x", 1, 11, "expected REPLACE"),
    ("CREATE OR REPLACE STREAM IF NOT EXISTS x AS SELECT 1", 1, 26, "exclude each other"),
    ("CREATE STREAM 'x' AS SELECT 1", 1, 15, "names are quoted by backticks: `x`"),
    ("CREATE STREAM page-views (a INT)", 1, 15, "a name with a dash is quoted by backticks: `page-views`"),
    ("SELECT *\nFROM page-views v", 2, 6, "`page-views`"),
    ("CREATE STREAM x (a IMT)", 1, 20, "expected a type, not `IMT`; did you mean `INT`?"),
    ("CREATE STREAM x (a INT b INT)", 1, 24, "expected KEY, PRIMARY KEY, a comma or ), not `b`"),
    ("CREATE STREAM x (a INT, A INT)", 1, 25, "column `A` is listed twice"),
    ("CREATE STREAM x (a STRUCT<b>)", 1, 28, "expected a type"),
    ("CREATE STREAM x (a INT, ", 1, 24, "the statement ends where the name of a column is expected"),
    ("CREATE TABLE x (a INT, PRIMARY KEY (b))", 1, 37, "expected a column that is named before"),
    ("CREATE STREAM x (a INT) WITH (topic = x)", 1, 39, "a text is quoted"),
    ("CREATE STREAM x (a INT) WITH (topic='x', TOPIC='y')", 1, 42, "option `topic` is given twice"),
    ("CREATE STREAM x (a INT) WITH (topic 'x')", 1, 37, "expected = and the value of `topic`"),
    ("CREATE STREAM x (a INT) AS SELECT 1", 1, 16, "not both"),
    ("CREATE TABLE t AS SELEC 1", 1, 19, "expected SELECT, not `SELEC`; did you mean `SELECT`?"),
    ("CREATE TABLE t WIHT (a=1)", 1, 16, "did you mean `WITH`?"),
    ("INSERT x VALUES (1)", 1, 8, "expected INTO"),
    ("INSERT INTO x VALUE (1)", 1, 15, "did you mean `VALUES`?"),
    ("INSERT INTO x VALUES (1, 2), (3)", 1, 30, "this row has 1 values, and 2 are expected"),
    ("INSERT INTO x (a) VALUES (1, 2)", 1, 26, "this row has 2 values, and 1 are expected"),
    ("INSERT INTO x VALUES (1, )", 1, 26, "expected a value"),
    ("INSERT INTO x (a) SELECT 1", 1, 19, "give them with AS"),
    ("SELECT 'abc", 1, 8, "this string never ends"),
    ("SELECT `abc\n", 1, 8, "this name never ends"),
    ("SELECT 1 /* /* */", 1, 10, "this comment never ends"),
    ("CREATE FUNCTION f() RETURNS INT LANGUAGE PYTHON AS $$ x", 1, 52, "this body never ends"),
    ("SELECT (1", 1, 8, "this ( is never closed"),
    ("SELECT 1)", 1, 9, "this ) closes nothing"),
    ("SELECT (1]", 1, 10, "expected ), not `]`"),
    ("SELECT * FROM", 1, 14, "expected the name of a stream or table"),
    ("SELECT * FROM WHERE a", 1, 15, "expected the name of a stream or table, not `WHERE`"),
    ("SELECT * FROM parquet.`/a/path` p", 1, 15, "a query reads no files by their path"),
    ("SELECT * FROM a JOIN text . `s3a://b`", 1, 22, "a query reads no files by their path"),
    ("SELECT * FROM IDENTIFIER('text.`/a`')", 1, 15, "cannot be computed with IDENTIFIER"),
    ("SELECT (SELECT 1 FROM identifier(a || b))", 1, 23, "cannot be computed with IDENTIFIER"),
    ("SELECT * FROM t EMIT CHANGE", 1, 22, "not `CHANGE`; did you mean `CHANGES`?"),
    ("SELECT * FROM t EMIT", 1, 21, "expected CHANGES or FINAL after EMIT"),
    ("SELECT * FROM t EMTI CHANGES", 1, 17, "did you mean `EMIT`?"),
    ("SELECT * FROM t EMIT CHANGES LIMIT x", 1, 36, "expected a whole number after LIMIT"),
    ("SELECT * FROM t EMIT CHANGES WHERE a = 1", 1, 17, "EMIT CHANGES stands at the end"),
    ("SELECT * FROM (SELECT * FROM t EMIT CHANGES) q", 1, 32, "EMIT CHANGES stands at the end"),
    ("SELECT count(*) FROM s WINDOW TUMBLNG (SIZE 1 DAY)", 1, 31, "did you mean `TUMBLING`?"),
    ("SELECT count(*) FROM s WINDOW TUMBLING (SIZE 1 MINUT)", 1, 48, "did you mean `MINUTE`?"),
    ("SELECT count(*) FROM s WINDOW TUMBLING (SIZE 1 MONTH)", 1, 48, "a unit of fixed length"),
    ("SELECT count(*) FROM s WINDOW TUMBLING (SIZE 0 DAYS)", 1, 46, "must be positive"),
    ("SELECT count(*) FROM s WINDOW TUMBLING (SIZE 1.5 DAYS)", 1, 46, "a whole number"),
    ("SELECT count(*) FROM s WINDOW TUMBLING (SIZE '1 minuts')", 1, 46, "in '1 minuts': expected"),
    ("SELECT count(*) FROM s WINDOW TUMBLING (1 DAY)", 1, 41, "expected SIZE"),
    ("SELECT count(*) FROM s WINDOW TUMBLING (SIZE 1 DAY, GRACE 1 HOUR)", 1, 59, "expected PERIOD"),
    (
        "SELECT count(*) FROM s WINDOW TUMBLING (SIZE 1 DAY, RETENTION 1 DAY)",
        1,
        53,
        "retention of the output",
    ),
    ("SELECT count(*) FROM s WINDOW HOPPING (SIZE 1 DAY)", 1, 50, "ends where a comma and ADVANCE BY"),
    (
        "SELECT count(*) FROM s WINDOW HOPPING (SIZE 1 DAY, ADVANCE BY 2 DAYS)",
        1,
        63,
        "longer than the window's SIZE",
    ),
    ("SELECT * FROM s WINDOW SESSION (5 SECONDS)", 1, 17, "WINDOW needs a GROUP BY or an aggregate"),
    ("SELECT count(*) FROM s WINDOW SESSION (1 DAY) GROUP BY ALL", 1, 56, "it cannot be ALL"),
    ("SELECT count(*) FROM s WINDOW SESSION (1 DAY) WHERE WINDOWSTART > 1", 1, 53, "in HAVING"),
    (
        "SELECT count(*) FROM s WINDOW SESSION (1 DAY) GROUP BY a, WINDOWSTART",
        1,
        59,
        "leave them out of GROUP BY",
    ),
    ("SELECT count(*) FROM s WINDOW SESSION (1 DAY) GRUOP BY a", 1, 47, "did you mean `GROUP BY`?"),
    ("SELECT * FROM a JOIN b WITHIN 5 MINUTES USING (id)", 1, 41, "expected ON and the condition"),
    ("SELECT * FROM a JOIN b WITHIN 5 ON a.x = b.x", 1, 33, "MINUTES"),
    ("SELECT * FROM a JOIN (SELECT * FROM b) WITHIN 5 DAYS ON x = y", 1, 40, "give a subquery an alias"),
    ("SELECT * FROM (SELECT * FROM a PARTITION BY x) q", 1, 32, "at the end of the whole query"),
    ("SHOW TOPIC", 1, 6, "did you mean `TOPICS`?"),
    ("DROP STREAM x DELETE", 1, 21, "the statement ends where TOPIC is expected"),
    ("DROP STREAM x DELTE TOPIC", 1, 15, "did you mean"),
    ("DROP TOPIC x", 1, 6, "expected STREAM, TABLE or FUNCTION"),
    ("EXPLAIN CREAT STREAM x", 1, 9, "did you mean `CREATE`?"),
    ("PAUSE", 1, 6, "the id of a query, or ALL"),
    ("TERMINATE a b", 1, 13, "expected the end of the statement"),
    ("DEFINE x 'y'", 1, 10, "expected = and the value"),
    ("SELECT\n ${nope}", 2, 2, "no variable `nope` is defined"),
    ("SELECT *", 1, 8, "FROM is missing"),
    ("SELECT 1,\n  t.*", 2, 3, "FROM is missing: `t.*`"),
    ("SELECT * EXCEPT (a) EMIT CHANGES", 1, 8, "FROM is missing"),
    ("SELECT * FROM (SELECT *)", 1, 23, "FROM is missing"),
    ("WITH c AS (SELECT *) SELECT * FROM c", 1, 19, "FROM is missing"),
    ("SELECT 1 AS a UNION ALL SELECT *", 1, 32, "FROM is missing"),
    ("INSERT INTO x SELECT *", 1, 22, "FROM is missing"),
    ("UPDATE x SET y = 1", 1, 1, "INSERT INTO writes new ones"),
    ("CREATE FUNCTION f() RETURNS INT LANGUAGE JAVA AS ''", 1, 42, "expected PYTHON"),
    ("CREATE FUNCTION f() RETURNS INT LANGUAGE PYTHON AS 1", 1, 52, "between $$ and $$"),
]


@pytest.mark.promise("sql", "A syntax error reports the line, the column and what was expected")
@pytest.mark.parametrize(("text", "line", "column", "message"), CASES, ids=[case[0] for case in CASES])
def test_a_mistake_is_told_with_its_place(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(BadSyntax) as caught:
        parse(text)
    assert message in caught.value.message
    assert caught.value.place == Place(line, column)


@pytest.mark.promise("sql", "A syntax error reports the line, the column and what was expected")
def test_places_point_into_the_text_before_variables_were_replaced() -> None:
    text = (
        "DEFINE size = '1000000 MINUTES';\n"
        "SELECT '${size}', count(*)\n"
        "FROM s WINDOW TUMBLING (SIZE ${size} NOPE)"
    )
    with pytest.raises(SqlError) as caught:
        parse(text)
    assert caught.value.place == Place(3, 38)
    with pytest.raises(SqlError) as inside:
        parse("SELECT count(*) FROM s WINDOW TUMBLING (SIZE ${size})", {"size": "1 MINUTE, NOPE"})
    assert inside.value.place == Place(1, 46)


@pytest.mark.promise("sql", "The value of a variable cannot end a statement and start another one")
def test_the_value_of_a_variable_cannot_end_a_statement() -> None:
    with pytest.raises(BadSyntax, match="cannot hold a `;`"):
        parse("SELECT ${x}", {"x": "1; DROP STREAM s"})


def test_brackets_too_deep_are_refused_before_the_stack_is() -> None:
    with pytest.raises(BadSyntax, match="brackets inside each other"):
        parse("SELECT " + "(" * 5000 + "1" + ")" * 5000)
    with pytest.raises(BadSyntax):
        parse("CREATE STREAM x (a " + "ARRAY<" * 5000)
