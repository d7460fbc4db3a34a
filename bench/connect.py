"""Connect: a file to a topic, a topic to Parquet and to a file, changes of PostgreSQL to a topic, in one task
each; and Apache Kafka's Connect.

Both workers run on the same broker, one after the other, with the same file, the same topic and
StringConverter. A run counts from the first record that is seen at its destination to the last one, so that
the start of a process does not count. Without Maven there is no Apache Kafka Connect, and without PostgreSQL
there are no changes: their rows are left out. `python -m bench.connect [--quick]` measures this part alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from bench import wire
from bench.process import BrokerProcess, broker, cpu_seconds, scratch
from bench.report import Report, Result
from penstock.testing.ports import free_port
from penstock.wire.batches.records import Record, build_batch
from tests.tools import kafka_jars

TARGET = 300_000
LINE_BYTES = 100
FILE_RECORDS = 100_000
IN_BATCH = 5000
CHANGES_TARGET = 20_000
IN_TRANSACTION = 1000
START_S = 120.0
RUN_S = 600.0
STRING = "org.apache.kafka.connect.storage.StringConverter"
SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"


class Run:
    """How fast the records of one connector arrived, and the processor time of its worker for one of them."""

    def __init__(self, rate: float, microseconds: float) -> None:
        self.rate, self.microseconds = rate, microseconds

    @property
    def note(self) -> str:
        return f"{self.microseconds:.2f} µs of the worker's CPU time for a record"


class Side:
    """A worker that runs: Penstock's or Apache Kafka's."""

    def __init__(self, name: str, url: str, pid: int) -> None:
        import httpx

        self.name, self._pid = name, pid
        self._http = httpx.Client(base_url=url, timeout=60.0, trust_env=False)

    def cpu_seconds(self) -> dict[int, float]:
        """Of the worker and of the processes of its tasks, so far."""
        children = Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text().split()
        return {process: _cpu(process) for process in (self._pid, *map(int, children))}

    def run(self, name: str, config: dict[str, str], arrived: Callable[[], int], records: int) -> Run:
        """Create the connector, wait for the records, and delete it."""
        self.create(name, {**config, "value.converter": STRING})
        return self.watch(name, arrived, records)

    def create(self, name: str, config: dict[str, str]) -> None:
        answer = self._http.put(f"/connectors/{name}/config", json=config)
        if answer.is_error:
            raise RuntimeError(f"{name}: {answer.text}")

    def put(self, name: str, what: str) -> None:
        self._http.put(f"/connectors/{name}/{what}").raise_for_status()

    def until(self, name: str, state: str) -> None:
        """Until the connector's task is in this state."""

        def reached() -> bool:
            tasks = self._http.get(f"/connectors/{name}/status").json().get("tasks", [])
            return bool(tasks) and tasks[0]["state"] == state

        _until(reached, f"the task of {name} is {state}")

    def watch(self, name: str, arrived: Callable[[], int], records: int) -> Run:
        """Wait for the records, and delete the connector."""
        before: dict[int, float] = {}
        deadline = time.monotonic() + RUN_S
        first_count, first = 0, 0.0
        while (count := arrived()) < records:
            now = time.monotonic()
            if count and not first_count:
                first_count, first, before = count, now, self.cpu_seconds()
            if now > deadline:
                status = self._http.get(f"/connectors/{name}/status").json()
                raise RuntimeError(f"{self.name}: {count} of {records} records of {name}: {status}")
            time.sleep(0.01)
        elapsed = time.monotonic() - first if first_count else float("inf")
        spent = sum(total - before.get(pid, 0.0) for pid, total in self.cpu_seconds().items())
        self._http.delete(f"/connectors/{name}").raise_for_status()
        return Run((records - first_count) / elapsed, spent / max(records - first_count, 1) * 1e6)


def _cpu(pid: int) -> float:
    try:
        return cpu_seconds(pid)
    except FileNotFoundError:
        return 0.0


