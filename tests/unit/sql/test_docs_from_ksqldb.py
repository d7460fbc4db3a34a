"""docs/from-ksqldb.md: what the page calls the same is read, and what it says is not there is refused."""

from __future__ import annotations

import pytest

from penstock.sql.errors import BadSyntax
from penstock.sql.language.parser import parse

SAME = [
    "CREATE STREAM s (a VARCHAR, b STRUCT<x INTEGER>, c BYTES) WITH (kafka_topic='t', value_format='JSON');",
    "CREATE TABLE t (id INT PRIMARY KEY, n INT) WITH (topic='t', format='json');",
    "CREATE STREAM s2 AS SELECT * FROM s EMIT CHANGES;",
    "CREATE TABLE t2 AS SELECT a, COUNT(*) AS n FROM s GROUP BY a;",
    "INSERT INTO s (a) VALUES ('x');",
    "INSERT INTO s SELECT a FROM r;",
    "SELECT * FROM s EMIT CHANGES;",
    "SELECT n FROM t WHERE id = 7;",
    "CREATE STREAM s3 AS SELECT a FROM s PARTITION BY a;",
    "SELECT a, WINDOWSTART, COUNT(*) AS n FROM s "
    "WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 5 MINUTES) GROUP BY a EMIT FINAL;",
    "SELECT a, COUNT(*) AS n FROM s WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 1 MINUTE) GROUP BY a;",
    "SELECT a, COUNT(*) AS n FROM s WINDOW SESSION (60 SECONDS) GROUP BY a;",
    "SELECT * FROM s JOIN r WITHIN 1 HOUR GRACE PERIOD 1 MINUTE ON s.id = r.id EMIT CHANGES;",
    "SHOW STREAMS; SHOW TABLES; SHOW QUERIES; SHOW TOPICS; SHOW FUNCTIONS; SHOW PROPERTIES;",
    "DESCRIBE s EXTENDED; DESCRIBE FUNCTION f;",
    "EXPLAIN SELECT 1;",
    "PAUSE q; RESUME q; TERMINATE q;",
    "DROP STREAM s DELETE TOPIC;",
    "CREATE OR REPLACE TABLE t2 WITH (state='rebuild') AS SELECT a, COUNT(*) AS n FROM s GROUP BY a;",
    "DEFINE x = 'y'; UNDEFINE x; SET 'auto.offset.reset' = 'earliest'; UNSET 'auto.offset.reset';",
]
NO_STATEMENT = [
    "PRINT 't';",
    "RUN SCRIPT 'f.sql';",
    "ALTER STREAM s ADD COLUMN x INT;",
    "CREATE TYPE point AS STRUCT<x INT>;",
    "CREATE SOURCE CONNECTOR c WITH (a='b');",
    "CREATE SOURCE TABLE t (id INT PRIMARY KEY) WITH (topic='t');",
    "ASSERT TOPIC t;",
    "INSERT INTO s (a) SELECT a FROM r;",
]


@pytest.mark.promise(
    "docs",
    "The statements in from-ksqldb.md are tested: those it calls the same parse, those it calls missing "
    "are rejected, and its examples give the shown results",
)
@pytest.mark.parametrize("statements", SAME)
def test_what_the_page_calls_the_same_is_read(statements: str) -> None:
    assert len(parse(statements)) == statements.count(";")


@pytest.mark.promise(
    "docs",
    "The statements in from-ksqldb.md are tested: those it calls the same parse, those it calls missing "
    "are rejected, and its examples give the shown results",
)
@pytest.mark.parametrize("statement", NO_STATEMENT)
def test_what_the_page_says_is_not_there_is_refused(statement: str) -> None:
    with pytest.raises(BadSyntax):
        parse(statement)
