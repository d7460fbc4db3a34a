"""INSERT INTO … VALUES: what needs no Spark is as Spark has it, and a wrong value is found among many."""

from __future__ import annotations

import json

import pytest

from penstock.testing import PenstockBroker
from tests.sql.serving import SqlClient
from tests.unit.sql.test_literals import PLAIN

pytestmark = pytest.mark.timeout(300)


def records(broker: PenstockBroker, topic: str) -> list[dict[str, object]]:
    return [json.loads(each.value) for each in broker.consume(topic, isolation="read_committed")]


@pytest.mark.promise(
    "sql",
    "INSERT … VALUES writes all rows or none, and reports the position of the first wrong value; "
    "literals have the same meaning as in Spark",
)
def test_plain_values_are_what_spark_makes_of_them(sql: SqlClient, sql_broker: PenstockBroker) -> None:
    columns = ", ".join(f"c{at} {kind}" for at, (kind, _, _) in enumerate(PLAIN))
    plain = ", ".join(text for _, text, _ in PLAIN)
    computed = ", ".join(f"({text})" for _, text, _ in PLAIN)  # which is an expression
    sql.ok(
        f"""
        CREATE STREAM plain_values ({columns}) WITH (topic = 'plain-values', format = 'json');
        INSERT INTO plain_values VALUES ({plain});
        INSERT INTO plain_values VALUES ({computed});
        """
    )
    one, other = records(sql_broker, "plain-values")
    assert one == other


def test_many_rows_of_all_sorts_come_in_their_order(sql: SqlClient, sql_broker: PenstockBroker) -> None:
    written = [
        (n, f"concat('k', '{n}')" if n % 3 else f"'k{n}'", f"{n} / 4" if n % 2 else "NULL")
        for n in range(1500)
    ]
    rows = ", ".join(f"({', '.join(map(str, row))})" for row in written)
    answers = sql.ok(
        f"""
        CREATE STREAM many_rows (n INT, name STRING, part DOUBLE) WITH (topic = 'many-rows', format = 'json');
        INSERT INTO many_rows VALUES {rows};
        """
    )
    assert answers[-1].details["rows"] == 1500
    assert records(sql_broker, "many-rows") == [
        {"n": n, "name": f"k{n}", "part": n / 4 if n % 2 else None} for n in range(1500)
    ]


def test_a_value_that_is_no_constant_is_computed_anew_for_each_row(
    sql: SqlClient, sql_broker: PenstockBroker
) -> None:
    rows = ", ".join(f"({n} + 0, uuid(), (SELECT {n} * 2), now())" for n in range(300))
    sql.ok(
        f"""
        CREATE STREAM not_constant (n INT, id STRING, twice BIGINT, at TIMESTAMP)
          WITH (topic = 'not-constant', format = 'json');
        INSERT INTO not_constant VALUES {rows};
        """
    )
    found = records(sql_broker, "not-constant")
    assert [(each["n"], each["twice"]) for each in found] == [(n, n * 2) for n in range(300)]
    assert len({each["id"] for each in found}) == 300


@pytest.mark.promise(
    "sql",
    "INSERT … VALUES writes all rows or none, and reports the position of the first wrong value; "
    "literals have the same meaning as in Spark",
)
@pytest.mark.parametrize(
    ("wrong", "name", "error", "message"),
    [
        ("('x', true)", 6, "Clash", "`n` is INT, and true is BOOLEAN"),
        ("('x', 3000000000)", 6, "Clash", "`n` is INT, and 3000000000 cannot be one"),
        ("('x', 1 / 0)", 6, "Clash", "`n` is INT, and 1 / 0 is DOUBLE"),
        (
            "('x', CAST('x' || uuid() AS INT))",
            6,
            "Clash",
            "`n` is INT, and CAST('x' || uuid() AS INT) cannot",
        ),
        ("(1 2, 2)", 3, "BadSyntax", "syntax error at or near '2'"),
        ("(upper('x'), 1 + abss(2))", 17, "Unknown", "no function `abss`; did you mean `abs`?"),
    ],
)
def test_a_wrong_value_in_the_middle_of_many_rows_is_found(
    sql: SqlClient, sql_broker: PenstockBroker, wrong: str, name: int, error: str, message: str
) -> None:
    sql.ok(
        "CREATE STREAM IF NOT EXISTS wrong_rows (a STRING, n INT) "
        "WITH (topic = 'wrong-rows', format = 'json')"
    )
    rows = [f"(concat('k', '{n}'), {n} + 1)" for n in range(200)]
    rows[130] = wrong
    rows[170] = "('later', false)"
    (answer,) = sql.run("INSERT INTO wrong_rows VALUES\n" + ",\n".join(rows))
    assert answer.error is not None
    assert (answer.error["error"], answer.error["line"], answer.error["column"]) == (error, 132, name + 1), (
        answer
    )
    assert answer.error["message"].startswith(message)
    assert records(sql_broker, "wrong-rows") == []


def test_a_column_cannot_be_named_twice(sql: SqlClient) -> None:
    answers = sql.run(
        "CREATE STREAM twice_named (a INT) WITH (format = 'json');\n"
        "INSERT INTO twice_named (a, A) VALUES (1, 2);"
    )
    assert answers[-1].error == {
        "error": "Clash",
        "message": "column `a` is listed twice",
        "line": 2,
        "column": 29,
    }
