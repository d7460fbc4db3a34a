"""Several SQL servers of one cluster: one leads, the others pass statements on and take over."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.testing import PenstockBroker
from tests.sql.conftest import BROKER_SETTINGS
from tests.sql.serving import SqlClient, SqlServer

WAIT_SECONDS = 240.0


@pytest.fixture
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker(BROKER_SETTINGS) as broker:
        yield broker


@pytest.fixture
def servers(broker: PenstockBroker, tmp_path: Path) -> Iterator[Callable[[], SqlServer]]:
    started: list[SqlServer] = []

    def start() -> SqlServer:
        options = ("--no-registry", "--session-timeout-ms", "4000", "--master", "local[2]")
        started.append(SqlServer(broker.bootstrap, "http://127.0.0.1:1", tmp_path / "sql", *options))
        return started[-1].wait()

    yield start
    for server in started:
        if server.process.poll() is None:
            os.killpg(server.process.pid, signal.SIGCONT)
        server.stop()


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.1)


def leads(client: SqlClient) -> bool:
    return bool(client.http.get("/info").json()["leads"])


def copied(broker: PenstockBroker) -> list[int]:
    records = broker.consume("copy", isolation="read_committed", timeout=60)
    return sorted(json.loads(record.value or b"")["id"] for record in records)


@pytest.mark.promise(
    "sql",
    "Any server forwards statements to the leader; if the leader fails another server takes over; a "
    "leader that was paused is fenced",
)
@pytest.mark.timeout(600)
def test_statements_reach_the_leader_and_one_that_was_paused_is_fenced(
    broker: PenstockBroker, servers: Callable[[], SqlServer]
) -> None:
    first, second = servers(), servers()
    with first.client() as one, second.client() as other:
        assert leads(one) and not leads(other)

        # Through the one that does not lead, which passes on and back what is asked and answered.
        other.ok("CREATE STREAM numbers (id INT) WITH (topic='numbers', format='json', partitions=2);")
        other.ok("CREATE STREAM copy AS SELECT id FROM numbers;")
        other.ok("INSERT INTO numbers VALUES (1), (2);")
        assert other.http.get("/queries").json()[0]["id"] == one.http.get("/queries").json()[0]["id"]
        refused = other.run("SELECT nothing\nFROM numbers;")[-1].error
        assert refused is not None and (refused["line"], refused["column"]) == (1, 8)
        with other.stream("SELECT id FROM numbers EMIT CHANGES;", {"auto.offset.reset": "earliest"}) as lines:
            rows = (line["row"] for line in lines if "row" in line)
            assert {next(rows)[0], next(rows)[0]} == {1, 2}
            assert one.http.get("/info").json()["running"] == 1
        wait_until(lambda: one.http.get("/info").json()["running"] == 0, "the end of the push at the leader")
        wait_until(lambda: copied(broker) == [1, 2], "the copy")

        # The leader and its Spark stand still: the other one takes over.
        os.killpg(first.process.pid, signal.SIGSTOP)
        wait_until(lambda: leads(other), "that the second leads")
        other.ok("INSERT INTO numbers VALUES (3), (4);")
        wait_until(lambda: copied(broker) == [1, 2, 3, 4], "the copy by the second")

        # It wakes up, believes to lead for a moment, and can write nothing twice.
        os.killpg(first.process.pid, signal.SIGCONT)
        one.ok("INSERT INTO numbers VALUES (5), (6);")
        wait_until(lambda: not leads(one), "that the first gives up")
        assert leads(other)
        wait_until(lambda: len(copied(broker)) >= 6, "the copy of all")
        assert copied(broker) == [1, 2, 3, 4, 5, 6]

        # The second is stopped: the first one has it again.
        assert second.stop() == 0
        wait_until(lambda: leads(one), "that the first leads again")
        one.ok("INSERT INTO numbers VALUES (7);")
        wait_until(lambda: len(copied(broker)) >= 7, "the copy of the last")
        assert copied(broker) == [1, 2, 3, 4, 5, 6, 7]


def history(broker: PenstockBroker, topic: str) -> dict[bytes | None, list[int]]:
    """The counts that each key of a table was written with, in order."""
    found: dict[bytes | None, list[int]] = {}
    for record in broker.consume(topic, isolation="read_committed", timeout=60):
        found.setdefault(record.key, []).append(json.loads(record.value or b"{}").get("n", 0))
    return found


def writes(broker: PenstockBroker, topic: str) -> int:
    return sum(len(counts) for counts in history(broker, topic).values())


@pytest.mark.promise(
    "sql",
    "After a takeover, only the new server writes a table over tables or with session windows; a server "
    "that was paused writes nothing when it resumes, whatever the clocks say",
)
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_leader_that_was_paused_does_not_overwrite_tables_of_its_successor(
    broker: PenstockBroker, servers: Callable[[], SqlServer]
) -> None:
    first, second = servers(), servers()
    tables = ("over_tables", "of_sessions")
    with first.client() as one, second.client() as other:
        assert leads(one)
        one.ok(
            """
            CREATE STREAM taps (k STRING, t TIMESTAMP) WITH (format = 'json', timestamp = 't');
            CREATE TABLE counted (k STRING PRIMARY KEY, n INT) WITH (format = 'json');
            CREATE TABLE over_tables AS SELECT k, n FROM counted;
            CREATE TABLE of_sessions AS
              SELECT k, COUNT(*) AS n FROM taps WINDOW SESSION (24 HOURS) GROUP BY k;
            """
        )
        done, written = threading.Event(), 0

        def tap() -> None:
            """Both tables change all the time, so that the leader is paused while it writes one of them."""
            nonlocal written
            while not done.wait(0.1):
                written += 1
                broker.produce("counted", [(b"a", json.dumps({"n": written}).encode())])
                broker.produce("taps", [(None, b'{"k": "a", "t": "2026-01-01T00:00:00Z"}')])

        tapping = threading.Thread(target=tap)
        tapping.start()
        try:
            for table in tables:
                wait_until(lambda table=table: writes(broker, table) > 2, f"rows of {table}")
            os.killpg(first.process.pid, signal.SIGSTOP)
            wait_until(lambda: leads(other), "that the second leads")
            before = {table: writes(broker, table) for table in tables}
            for table in tables:
                wait_until(
                    lambda table=table: writes(broker, table) > before[table] + 1,
                    f"rows of {table} by the second",
                )
            os.killpg(first.process.pid, signal.SIGCONT)
            wait_until(lambda: not leads(one), "that the first gives up")
        finally:
            done.set()
            tapping.join()
        assert leads(other)
        for table in tables:
            wait_until(
                lambda table=table: [each[-1] for each in history(broker, table).values()] == [written],
                f"all taps in {table}",
            )
            # Nobody has put an older count after a newer one.
            for counts in history(broker, table).values():
                assert counts == sorted(counts), table
