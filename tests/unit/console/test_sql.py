"""Which statements a user of the console may run, and the editor."""

from __future__ import annotations

import pytest

from penstock.console.parts.sql_editor import completions, error_marks
from penstock.console.reads.sql import check_text
from penstock.sql.errors import BadSyntax, NotAllowed
from penstock.sql.shell.completion import Known
from penstock.web.access import Principal, Role

RELATIONS = {"orders": "orders", "plain": "connect-configs", "lake": None}


def check(role: Role | None, text: str, properties: dict[str, str] | None = None) -> None:
    check_text(Principal("ann", role), text, RELATIONS, properties or {}, {"t": "plain"})


@pytest.mark.promise(
    "console", "A user runs only the SQL statements that the user's role in the console allows"
)
@pytest.mark.parametrize(
    ("statement", "needed"),
    [
        ("SELECT * FROM orders EMIT CHANGES;", Role.READ),
        ("SHOW QUERIES;", Role.READ),
        ("EXPLAIN SELECT * FROM orders;", Role.READ),
        ("INSERT INTO orders VALUES (1);", Role.WRITE),
        ("CREATE STREAM s AS SELECT * FROM orders;", Role.WRITE),
        ("TERMINATE q1;", Role.WRITE),
        ("DROP STREAM orders;", Role.WRITE),
        ("DROP STREAM orders DELETE TOPIC;", Role.ADMIN),
        ("CREATE FUNCTION f (x INT) RETURNS INT LANGUAGE PYTHON AS $$ return x $$;", Role.ADMIN),
        ("CREATE TABLE f (k INT PRIMARY KEY) WITH (storage = 'parquet', path = '/etc');", Role.ADMIN),
        ("SELECT reflect('java.lang.System', 'exit', 1) FROM orders;", Role.ADMIN),
        # Topics that hold the state of servers, by all names that they can have.
        ("SELECT * FROM `connect-configs`;", Role.ADMIN),
        ("SELECT * FROM PLAIN;", Role.ADMIN),
        ("SELECT * FROM ${t};", Role.ADMIN),
        ("SELECT * FROM orders WHERE id IN (SELECT id FROM _schemas);", Role.ADMIN),
        ("EXPLAIN SELECT * FROM plain;", Role.ADMIN),
        ("INSERT INTO plain VALUES (1);", Role.ADMIN),
        ("CREATE STREAM s (a INT) WITH (topic = '_schemas');", Role.ADMIN),
        ("CREATE STREAM s (a INT) WITH (topic = 'x', dead_letter_topic = '_schemas');", Role.ADMIN),
        ("CREATE STREAM s AS SELECT * FROM plain;", Role.ADMIN),
        ("SHOW TOPICS; SELECT * FROM plain;", Role.ADMIN),
        ("SET 'spark.sql.extensions' = 'x';", Role.ADMIN),
    ],
)
def test_a_statement_needs_a_role(statement: str, needed: Role):
    for role in (None, Role.READ, Role.WRITE, Role.ADMIN):
        if role is not None and role >= needed:
            check(role, statement)
        else:
            with pytest.raises(NotAllowed):
                check(role, statement)


def test_settings_of_the_session_are_checked_too():
    check(Role.ADMIN, "SHOW TOPICS;", {"spark.sql.extensions": "x"})
    with pytest.raises(NotAllowed):
        check(Role.WRITE, "SHOW TOPICS;", {"spark.sql.extensions": "x"})


def test_an_error_has_its_place():
    with pytest.raises(BadSyntax) as caught:
        check(Role.READ, "SHOW TOPICS;\nSELEC 1;")
    assert (caught.value.place.line, caught.value.place.column) == (2, 1)


def test_the_word_at_an_error_is_marked():
    text = "SELECT a\nFROM ordrs, b;"
    assert error_marks(text, 2, 6) == [
        {"kind": "line", "line": 2, "class": "sql-error-line"},
        {"kind": "mark", "from": 14, "to": 19, "class": "sql-error"},
    ]
    assert error_marks(text, 2, 11)[1] == {"kind": "mark", "from": 19, "to": 20, "class": "sql-error"}
    assert error_marks(text, 1, 20) == [{"kind": "line", "line": 1, "class": "sql-error-line"}]
    assert error_marks(text, 9, 1) == []


def test_completions_are_of_one_place():
    known = Known({"orders": ("id", "region")}, {"orders": "stream"}, ("orders", "others"), ("q1",))
    first = completions("SELECT * FROM or", known)[0]
    assert first == {"label": "orders", "type": "class", "start": -2, "detail": "stream"}
    assert completions("SELECT o.re FROM orders o WHERE o.re", known)[0]["label"] == "region"
    assert [each["label"] for each in completions("TERMINATE ", known)] == ["q1"]
    assert completions("sel", known)[0]["label"] == "select"
