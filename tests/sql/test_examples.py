"""The examples of `examples/sql`, run by `penstock sql -f`: word count and page views."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import PenstockBroker
from tests.doc_blocks import commands, programs
from tests.doc_shell import Shell
from tests.sql.serving import SqlClient, SqlServer

DIRECTORY = Path(__file__).parents[2] / "examples" / "sql"
WAIT_SECONDS = 90.0
MINUTE = 60_000
START = 1_735_689_600_000


@pytest.fixture
def run_example(server: SqlServer, sql: SqlClient) -> Any:
    """Runs a file through the command line, and ends its queries afterwards."""

    def run(name: str) -> None:
        command = [
            sys.executable,
            "-m",
            "penstock",
            "sql",
            "--server",
            server.url,
            "-f",
            str(DIRECTORY / name),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stdout + done.stderr

    yield run
    sql.run("TERMINATE ALL;")


def eventually(question: Callable[[], Any], expected: Any, seconds: float = WAIT_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    asked = time.monotonic()
    while (found := question()) != expected:
        assert time.monotonic() < deadline, f"expected {expected}, found {found}"
        # As long again as the question took: the cores are for the queries that are awaited.
        time.sleep(max(0.05, time.monotonic() - asked))
        asked = time.monotonic()


@pytest.mark.promise(
    "sql", "The word count and page view examples of Kafka Streams and ksqlDB run from the command line"
)
@pytest.mark.timeout(300)
def test_word_count(run_example: Any, sql: SqlClient, sql_broker: PenstockBroker) -> None:
    run_example("word_count.sql")
    sql_broker.produce(
        "streams-plaintext-input", ["all streams lead to kafka", "hello kafka streams", "join Kafka summit!"]
    )
    one = "SELECT occurrences FROM word_counts WHERE word = 'kafka';"
    eventually(lambda: sql.rows(one), [[3]])
    everything = "SELECT word, occurrences FROM word_counts ORDER BY occurrences DESC, word LIMIT 3;"
    eventually(lambda: sql.rows(everything), [["kafka", 3], ["streams", 2], ["all", 1]])
    sql_broker.produce("streams-plaintext-input", ["kafka again"], partition=1)
    eventually(lambda: sql.rows(one), [[4]])


@pytest.mark.promise(
    "sql", "The word count and page view examples of Kafka Streams and ksqlDB run from the command line"
)
@pytest.mark.timeout(300)
def test_page_views_by_region(run_example: Any, sql: SqlClient, sql_broker: PenstockBroker) -> None:
    run_example("page_views.sql")
    users = {"alice": ("Europe_8", "FEMALE"), "bob": ("Asia_1", "MALE"), "carol": ("Asia_1", "FEMALE")}
    sql.ok(
        "INSERT INTO users VALUES "
        + ", ".join(f"('{name}', '{region}', '{gender}')" for name, (region, gender) in users.items())
    )
    views = [
        ("alice", "/home", 0), ("bob", "/home", 5_000), ("alice", "/docs", 30_000),
        ("carol", "/home", 59_000), ("alice", "/jobs", MINUTE), ("dave", "/home", MINUTE),
        ("alice", "/home", 60 * MINUTE),
    ]  # fmt: skip
    sql_broker.produce(
        "pageviews",
        [(user, json.dumps({"page": page, "viewed_at": START + after})) for user, page, after in views],
    )
    by_region = "SELECT region, window_start, views FROM views_by_region ORDER BY window_start, region;"
    eventually(
        lambda: sql.rows(by_region),
        [
            ["Asia_1", "2025-01-01T00:00:00Z", 2],
            ["Europe_8", "2025-01-01T00:00:00Z", 2],
            [None, "2025-01-01T00:01:00Z", 1],
            ["Europe_8", "2025-01-01T00:01:00Z", 1],
            ["Europe_8", "2025-01-01T01:00:00Z", 1],
        ],
    )
    eventually(lambda: sql.rows("SELECT page FROM pageviews_female_like_89 ORDER BY page;"),
               [["/docs"], ["/home"], ["/home"], ["/jobs"]])  # fmt: skip
    sessions = "SELECT views FROM sessions_by_user WHERE user_id = 'alice';"
    eventually(lambda: sorted(sql.rows(sessions)), [[1], [3]])


@pytest.mark.promise(
    "docs",
    "The statements in from-ksqldb.md are tested: those it calls the same parse, those it calls missing "
    "are rejected, and its examples give the shown results",
)
@pytest.mark.timeout(300)
def test_the_statements_of_the_page_for_users_of_ksqldb(sql: SqlClient, sql_broker: PenstockBroker) -> None:
    (block,) = programs("docs/from-ksqldb.md", "sql")
    statements, _, question = block.strip().rpartition("\n")
    sql.ok(statements)
    eventually(lambda: sql.rows(question), [[31.0, 31.0]])
    eventually(
        lambda: [json.loads(record.value) for record in sql_broker.consume("alerts")],
        [{"sensor": "roof", "celsius": 31.0}],
    )
    sql.run("TERMINATE ALL;")


@pytest.mark.promise("docs", "The SQL of the README and the Python programs of sql-server.md run as printed")
@pytest.mark.timeout(300)
def test_the_statements_of_the_readme_and_the_programs_that_ask_the_server(
    server: SqlServer, sql: SqlClient
) -> None:
    (block,) = programs("README.md", "sql")
    # Other tests on this server have relations of these names.
    block = block.replace("payments", "readme_payments").replace("spent", "readme_spent")
    *statements, pull, push = block.strip().splitlines()
    sql.ok("\n".join(statements))
    eventually(lambda: sql.rows(pull), [["alice", 2, 13.5]])
    first = {"auto.offset.reset": "earliest"}
    with sql.stream(push, properties=first) as lines:
        assert next(line["row"] for line in lines if "row" in line)[0] in ("alice", "bob")
    sql.ok("CREATE TABLE readme_totals (region STRING PRIMARY KEY, n BIGINT) WITH (format = 'json');"
           "INSERT INTO readme_totals (region, n) VALUES ('north', 2), ('south', 3);")  # fmt: skip
    address = server.url.removeprefix("http://")
    for program in programs("docs/sql-server.md"):
        program = program.replace("127.0.0.1:8088", address).replace("totals", "readme_totals")
        names: dict[str, Any] = {}
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(program, names)
        if "frame" in names:
            assert sorted(names["frame"].itertuples(index=False, name=None)) == [("north", 2), ("south", 3)]
        else:
            assert output.getvalue() == "[('north', 2)]\n"
    (ask,) = commands("docs/sql-server.md")
    shell = Shell(Path.cwd(), instead={"127.0.0.1:8088": address, "totals": "readme_totals"})
    assert '{"row":["north",2]}' in shell.run(ask).splitlines()
    sql.run("TERMINATE ALL;")


@pytest.mark.promise(
    "sql",
    "Pattern examples: a temperature that reaches 30°, a stock up by 10 % within an hour, three failed "
    "logins and then a success; records may arrive out of order",
)
@pytest.mark.timeout(600)
def test_alerts(run_example: Any, sql: SqlClient, sql_broker: PenstockBroker) -> None:
    run_example("alerts.sql")

    def send(topic: str, names: tuple[str, str], rows: list[tuple[Any, ...]]) -> None:
        values = [
            {names[0]: key, names[1]: value, "at": START + second * 1000} for key, value, second in rows
        ]
        # In one partition, so that no batch has the last record without those before it.
        sql_broker.produce(topic, [(each[names[0]], json.dumps(each)) for each in values], partition=0)

    def found(topic: str) -> Any:
        read = sql_broker.consume(topic, isolation="read_committed")
        return sorted(((record.key.decode(), json.loads(record.value)) for record in read), key=str)

    send("thermometers", ("sensor", "degrees"), [
        ("roof", 28.5, 0), ("hall", 21, 0), ("roof", 31, 120), ("roof", 29.5, 60), ("roof", 30.5, 180),
        ("roof", 29, 240), ("roof", 30, 300), ("end", 0, 900),
    ])  # fmt: skip
    send("quotes", ("stock", "price"), [
        ("ABC", 100, 0), ("ABC", 105, 2400), ("ABC", 111, 4200), ("ABC", 116, 5400), ("XYZ", 10, 3600),
        ("XYZ", 10.99, 4800), ("end", 1, 20000),
    ])  # fmt: skip
    send("logins", ("account", "ok"), [
        ("ann", False, 0), ("ann", True, 5), ("eve", False, 10), ("eve", False, 20), ("eve", True, 40),
        ("bob", False, 0), ("bob", False, 60), ("bob", False, 100), ("bob", True, 101), ("eve", False, 30),
        ("end", True, 900),
    ])  # fmt: skip
    eventually(
        lambda: found("heat"),
        [
            ("roof", {"sensor": "roof", "before": 29.0, "degrees": 30.0}),
            ("roof", {"sensor": "roof", "before": 29.5, "degrees": 31.0}),
        ],
        3 * WAIT_SECONDS,  # three queries start, each with Python processes of its own
    )
    eventually(lambda: found("jumps"), [("ABC", {"stock": "ABC", "low": 105.0, "high": 116.0})])
    eventually(lambda: found("guessed"), [("eve", {"account": "eve", "failures": 3})])
