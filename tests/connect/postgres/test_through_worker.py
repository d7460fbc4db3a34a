"""The source in a Connect worker: from PostgreSQL into topics of a real broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("psycopg2")
from tests.connect.conftest import Topics, Worker, Workers, until
from tests.connect.postgres.running import config_of
from tests.connect.test_workers import group, kill_tasks

if TYPE_CHECKING:
    from penstock.testing import PenstockBroker
    from tests.connect.postgres.server import Database, PostgresServer

TABLE = "CREATE TABLE items (id int PRIMARY KEY, name text)"
JSON = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}


def config(database: Database, name: str, **settings: str) -> dict[str, Any]:
    found = config_of(database, topic_prefix=name, **settings)
    return {"connector.class": "penstock.connect.connectors.postgres.PostgresConnector", **JSON, **found}


def ids(records: list[Any]) -> list[int]:
    return [json.loads(record.key())["id"] for record in records]


def created(records: list[Any]) -> list[int]:
    return [
        number for number, record in zip(ids(records), records) if json.loads(record.value())["op"] == "c"
    ]


def test_a_table_and_its_changes_are_in_a_topic(
    database: Database, worker: Worker, topics: Topics, name: str
) -> None:
    database.execute(TABLE, "INSERT INTO items VALUES (1, 'nail')")
    worker.put(name, config(database, name))
    worker.until_running(name)
    topic = f"{name}.public.items"
    topics.read(topic, 1)
    database.execute("UPDATE items SET name = 'screw'", "DELETE FROM items")
    records = topics.read(topic, 4)
    assert [record.value() and json.loads(record.value())["op"] for record in records] == [
        "r",
        "u",
        "d",
        None,
    ]
    assert ids(records) == [1, 1, 1, 1]

    def committed() -> Any:
        [kept] = worker.http.get(f"/connectors/{name}/offsets").json()["offsets"] or [None]
        return kept and "snapshot" not in kept["offset"] and kept

    assert until(committed, "offsets of changes")["partition"] == {"server": name}
    assert worker.http.delete(f"/connectors/{name}").status_code == 204


@pytest.mark.promise("connect", "PostgreSQL: invalid settings are rejected with an error that names them")
def test_bad_settings_are_refused_by_name(database: Database, worker: Worker, name: str) -> None:
    bad = config(database, name, database_dbname="nowhere")
    answer = worker.http.put(f"/connectors/{name}/config", json=bad)
    assert answer.status_code == 400
    assert 'database "nowhere" does not exist' in answer.json()["message"]
    del bad["topic.prefix"]
    answer = worker.http.put(f"/connectors/{name}/config", json=bad)
    assert answer.status_code == 400 and "topic.prefix" in answer.text


def test_a_database_that_goes_away_is_picked_up_again(
    database: Database, shared_postgres: PostgresServer, worker: Worker, topics: Topics, name: str
) -> None:
    database.execute(TABLE, "INSERT INTO items VALUES (1, 'before')")
    worker.put(name, config(database, name))
    worker.until_running(name)
    topic = f"{name}.public.items"
    topics.read(topic, 1)
    shared_postgres.stop(signal.SIGQUIT)

    def shown() -> Any:
        [task] = worker.status(name)["tasks"]
        return task.get("trace") and task

    task = until(shown, "the status says why")
    assert task["state"] == "RUNNING" and "RetriableError: " in task["trace"]
    shared_postgres.start()
    database.execute("INSERT INTO items VALUES (2, 'after')")
    assert ids(topics.read_all(topic, lambda records: 2 in ids(records), "the row after"))[-1] == 2
    until(lambda: "trace" not in worker.status(name)["tasks"][0], "the error is gone")
    assert worker.http.delete(f"/connectors/{name}").status_code == 204


@pytest.mark.promise(
    "connect",
    "The status of a task shows the table that its snapshot is reading, with the rows read and the "
    "estimated total",
)
def test_the_status_shows_how_far_the_snapshot_is(
    database: Database, worker: Worker, topics: Topics, name: str
) -> None:
    database.execute(TABLE, "INSERT INTO items SELECT n, 'x' FROM generate_series(1, 5000) n")
    database.execute("ANALYZE items")
    worker.put(name, config(database, name, snapshot_fetch_size="1"))
    topics.read(f"{name}.public.items", 10)
    assert worker.http.put(f"/connectors/{name}/pause").status_code == 202
    [task] = until(
        lambda: (
            (found := worker.status(name)["tasks"])
            and found[0]["state"] == "PAUSED"
            and "progress" in found[0]
            and found
        ),
        "the task is paused",
    )
    snapshot = task["progress"]["snapshot"]
    assert (snapshot["table"], snapshot["table_number"], snapshot["tables"]) == ("public.items", 1, 1)
    assert 0 < snapshot["rows"] < 5000 and 2500 < snapshot["estimated_rows"] < 7500
    words = ["connect", "status", name, "--url", worker.url]
    shown = subprocess.run(
        [sys.executable, "-m", "penstock", *words], capture_output=True, text=True, check=True
    )
    wanted = f"snapshot of {snapshot['table']} (table 1 of 1): {snapshot['rows']:,} of about "
    assert wanted in shown.stdout + shown.stderr
    assert worker.http.put(f"/connectors/{name}/config", json=config(database, name)).status_code == 200
    assert worker.http.put(f"/connectors/{name}/resume").status_code == 202
    topics.read_all(f"{name}.public.items", lambda found: 5000 in ids(found), "the last row")
    until(
        lambda: (
            (found := worker.status(name)["tasks"])
            and found[0]["state"] == "RUNNING"
            and "progress" not in found[0]
        ),
        "the snapshot is over",
    )
    assert worker.http.delete(f"/connectors/{name}").status_code == 204


@pytest.mark.promise(
    "connect",
    "PostgreSQL: restarts of the source at any point, and of the server, lose nothing and repeat only "
    "what was not committed",
)
@pytest.mark.parametrize(
    "once",
    [pytest.param(False, id="at-least-once", marks=pytest.mark.long), pytest.param(True, id="exactly-once")],
)
def test_kills_under_load_lose_nothing(
    database: Database, broker: PenstockBroker, workers: Workers, topics: Topics, name: str, once: bool
) -> None:
    database.execute(TABLE, "INSERT INTO items SELECT n, 'snapshot' FROM generate_series(1, 1000) n")
    options = [*group(name), *(["--set", "exactly.once.source.support=enabled"] if once else [])]
    settings = config(database, name, snapshot_fetch_size="100", max_batch_size="500")
    if once:
        settings["exactly.once.support"] = "required"
    stop = threading.Event()
    last = [1000]

    def write() -> None:
        connection = database.connect()
        with connection.cursor() as cursor:
            while not stop.wait(0.05):
                first = last[0] + 1
                cursor.execute(
                    "INSERT INTO items SELECT n, 'change' FROM generate_series(%s, %s) n", (first, first + 9)
                )
                last[0] += 10
        connection.close()

    topic = f"{name}.public.items"
    writer = threading.Thread(target=write)
    worker = workers.start(broker.bootstrap, *options)
    worker.put(name, settings)
    # The slot is there, and the snapshot has begun: what is written from now on is a change.
    topics.read(topic, 100)
    writer.start()
    try:
        worker.kill()
        worker = workers.start(broker.bootstrap, *options)
        worker.until_running(name)
        topics.read_all(topic, lambda found: len(created(found)) >= 50, "changes")
        kill_tasks(worker.process.pid)
    finally:
        stop.set()
        writer.join()
    everything = set(range(1, last[0] + 1))
    # A snapshot that goes on has rows that were written meanwhile; their changes follow all the same.
    records = topics.read_all(topic, lambda found: last[0] in created(found), f"{last[0]} rows")
    assert set(ids(records)) == everything
    assert set(created(records)) == set(range(1001, last[0] + 1))
    if once:
        assert len(created(records)) == last[0] - 1000, "no change is there twice"
        read = [number for number in ids(records) if number <= 1000]
        assert len(read) == 1000, "no row of the snapshot is there twice"
