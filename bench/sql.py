"""Continuous SQL: Nexmark's queries 1 and 5 over bids in JSON, and pull queries over HTTP.

`penstock sql serve` as it is, on the same two cores as the broker and the registry. The topic is filled
beforehand; a query counts from the moment its statement is sent to the moment its last row is committed,
after runs of the same query that do not count. `python -m bench.sql [--quick]` measures this part alone.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import wire
from bench.process import BrokerProcess, broker, scratch
from bench.registry import registry
from bench.report import Report, Result
from penstock.wire.batches.records import Record, build_batch

PARTITIONS = 4
RECORDS_IN_BATCH = 5000
WARM_UP_ROUNDS = 2
PULL_KEYS = 1000
PULL_CHANGES_PER_SECOND = 200
START_TIMEOUT_S = 120.0
QUERY_TIMEOUT_S = 600.0

BID = """
CREATE STREAM bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, date_time BIGINT)
  WITH (topic = 'bid', format = 'json', timestamp = 'date_time');
"""
# What is measured in queries 1 and 5; examples/sql/nexmark.sql has all of them.
QUERY_1 = """
CREATE STREAM {name} AS
  SELECT auction, bidder, CAST(0.908 * price AS DOUBLE) AS price, date_time FROM bid;
"""
QUERY_5 = """
CREATE TABLE {name}_counts AS
  SELECT auction, COUNT(*) AS bids
  FROM bid WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 2 SECONDS)
  GROUP BY auction;
CREATE TABLE {name} AS
  SELECT window_start, window_end, auction, bids
  FROM (SELECT *, RANK() OVER (PARTITION BY window_start ORDER BY bids DESC) AS place FROM {name}_counts)
  WHERE place = 1;
"""

# Two cheap bids of a bidder and then a dear one: about one event in 500 ends a match.
PATTERN = """
  bid MATCH_RECOGNIZE (
    PARTITION BY bidder ORDER BY date_time
    MEASURES FIRST(LOW.price) AS low, HIGH.price AS high
    PATTERN (LOW{{2}} HIGH) WITHIN 10 SECONDS GRACE PERIOD 2 SECONDS
    DEFINE LOW AS price < 1000, HIGH AS price > 10000000
  )
