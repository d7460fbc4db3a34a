"""`penstock sql` as people use it: through a terminal, with files, from a pipe."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock.testing import PenstockBroker
from tests.sql.serving import SqlClient, SqlServer

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[=>]|\x1b\][^\x07]*\x07|\r")


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, *words: str, **environment: str) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            # Its terminal, so that Ctrl-C is a signal as in any terminal.
            preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
            env={
                **os.environ,
                "TERM": "xterm",
                "PROMPT_TOOLKIT_NO_CPR": "1",
                "COLUMNS": "100",
                **environment,
            },
        )
        os.close(slave)
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, wanted: str, seconds: float = 90.0) -> str:
        """Until the text is on the screen; what came up to it. Each is found once."""
        deadline = time.monotonic() + seconds
        while True:
            plain = _ANSI.sub("", self._seen)
            if wanted in plain:
                before, _, rest = plain.partition(wanted)
                self._seen = rest
                return before + wanted
            ready, _, _ = select.select([self._master], [], [], 0.2)
            if ready:
                try:
                    self._seen += os.read(self._master, 65536).decode(errors="replace")
                    continue
                except OSError:
                    pass
            assert time.monotonic() < deadline, f"{wanted!r} is not in {plain[-3000:]!r}"
            assert self.process.poll() is None, f"it ended without {wanted!r}: {plain[-3000:]!r}"

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def shell(server: SqlServer, tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal("sql", "--server", server.url, "--history", str(tmp_path / "history"))
    opened.wait_for("sql>")
    yield opened
    opened.close()


@pytest.fixture
def stream(sql: SqlClient) -> Iterator[str]:
    name = f"s_{uuid.uuid4().hex[:8]}"
    sql.ok(
        f"CREATE STREAM {name} (id INT, region STRING) WITH (topic='{name}', format='json', partitions=1);"
    )
    sql.ok(f"INSERT INTO {name} VALUES (1, 'north'), (2, 'south');")
    yield name
    sql.ok(f"DROP STREAM IF EXISTS {name} DELETE TOPIC;")


def run(server: SqlServer, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", "sql", "--server", server.url, *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=110,
    )


def test_a_statement_of_several_lines_is_run_when_it_ends(shell: Terminal) -> None:
    shell.type("SELECT 40 + 2 AS answer,\r")
    shell.wait_for("...>")
    shell.type("'a;b' AS text\r")
    shell.wait_for("...>")
    shell.type(";\r")
    shell.wait_for("─")
    assert "42  a;b" in shell.wait_for("a;b")
    shell.wait_for("sql>")
    shell.type("exit\r")
    assert shell.process.wait(60) == 0


@pytest.mark.promise(
    "sql",
    "In the shell Ctrl-C ends a push query and not the shell; scripts end at the first error with exit "
    "code 1",
)
def test_ctrl_c_ends_a_push_query_and_not_the_shell(shell: Terminal, stream: str, server: SqlServer) -> None:
    shell.type("SET 'auto.offset.reset' = 'earliest';\r")
    shell.wait_for("auto.offset.reset = earliest")
    shell.type(f"SELECT id, region FROM {stream} EMIT CHANGES;\r")
    shell.wait_for("south")
    shell.type("\x03")
    shell.wait_for("(ended)")
    shell.wait_for("sql>")
    with server.client() as client:
        deadline = time.monotonic() + 60
        while client.http.get("/info").json()["running"]:
            assert time.monotonic() < deadline, "the push query goes on without its client"
            time.sleep(0.1)
    shell.type("half a statem\x03")
    shell.wait_for("sql>")
    shell.type("SHOW PROPERTIES;\r")
    shell.wait_for("(1 row)")
    shell.wait_for("sql>")
    shell.type("\x04")
    assert shell.process.wait(60) == 0


def test_names_are_completed_and_an_error_points_at_its_place(shell: Terminal, stream: str) -> None:
    deadline = time.monotonic() + 60
    while True:  # what completion knows is asked for in the background
        shell.type(f"SELECT regon FROM {stream[:8]}\t")
        time.sleep(0.5)
        shell.type(";\r")
        shell.wait_for("Error: ")
        told = shell.wait_for("^")
        shell.wait_for("sql>")
        if f"SELECT regon FROM {stream};" in told:
            break
        assert time.monotonic() < deadline
    assert "no column `regon`; did you mean `region`?" in told
    shell.type("help pause\r")
    shell.wait_for("PAUSE [QUERY] query_id")


def test_what_was_typed_is_kept_for_the_next_time(server: SqlServer, tmp_path: Path) -> None:
    words = ("sql", "--server", server.url, "--history", str(tmp_path / "history"))
    first = Terminal(*words)
    try:
        first.wait_for("sql>")
        first.type("SELECT 'once' AS told;\r")
        first.wait_for("(1 row)")
        first.wait_for("sql>")
        first.type("\x04")
        assert first.process.wait(60) == 0
    finally:
        first.close()
    second = Terminal(*words)
    try:
        second.wait_for("sql>")
        second.type("\x1b[A")  # the arrow up
        second.wait_for("SELECT 'once' AS told;")
        second.type("\r")
        second.wait_for("(1 row)")
    finally:
        second.close()


@pytest.mark.promise(
    "sql",
    "In the shell Ctrl-C ends a push query and not the shell; scripts end at the first error with exit "
    "code 1",
)
def test_scripts_run_up_to_the_first_error_which_is_the_exit_code(server: SqlServer, tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text("SELECT '${name}' AS n;\nSELECT nothing\n  FROM (SELECT 1 AS x);\nSELECT 'never';\n")
    done = run(server, "-f", str(script), "--define", "name=defined")
    assert done.returncode == 1
    assert "defined" in done.stdout and "never" not in done.stdout
    assert "line 2, column 8" in done.stderr and "SELECT nothing" in done.stderr
    done = run(server, "-e", "SELECT 1 AS a", "-e", "SELECT 2 AS b;", "--json")
    assert done.returncode == 0
    rows = [json.loads(line)["row"] for line in done.stdout.splitlines() if "row" in json.loads(line)]
    assert rows == [[1], [2]]


def test_what_comes_on_stdin_is_run(server: SqlServer) -> None:
    given = ("--set", "auto.offset.reset=earliest")
    done = run(server, *given, stdin="SHOW PROPERTIES;\nDEFINE x = 'y'; SELECT '${x}' AS z;")
    assert done.returncode == 0, done.stderr
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["NAME", "VALUE"],
        ["auto.offset.reset", "earliest"],
        ["x", "=", "y"],
        ["Z"],
        ["y"],
    ]


@pytest.mark.timeout(300)
def test_without_a_server_it_starts_one_which_ends_with_it(
    server: SqlServer, sql_broker: PenstockBroker, tmp_path: Path
) -> None:
    words = ["sql", "-b", sql_broker.bootstrap, "--no-registry", "--data", str(tmp_path), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *words, "-e", "SELECT 6 * 7 AS answer;"],
        capture_output=True,
        text=True,
        timeout=280,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    assert {"row": [42]} in [json.loads(line) for line in done.stdout.splitlines()]
    found = re.search(r"own runs at (http://127.0.0.1:\d+)", done.stderr)
    assert found is not None, done.stderr
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{found.group(1)}/info", trust_env=False)
    # Another server leads in this cluster: ours has passed the statement on, and is no longer in the group.
    with server.client() as client:
        assert client.http.get("/info").json()["leads"]


def test_options_of_the_shell_are_not_taken_for_those_of_the_server() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "sql", "-b", "127.0.0.1:1", "serve"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2 and "write it after serve" in done.stderr


def test_a_server_that_is_not_there_is_told_in_a_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "sql", "--server", "http://127.0.0.1:1", "-e", "SELECT 1;"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert (
        done.stderr.startswith("Error: no SQL server answers at http://127.0.0.1:1")
        and "\n" not in done.stderr.strip()
    )
