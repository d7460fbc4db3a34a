"""Connect workers as real processes on a real broker; the tests of a module share one of each."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.testing import PenstockBroker

if TYPE_CHECKING:
    from tests.connect.postgres.server import PostgresServer

START_SECONDS = 60.0
WAIT_SECONDS = 90.0
PLUGINS = Path(__file__).parent / "plugins"


class Worker:
    """One `penstock connect`."""

    def __init__(self, bootstrap: str, directory: Path, *options: str, port: int = 0) -> None:
        self.directory = directory
        self.log = directory / f"worker-{time.monotonic_ns()}.log"
        self._ready_file = self.log.with_suffix(".json")
        words = ["connect", "-b", bootstrap, "--port", str(port), "--ready-file", str(self._ready_file)]
        words += ["--session-timeout-ms", "2000", "--set", f"plugin.path={PLUGINS}"]
        words += ["--set", "offset.flush.interval.ms=200"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock", *words, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait(self) -> Worker:
        deadline = time.monotonic() + START_SECONDS
        while not self._ready_file.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the worker did not start:\n{self.log.read_text()}")
            time.sleep(0.01)
        self.url: str = json.loads(self._ready_file.read_text())["connect"]
        self.id = self.url.rpartition("://")[2]
        self.http = httpx.Client(base_url=self.url, timeout=60.0, trust_env=False)
        return self

    def create(self, name: str, **config: object) -> dict[str, Any]:
        settings = {key.replace("__", "."): value for key, value in config.items()}
        answer = self.http.post("/connectors", json={"name": name, "config": settings})
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def put(self, name: str, config: dict[str, object]) -> dict[str, Any]:
        answer = self.http.put(f"/connectors/{name}/config", json=config)
        assert answer.status_code in (200, 201), answer.text
        found: dict[str, Any] = answer.json()
        return found

    def status(self, name: str) -> dict[str, Any]:
        answer = self.http.get(f"/connectors/{name}/status")
        found: dict[str, Any] = answer.json() if answer.status_code == 200 else {"connector": {}, "tasks": []}
        return found

    def until_running(self, name: str, tasks: int = 1) -> dict[str, Any]:
        def running() -> dict[str, Any] | None:
            found = self.status(name)
            states = [found["connector"].get("state"), *(task["state"] for task in found["tasks"])]
            return found if states == ["RUNNING"] * (tasks + 1) else None

        return until(running, f"{name} runs", lambda: f"{self.status(name)}\n{self.log.read_text()[-4000:]}")

    def until_state(self, name: str, state: str, task: int | None = 0) -> dict[str, Any]:
        def there() -> dict[str, Any] | None:
            found = self.status(name)
            if task is None:
                return found if found["connector"].get("state") == state else None
            return next(
                (each for each in found["tasks"] if each["id"] == task and each["state"] == state), None
            )

        return until(there, f"{name} is {state}", lambda: str(self.status(name)))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()


def until(
    check: Callable[[], Any], what: str, more: Callable[[], str] = lambda: "", seconds: float = WAIT_SECONDS
) -> Any:
    """What `check` gives once it gives something."""
    deadline = time.monotonic() + seconds
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what} {more()}")
        time.sleep(0.02)


# A group of one need not wait for others; the workers of the tests have short sessions.
BROKER = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1000}


class Workers:
    """Starts workers and stops what is left of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._all: list[Worker] = []

    def start(self, bootstrap: str, *options: str, wait: bool = True, port: int = 0) -> Worker:
        worker = Worker(bootstrap, self.directory, *options, port=port)
        self._all.append(worker)
        return worker.wait() if wait else worker

    def close(self) -> None:
        for worker in self._all:
            if worker.process.poll() is None:
                worker.process.send_signal(signal.SIGTERM)
        for worker in self._all:
            worker.stop()


class Topics:
    """Records written and read by an ordinary client."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def write(self, topic: str, *records: Any, **more: Any) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap})
        for record in records:
            key, value = record if isinstance(record, tuple) else (None, record)
            producer.produce(topic, value, key, **more)
        assert producer.flush(30) == 0

    def read(self, topic: str, count: int, *, committed: bool = True) -> list[Any]:
        """The first `count` records of all partitions."""
        return self.read_all(
            topic, lambda found: len(found) >= count, f"{count} records in {topic}", committed
        )

    def read_all(
        self, topic: str, enough: Callable[[list[Any]], bool], what: str, committed: bool = True
    ) -> list[Any]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "test",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
            }
        )
        found: list[Any] = []
        try:
            deadline = time.monotonic() + WAIT_SECONDS
            partitions: dict[int, Any] = {}
            while not partitions:
                metadata = consumer.list_topics(topic, timeout=10).topics[topic]
                partitions = metadata.partitions if metadata.error is None else {}
                assert time.monotonic() < deadline, f"no topic {topic}"
                if not partitions:
                    time.sleep(0.05)
            consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
            while not enough(found):
                assert time.monotonic() < deadline, f"not {what}: {len(found)} so far"
                found += [each for each in consumer.consume(500, 0.2) if each.error() is None]
        finally:
            consumer.close()
        return found


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker(BROKER) as broker:
        yield broker


@pytest.fixture(scope="module")
def apache(broker: PenstockBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Apache Kafka's own Connect on the same broker."""
    from tests.connect.apache import apache_connect

    with apache_connect(broker.bootstrap, tmp_path_factory.mktemp("apache-connect")) as started:
        yield started


@pytest.fixture(scope="module")
def worker(broker: PenstockBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    started = Workers(tmp_path_factory.mktemp("connect"))
    yield started.start(broker.bootstrap)
    started.close()


@pytest.fixture(scope="session")
def shared_postgres() -> Iterator[PostgresServer]:
    """Started once for the tests of a pytest process. A test that stops it starts it again."""
    from tests.connect.postgres.server import PostgresServer, binaries

    if binaries() is None:
        pytest.skip("PostgreSQL's server is not installed (Debian and Ubuntu: apt install postgresql)")
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    started = Workers(tmp_path)
    yield started
    started.close()


@pytest.fixture
def topics(broker: PenstockBroker) -> Topics:
    return Topics(broker.bootstrap)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """For a connector and its topic: the test's own."""
    words = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name).strip("-")
    return f"{words[:70]}-{zlib.crc32(words.encode()):08x}"  # the ends of long names differ