"""
QUERY_PATTERN = f"CREATE STREAM {{name}} AS SELECT bidder, low, high FROM {PATTERN};"


def measure(report: Report, *, quick: bool) -> None:
    try:
        import httpx
        import pyspark  # noqa: F401
        import sqlglot  # noqa: F401
    except ImportError as missing:
        print(f"  skipped: {missing.name} is not installed")
        return
    events = 1_000_000 if quick else 4_000_000
    # The events have times of long ago: retention would delete them between two rounds.
    with scratch() as directory, broker(settings={"log.retention.ms": "-1"}) as process:
        bids = fill(process, events)
        with registry(process.bootstrap, directory) as (port, *_), server(process, port, directory) as url:
            with httpx.Client(base_url=url, timeout=QUERY_TIMEOUT_S, trust_env=False) as client:
                bench = Bench(report, client, process, bids)
                run(client, BID)
                bench.query_1(rounds=2 if quick else 5)
                bench.query_5(rounds=1 if quick else 3)
                bench.pattern(rounds=1 if quick else 3)
                bench.pull(seconds=3 if quick else 10)
                bench.close()


def fill(process: BrokerProcess, events: int) -> int:
    """The bids among the events, spread over the partitions in turns; how many they are."""
    from examples.sql import nexmark

    wire.make_topic(process.port, "bid", PARTITIONS)
    count = turn = 0
    with wire.connect(process.port) as connection:
        for chunk in nexmark.events(events):
            values = nexmark.json_values(chunk.bid).to_pylist()
            times = chunk.bid.column("date_time").to_pylist()
            keys = chunk.bid.column("auction").to_pylist()
            for start in range(0, len(values), RECORDS_IN_BATCH):
                end = min(start + RECORDS_IN_BATCH, len(values))
                batch = build_batch([
                    Record(place - start, times[place], str(keys[place]).encode(), values[place].encode())
                    for place in range(start, end)
                ])  # fmt: skip
                wire.round_trip(connection, wire.produce_request("bid", turn % PARTITIONS, batch))
                turn += 1
            count += len(values)
    return count


@contextmanager
def server(process: BrokerProcess, registry_port: int, directory: Path) -> Iterator[str]:
    """`penstock sql serve`, and its address."""
    ready = directory / "sql.json"
    words = ["sql", "serve", "-b", process.bootstrap, "--registry", f"http://127.0.0.1:{registry_port}"]
    words += ["--port", "0", "--data", str(directory / "sql"), "--ready-file", str(ready)]
    words += ["--master", "local[2]", "--conf", "spark.driver.memory=2g"]
    with (directory / "sql.log").open("wb") as log:
        # Its own group: Java ends with it.
        serving = subprocess.Popen(
            [sys.executable, "-m", "penstock", *words], stdout=log, stderr=log, start_new_session=True
        )
    deadline = time.perf_counter() + START_TIMEOUT_S
    try:
        while not ready.exists():
            if serving.poll() is not None or time.perf_counter() > deadline:
                raise RuntimeError("the SQL server did not start:\n" + (directory / "sql.log").read_text())
            time.sleep(0.02)
        yield json.loads(ready.read_text())["sql"]
    finally:
        serving.send_signal(signal.SIGTERM)
        try:
            serving.wait(60)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(serving.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        serving.wait()


def run(client: Any, sql: str) -> list[list[Any]]:
    """The rows of the last statement; RuntimeError if one is refused."""
    rows: list[list[Any]] = []
    answer = client.post("/sql", json={"sql": sql})
    for line in map(json.loads, filter(None, answer.text.splitlines())):
        if "error" in line:
            raise RuntimeError(f"{line} at: {sql}")
        if "statement" in line:
            rows = []
        elif "row" in line:
            rows.append(line["row"])
    return rows


class Bench:
    """The measurements, against one server."""

    def __init__(self, report: Report, client: Any, process: BrokerProcess, bids: int) -> None:
        from confluent_kafka import Consumer

        self._report = report
        self._client = client
        self._process = process
        self._bids = bids
        self._reader = Consumer({
            "bootstrap.servers": process.bootstrap, "group.id": "bench", "enable.auto.commit": False,
            "isolation.level": "read_committed", "enable.partition.eof": True,
        })  # fmt: skip

    def close(self) -> None:
        self._reader.close()

    def query_1(self, rounds: int) -> None:
        def committed(name: str) -> bool:
            return self._ends(name) >= self._bids

        rates = self._rounds(QUERY_1, committed, rounds, check=lambda name: self._count(name) == self._bids)
        self._report.add(self._rate("query 1, every bid converted", rates, 300_000))

    def query_5(self, rounds: int) -> None:
        expected = self._hot_items()

        def committed(name: str) -> bool:
            return self._newest(name) == expected

        rates = self._rounds(QUERY_5, committed, rounds, check=lambda name: True)
        self._report.add(self._rate("query 5, hot items in hopping windows", rates, 150_000))

    def pattern(self, rounds: int) -> None:
        """Up to the last match that is certain: those of the last two seconds wait for later bids."""
        certain = "(SELECT MAX(__timestamp) - INTERVAL 2 SECONDS FROM bid)"
        counted = f"SELECT COUNT(*) FROM {PATTERN.format()} WHERE __timestamp <= {certain};"
        expected = int(run(self._client, counted)[0][0])

        def committed(name: str) -> bool:
            return self._ends(name) >= expected and self._count(name) >= expected

        rates = self._rounds(QUERY_PATTERN, committed, rounds, lambda name: self._count(name) == expected)
        self._report.add(self._rate(f"a pattern of three bids, {expected:,} matches", rates, 100_000))

    def _rate(self, name: str, rates: list[float], target: float) -> Result:
        return Result(
            name,
            statistics.median(rates),
            "events/s",
            at_least=target,
            note=f"{min(rates):,.0f} to {max(rates):,.0f}; {self._bids:,} events",
        )

    def _rounds(
        self, sql: str, committed: Callable[[str], bool], rounds: int, check: Callable[[str], bool]
    ) -> list[float]:
        rates = []
        for number in range(-WARM_UP_ROUNDS, rounds):
            name = f"r{random.randrange(1 << 40):x}"
            began = time.perf_counter()
            run(self._client, sql.format(name=name))
            while not committed(name):
                if time.perf_counter() - began > QUERY_TIMEOUT_S:
                    raise RuntimeError(
                        f"no end after {QUERY_TIMEOUT_S} s: {run(self._client, 'SHOW QUERIES;')}"
                    )
                time.sleep(0.02)
            if number >= 0:
                rates.append(self._bids / (time.perf_counter() - began))
            if not check(name):
                raise RuntimeError(f"the result of {sql.format(name=name)} is not what it must be")
            run(self._client, "TERMINATE ALL;")
        return rates

    # --- what is in a topic ------------------------------------------------------------------------------

    def _ends(self, topic: str) -> int:
        """The sum of the partitions' last stable offsets: records and marks of transactions."""
        from confluent_kafka import TopicPartition

        return sum(
            self._reader.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1]
            for number in self._partitions(topic)
        )

    def _partitions(self, topic: str) -> list[int]:
        found = self._reader.list_topics(topic, timeout=30).topics[topic]
        return [] if found.error is not None else list(found.partitions)

    def _read(self, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
        """All committed records there are."""
        from confluent_kafka import KafkaError, TopicPartition

        numbers = self._partitions(topic)
        self._reader.assign([TopicPartition(topic, number, 0) for number in numbers])
        open_partitions = set(numbers)
        while open_partitions:
            for message in self._reader.consume(10_000, timeout=1.0):
                error = message.error()
                if error is None:
                    yield message.key(), message.value()
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
                else:
                    raise RuntimeError(error)
        self._reader.unassign()

    def _count(self, topic: str) -> int:
        return sum(1 for _ in self._read(topic))

    def _newest(self, topic: str) -> set[tuple[str, int, int]]:
        """Window, auction and bids of the hot items."""
        newest = dict(self._read(topic))
        rows = [json.loads(value) for value in newest.values() if value is not None]
        return {(row["window_start"][:19], row["auction"], row["bids"]) for row in rows}

    def _hot_items(self) -> set[tuple[str, int, int]]:
        """The same, by counting."""
        import numpy as np
        import pandas as pd

        from examples.sql import nexmark

        pieces = []
        events = self._bids * nexmark.CYCLE // nexmark.BIDS
        for chunk in nexmark.events(events):
            hop = chunk.bid.column("date_time").to_numpy() // 2000
            auction = chunk.bid.column("auction").to_numpy()
            code, bids = np.unique(hop << 32 | auction, return_counts=True)
            pieces.append(pd.Series(bids, index=code))
        hops = pd.concat(pieces).groupby(level=0).sum()
        counts: dict[int, dict[int, int]] = {}
        for code, bids in hops.items():
            for back in range(5):
                window = counts.setdefault((code >> 32) - back, {})
                window[code & 0xFFFFFFFF] = window.get(code & 0xFFFFFFFF, 0) + int(bids)
        hot = set()
        for start, window in counts.items():
            most = max(window.values())
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(start * 2))
            hot |= {(text, auction, bids) for auction, bids in window.items() if bids == most}
        return hot

    # --- pull --------------------------------------------------------------------------------------------

    def pull(self, seconds: float) -> None:
        """Milliseconds of a pull query, one after the other, while the table changes."""
        from confluent_kafka import Producer

        run(
            self._client,
            "CREATE STREAM changes (name STRING, n BIGINT)"
            " WITH (topic = 'changes', format = 'json', partitions = 4);"
            "CREATE TABLE latest AS SELECT name, COUNT(*) AS n, SUM(n) AS total FROM changes GROUP BY name;",
        )
        producer = Producer({"bootstrap.servers": self._process.bootstrap, "linger.ms": 5})
        enough = threading.Event()

        def change() -> None:
            number = 0
            while not enough.wait(0.05):
                for _ in range(PULL_CHANGES_PER_SECOND // 20):
                    name = f"k{number % PULL_KEYS}"
                    producer.produce("changes", json.dumps({"name": name, "n": number}), name)
                    number += 1
                producer.poll(0)

        for number in range(PULL_KEYS):
            producer.produce("changes", json.dumps({"name": f"k{number}", "n": 0}), f"k{number}")
        producer.flush()
        deadline = time.perf_counter() + QUERY_TIMEOUT_S
        while not all(self._pull(f"k{number}") for number in range(PULL_KEYS)):
            if time.perf_counter() > deadline:
                raise RuntimeError("the table was not filled")
            time.sleep(0.1)
        thread = threading.Thread(target=change, daemon=True)
        thread.start()
        chosen = random.Random(1)
        before = sum(self._pull(f"k{number}")[0][0] for number in range(100))
        times = []
        ends = time.perf_counter() + seconds
        while (began := time.perf_counter()) < ends:
            if len(self._pull(f"k{chosen.randrange(PULL_KEYS)}")) != 1:
                raise RuntimeError("a row was not found")
            times.append(time.perf_counter() - began)
        changed = sum(self._pull(f"k{number}")[0][0] for number in range(100)) - before
        enough.set()
        thread.join()
        producer.flush()
        run(self._client, "TERMINATE ALL;")
        if not changed:
            raise RuntimeError("the table did not change meanwhile")
        times.sort()
        self._report.add(
            Result("pull query, p50", times[len(times) // 2] * 1000, "ms", at_most=10),
            Result(
                "pull query, p99", times[int(len(times) * 0.99)] * 1000, "ms", note=f"{len(times):,} of them"
            ),
        )

    def _pull(self, key: str) -> list[list[Any]]:
        return run(self._client, f"SELECT n, total FROM latest WHERE name = '{key}';")


if __name__ == "__main__":
    measure(Report(), quick="--quick" in sys.argv)
