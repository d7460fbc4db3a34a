"""The source in a Connect worker: from MariaDB into topics of a real broker."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pymysqlreplication")
from tests.connect.conftest import Topics, Worker, Workers, until
from tests.connect.mysql.running import config_of
from tests.connect.test_workers import group, kill_tasks

if TYPE_CHECKING:
    from penstock.testing import PenstockBroker
    from tests.connect.mysql.conftest import Database
    from tests.connect.sql.mariadb import MariaDb

TABLE = "CREATE TABLE items (id int PRIMARY KEY, name text)"
JSON = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}


def config(database: Database, name: str, **settings: str) -> dict[str, Any]:
    found = config_of(database, topic_prefix=name, **settings)
    return {"connector.class": "io.debezium.connector.mariadb.MariaDbConnector", **JSON, **found}


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
    topic = f"{name}.{database.name}.items"
    topics.read(topic, 1)
    database.execute("UPDATE items SET name = 'screw'", "DELETE FROM items")
    records = topics.read(topic, 4)
    values = [record.value() and json.loads(record.value()) for record in records]
    assert [value and value["op"] for value in values] == ["r", "u", "d", None]
    assert values[1]["source"]["connector"] == "mariadb" and values[1]["before"]["name"] == "nail"
    assert ids(records) == [1, 1, 1, 1]

    def committed() -> Any:
        [kept] = worker.http.get(f"/connectors/{name}/offsets").json()["offsets"] or [None]
        return kept and "snapshot" not in kept["offset"] and kept

    assert until(committed, "offsets of changes")["partition"] == {"server": name}
    assert worker.http.delete(f"/connectors/{name}").status_code == 204


@pytest.mark.promise(
    "pipelines",
    "`pipeline init --from mysql` creates a project whose connector writes the topic and the columns "
    "that its flows read",
)
def test_the_connector_of_a_new_pipeline_project_writes_what_its_flows_read(
    database: Database,
    broker: PenstockBroker,
    workers: Workers,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    database.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer varchar(20), amount decimal(10, 2))",
        "INSERT INTO orders VALUES (1, 'ann', 10.5)",
        "CREATE TABLE others (id int PRIMARY KEY)",
        "INSERT INTO others VALUES (1)",
    )
    project = database.name  # the template's settings are for a database of the project's name
    words = ["pipeline", "init", project, "--from", "mysql"]
    subprocess.run([sys.executable, "-m", "penstock", *words], cwd=tmp_path, check=True)
    made = json.loads((tmp_path / project / "connectors" / f"{project}.json").read_text())
    server = config_of(database)
    monkeypatch.setenv(f"{project.upper()}_PASSWORD", server.get("database.password", ""))
    made |= {key: server[key] for key in ("database.port", "database.user")}
    worker = workers.start(broker.bootstrap, *group(name))
    worker.put(project, made)
    topic = f"{project}.{project}.orders"
    assert (
        f'"subscribe", "{topic}"' in (tmp_path / project / "transformations" / "order_changes.py").read_text()
    )
    [record] = topics.read(topic, 1)
    value = json.loads(record.value())
    assert value["op"] == "r" and value["after"] == {"id": 1, "customer": "ann", "amount": 10.5}
    database.execute("UPDATE orders SET amount = 20 WHERE id = 1", "DELETE FROM orders")
    values = [json.loads(each.value()) for each in topics.read(topic, 4) if each.value() is not None]
    assert [(each["op"], each["before"] and each["before"]["amount"]) for each in values] == [
        ("r", None),
        ("u", 10.5),
        ("d", 20.0),
    ]
    assert worker.http.get(f"/connectors/{project}/topics").json() == {project: {"topics": [topic]}}
    assert worker.http.delete(f"/connectors/{project}").status_code == 204


@pytest.mark.promise("connect", "MySQL: invalid settings are rejected with an error that names them")
def test_bad_settings_are_refused_by_name(database: Database, worker: Worker, name: str) -> None:
    bad = config(database, name, database_user="nobody")
    answer = worker.http.put(f"/connectors/{name}/config", json=bad)
    assert answer.status_code == 400
    assert "database.hostname" in answer.json()["message"] and "Access denied" in answer.json()["message"]
    del bad["topic.prefix"]
    answer = worker.http.put(f"/connectors/{name}/config", json=bad)
    assert answer.status_code == 400 and "topic.prefix" in answer.text


def test_a_database_that_goes_away_is_picked_up_again(
    database: Database, binlog_mariadb: MariaDb, worker: Worker, topics: Topics, name: str
) -> None:
    database.execute(TABLE, "INSERT INTO items VALUES (1, 'before')")
    worker.put(name, config(database, name))
    worker.until_running(name)
    topic = f"{name}.{database.name}.items"
    topics.read(topic, 1)
    binlog_mariadb.stop()

    def shown() -> Any:
        [task] = worker.status(name)["tasks"]
        return task.get("trace") and task

    task = until(shown, "the status says why")
    assert task["state"] == "RUNNING" and "RetriableError: " in task["trace"]
    binlog_mariadb.start()
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
    database.execute(TABLE, "INSERT INTO items SELECT seq, 'x' FROM seq_1_to_5000")
    database.execute("ANALYZE TABLE items")
    worker.put(name, config(database, name, snapshot_fetch_size="1"))
    topics.read(f"{name}.{database.name}.items", 10)
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
    assert (snapshot["table"], snapshot["table_number"], snapshot["tables"]) == (
        f"{database.name}.items",
        1,
        1,
    )
    assert 0 < snapshot["rows"] < 5000 and 2500 < snapshot["estimated_rows"] < 7500
    words = ["connect", "status", name, "--url", worker.url]
    shown = subprocess.run(
        [sys.executable, "-m", "penstock", *words], capture_output=True, text=True, check=True
    )
    wanted = f"snapshot of {snapshot['table']} (table 1 of 1): {snapshot['rows']:,} of about "
    assert wanted in shown.stdout + shown.stderr
    assert worker.http.put(f"/connectors/{name}/config", json=config(database, name)).status_code == 200
    assert worker.http.put(f"/connectors/{name}/resume").status_code == 202
    topics.read_all(f"{name}.{database.name}.items", lambda found: 5000 in ids(found), "the last row")
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
    "MySQL: restarts of the source at any point, and of the server, lose nothing and repeat only what "
    "was not committed",
)
@pytest.mark.parametrize(
    "once",
    [pytest.param(False, id="at-least-once", marks=pytest.mark.long), pytest.param(True, id="exactly-once")],
)
def test_kills_under_load_lose_nothing(
    database: Database, broker: PenstockBroker, workers: Workers, topics: Topics, name: str, once: bool
) -> None:
    database.execute(TABLE, "INSERT INTO items SELECT seq, 'snapshot' FROM seq_1_to_1000")
    options = [*group(name), *(["--set", "exactly.once.source.support=enabled"] if once else [])]
    settings = config(database, name, snapshot_fetch_size="100", max_batch_size="500")
    if once:
        settings["exactly.once.support"] = "required"
    stop = threading.Event()
    last = [1000]

    def write() -> None:
        connection = database.server.connect(database.name)
        with connection.cursor() as cursor:
            while not stop.wait(0.05):
                first = last[0] + 1
                cursor.execute(f"INSERT INTO items SELECT seq, 'change' FROM seq_{first}_to_{first + 9}")
                last[0] += 10
        connection.close()

    topic = f"{name}.{database.name}.items"
    writer = threading.Thread(target=write)
    worker = workers.start(broker.bootstrap, *options)
    worker.put(name, settings)
    # The snapshot has begun: what is written from now on is a change.
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
