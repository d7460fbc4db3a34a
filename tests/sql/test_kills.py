"""kill -9 of SQL servers under load: a restarted or second server goes on, and every result is exact."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.testing import PenstockBroker
from tests.registry.conftest import Registries, RegistryProcess
from tests.repetitions import LONG
from tests.sql.conftest import BROKER_SETTINGS
from tests.sql.serving import SqlServer

WAIT_SECONDS = 180.0
PER_SECOND = 100
KEYS = 20
STATEMENTS = """
CREATE STREAM load (id BIGINT, name STRING) WITH (topic = 'load', format = 'json', partitions = 2);
CREATE STREAM copied AS SELECT id, name, id * 2 AS twice FROM load;
CREATE TABLE counted AS SELECT name, COUNT(*) AS n, SUM(id) AS total FROM load GROUP BY name;
"""


@pytest.fixture
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker(BROKER_SETTINGS) as broker:
        yield broker


@pytest.fixture
def registry(broker: PenstockBroker, tmp_path: Path) -> Iterator[RegistryProcess]:
    started = Registries(tmp_path)
    try:
        yield started.start(broker.bootstrap)
    finally:
        started.close()


@pytest.fixture
def servers(
    broker: PenstockBroker, registry: RegistryProcess, tmp_path: Path
) -> Iterator[Callable[[], SqlServer]]:
    """Servers of one cluster, with one place for their checkpoints."""
    started: list[SqlServer] = []

    def start() -> SqlServer:
        started.append(SqlServer(broker.bootstrap, registry.url, tmp_path / "sql"))
        return started[-1]

    yield start
    for server in started:
        server.stop()


class Load:
    """Numbered records at a steady pace, until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        )
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self.sent = 0

    def start(self) -> None:
        self._thread.start()

    def _send(self) -> None:
        while not self._enough.wait(0.05):
            for _ in range(PER_SECOND // 20):
                name = f"k{self.sent % KEYS}"
                self._producer.produce("load", json.dumps({"id": self.sent, "name": name}), key=name)
                self.sent += 1
            self._producer.poll(0)

    def stop(self) -> None:
        self._enough.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


def copied(broker: PenstockBroker) -> list[int]:
    records = broker.consume("copied", isolation="read_committed", timeout=60)
    values = [json.loads(record.value or b"") for record in records]
    assert all(value["twice"] == 2 * value["id"] for value in values)
    return [value["id"] for value in values]


def counted(broker: PenstockBroker) -> dict[str, tuple[int, int]]:
    records = broker.consume("counted", isolation="read_committed", timeout=60)
    newest = {record.key: json.loads(record.value or b"null") for record in records}
    return {value["name"]: (value["n"], value["total"]) for value in newest.values()}


def wait_until(condition: Callable[[], bool], what: str, servers: list[SqlServer]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    asked = time.monotonic()
    while not condition():
        if time.monotonic() > deadline:
            logs = "\n".join(server.log.read_text()[-3000:] for server in servers)
            raise AssertionError(f"{what} did not come true:\n{logs}")
        # As long again as reading took: the cores are for the queries that are awaited.
        time.sleep(max(0.1, time.monotonic() - asked))
        asked = time.monotonic()


def leads(server: SqlServer) -> bool:
    with server.client() as client:
        return bool(client.http.get("/info").json()["leads"])


@pytest.mark.promise(
    "sql",
    "The results in a stream and in a table are exact after SQL servers were killed with kill -9 under "
    "load, restarted, replaced by another server, and killed during a takeover",
)
@pytest.mark.repeated
@pytest.mark.timeout(600)
def test_results_are_exact_after_servers_are_killed_under_load(
    broker: PenstockBroker, servers: Callable[[], SqlServer]
) -> None:
    moment = random.Random(7)
    first = servers().wait()
    with first.client() as client:
        client.ok(STATEMENTS)
    second, third = servers(), servers()
    load = Load(broker.bootstrap)
    load.start()
    alive = [first]

    def goes_on() -> None:
        """Both queries write what was sent after now: whoever runs them has read past it."""
        sent = load.sent
        wait_until(lambda: max(copied(broker), default=-1) > sent, f"a copy of record {sent}", alive)
        wait_until(lambda: sum(n for n, _ in counted(broker).values()) > sent, f"{sent} counted", alive)

    second.wait()
    third.wait()
    goes_on()
    time.sleep(moment.random())
    first.kill()
    # While one of those that stand by takes over, or just after, that one is killed, too.
    time.sleep(3 + 2 * moment.random())
    leading = second if leads(second) else third
    leading.kill()
    last = third if leading is second else second
    alive = [last]
    goes_on()
    if LONG:
        last.kill()
        last = servers().wait()  # nobody was left, and this one goes on
        alive = [last]
        goes_on()
    load.stop()

    expected = Counter(range(load.sent))
    wait_until(lambda: len(copied(broker)) >= load.sent, "the copy of all records", alive)
    assert Counter(copied(broker)) == expected
    sums = {f"k{key}": (len(ids), sum(ids)) for key in range(KEYS) if (ids := range(key, load.sent, KEYS))}
    wait_until(lambda: sum(n for n, _ in counted(broker).values()) >= load.sent, "all counted", alive)
    assert counted(broker) == sums

    with last.client() as client:
        states = {query["id"]: query["state"] for query in client.http.get("/queries").json()}
        assert set(states.values()) == {"RUNNING"}, states
        assert client.rows("SELECT n, total FROM counted WHERE name = 'k3';") == [list(sums["k3"])]