def measure(report: Report, *, records: int) -> None:
    records = max(records // FILE_RECORDS, 1) * FILE_RECORDS
    settings = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "true"}
    with scratch() as directory, broker(settings=settings) as process:
        lines = directory / "lines.txt"
        with lines.open("wb") as file:
            for start in range(0, records, 10_000):
                file.writelines(_line(number) + b"\n" for number in range(start, start + 10_000))
        wire.make_topic(process.port, "lines", 1)
        _fill(process, records)
        with penstock(process.bootstrap, directory) as ours:
            to_topic = _file_to_topic(ours, process, directory, lines, records)
            to_parquet = _topic_to_parquet(ours, directory, records)
            to_file = _topic_to_file(ours, directory, records)
            _changes_to_topic(report, ours, process, changes=records // 6)
        _add(report, "file to topic", to_topic, at_least=TARGET)
        _add(report, "topic to Parquet", to_parquet, at_least=TARGET)
        _add(report, "topic to file", to_file)
        try:
            jars = kafka_jars.fetch_connect()
        except kafka_jars.NotFetched as error:
            print(f"  Apache Kafka Connect is skipped: {error}")
            return
        with apache(process.bootstrap, jars, directory) as theirs:
            their_topic = _file_to_topic(theirs, process, directory, lines, records)
            their_file = _topic_to_file(theirs, directory, records)
        for what, our, their in (
            ("file to topic", to_topic, their_topic),
            ("topic to file", to_file, their_file),
        ):
            _add(report, f"{what}, Apache Kafka Connect", their)
            name = f"connect: {what}, times Apache Kafka Connect's"
            report.add(Result(name, our.rate / their.rate, "x", at_least=1.0))


def _add(report: Report, what: str, run: Run, at_least: float | None = None) -> None:
    report.add(Result(f"connect: {what}", run.rate, "records/s", at_least=at_least, note=run.note))


def _line(number: int) -> bytes:
    return f"{number:010d} a line of a log file, as long as most of them are ".encode().ljust(
        LINE_BYTES, b"."
    )


def _fill(process: BrokerProcess, records: int) -> None:
    now = int(time.time() * 1000)
    with wire.connect(process.port) as connection:
        for start in range(0, records, IN_BATCH):
            numbers = range(start, min(start + IN_BATCH, records))
            batch = build_batch([Record(n - start, now, None, _line(n)) for n in numbers])
            wire.round_trip(connection, wire.produce_request("lines", 0, batch))


def _file_to_topic(side: Side, process: BrokerProcess, directory: Path, lines: Path, records: int) -> Run:
    topic = f"from-file-{side.name}"
    wire.make_topic(process.port, topic, 1)
    watcher = Consumer({"bootstrap.servers": process.bootstrap, "group.id": "bench-connect"})
    config = {"connector.class": SOURCE, "file": str(lines), "topic": topic}
    place = TopicPartition(topic, 0)
    try:
        return side.run(topic, config, lambda: _end(watcher, place), records)
    finally:
        watcher.close()


def _end(watcher: Consumer, place: TopicPartition) -> int:
    found: Any = watcher.get_watermark_offsets(place, timeout=30)
    return int(found[1])


def _topic_to_parquet(side: Side, directory: Path, records: int) -> Run:
    root = directory / "parquet"
    config = {"connector.class": "LakeSink", "url": str(root), "topics": "lines", "key.converter": STRING}
    config |= {"flush.size": str(FILE_RECORDS), "rotate.interval.ms": "0"}
    return side.run(
        "to-parquet", config, lambda: FILE_RECORDS * len(list(root.rglob("[!.]*.parquet"))), records
    )


def _topic_to_file(side: Side, directory: Path, records: int) -> Run:
    path = directory / f"to-file-{side.name}.txt"
    config = {"connector.class": SINK, "topics": "lines", "file": str(path), "key.converter": STRING}

    def arrived() -> int:
        return path.stat().st_size // (LINE_BYTES + 1) if path.exists() else 0

    return side.run(f"to-file-{side.name}", config, arrived, records)


def _changes_to_topic(report: Report, side: Side, process: BrokerProcess, *, changes: int) -> None:
    """Inserts, updates and deletes that a replication slot has, once the connector reads its changes."""
    try:
        from tests.connect.postgres.server import PostgresServer, binaries
    except ImportError as error:
        print(f"  PostgreSQL change capture is skipped: {error}")
        return
    if binaries() is None:
        print("  PostgreSQL change capture is skipped: PostgreSQL's server is not installed")
        return
    server = PostgresServer()
    watcher = Consumer({"bootstrap.servers": process.bootstrap, "group.id": "bench-connect"})
    try:
        server.start()
        database = server.create_database("bench")
        database.execute(
            "CREATE TABLE items (id INT PRIMARY KEY, name TEXT, price NUMERIC(10, 2), changed TIMESTAMPTZ)",
            "ALTER DATABASE bench SET logical_decoding_work_mem = '64MB'",
        )
        place = TopicPartition("bench.public.items", 0)
        side.create("changes", {
            "connector.class": "PostgresConnector", "database.hostname": "127.0.0.1",
            "database.port": str(server.port), "database.user": "penstock", "database.dbname": "bench",
            "topic.prefix": "bench", "slot.name": "bench", "snapshot.mode": "no_data",
            "tombstones.on.delete": "false", "key.converter": "json", "key.converter.schemas.enable": "false",
            "value.converter": "json", "value.converter.schemas.enable": "false",
        })  # fmt: skip
        side.until("changes", "RUNNING")
        _until(lambda: database.query("SELECT 1 FROM pg_stat_replication"), "the connector reads changes")
        database.execute("INSERT INTO items VALUES (0, 'the first one', 0, now())")
        _until(lambda: place.topic in watcher.list_topics(timeout=30).topics, "the topic is there")
        _until(lambda: _end(watcher, place) == 1, "the first change is in the topic")
        # While they are written nothing else has the processors.
        side.put("changes", "pause")
        side.until("changes", "PAUSED")
        transactions = max(changes // IN_TRANSACTION, 1)
        database.execute(*(_transaction(number) for number in range(transactions)))
        ((walsender,),) = database.query("SELECT pid FROM pg_stat_replication")
        decoding = _cpu(walsender)
        side.put("changes", "resume")
        run = side.watch("changes", lambda: _end(watcher, place) - 1, transactions * IN_TRANSACTION)
        decoded = (_cpu(walsender) - decoding) / (transactions * IN_TRANSACTION) * 1e6
    finally:
        watcher.close()
        server.close()
    report.add(
        Result(
            "connect: PostgreSQL changes to topic",
            run.rate,
            "changes/s",
            at_least=CHANGES_TARGET,
            note=f"{run.note}, {decoded:.2f} µs of the walsender's",
        )
    )


def _transaction(number: int) -> str:
    """Of 1,000 rows: 500 are inserted, 300 of them updated, 200 deleted."""
    first = number * 500 + 1
    return (
        f"BEGIN; INSERT INTO items SELECT id, 'item ' || id, id % 10000 / 100.0, now() "
        f"FROM generate_series({first}, {first + 499}) AS id; "
        f"UPDATE items SET price = price + 1, changed = now() WHERE id BETWEEN {first} AND {first + 299}; "
        f"DELETE FROM items WHERE id BETWEEN {first + 300} AND {first + 499}; COMMIT"
    )


def _until(ready: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + START_S
    while not ready():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not in {START_S:g} s: {what}")
        time.sleep(0.05)


@contextmanager
def penstock(bootstrap: str, directory: Path) -> Iterator[Side]:
    port = free_port()
    words = ["connect", "-b", bootstrap, "--port", str(port), "--set", "offset.flush.interval.ms=1000"]
    with _process([sys.executable, "-m", "penstock", *words], "penstock", port, directory) as side:
        yield side


@contextmanager
def apache(bootstrap: str, jars: Path, directory: Path) -> Iterator[Side]:
    port = free_port()
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "apache",
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": STRING,
        "value.converter": STRING,
        "offset.flush.interval.ms": "1000",
        "plugin.discovery": "service_load",
    }
    for kind in ("offset", "config", "status"):
        settings |= {f"{kind}.storage.topic": f"apache-{kind}", f"{kind}.storage.replication.factor": "1"}
    path = directory / "apache.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    # The JVM with its own compiler and collector, as Kafka's scripts start it.
    words = ["java", "-Xms256m", "-Xmx2g", "-XX:+UseG1GC", "-cp", f"{jars}/*"]
    words += ["org.apache.kafka.connect.cli.ConnectDistributed", str(path)]
    with _process(words, "apache", port, directory) as side:
        yield side


@contextmanager
def _process(words: list[str], name: str, port: int, directory: Path) -> Iterator[Side]:
    import httpx

    log = directory / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_S
        while True:
            try:
                if httpx.get(f"{url}/connectors", trust_env=False).status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{name} did not start:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.1)
        yield Side(name, url, process.pid)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


if __name__ == "__main__":
    print(f"{os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}")
    measure(Report(), records=500_000 if "--quick" in sys.argv else 3_000_000)
