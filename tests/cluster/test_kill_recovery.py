"""kill -9 under load, many times: nothing acknowledged is missing, nothing is there twice, the log verifies.

An idempotent producer writes numbers in order to a topic that is flushed at every message and to one
that is left to the page cache, which outlives the process. So each log must hold 0, 1, 2, ... without
a hole or a repetition, and reach at least as far as the last number that was acknowledged.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from penstock.testing import PenstockBroker
from tests.repetitions import times

KILLS = times(6, 25)
TOPICS = ["flushed", "cached"]
WAIT = 30.0


class Load:
    """A thread that produces numbers to each topic, and keeps what was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged = dict.fromkeys(TOPICS, -1)
        self.failures: list[object] = []
        self._progress = threading.Condition()
        self._acks = 0
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "batch.num.messages": 50,
                "queue.buffering.max.messages": 1000,
                "message.timeout.ms": 300_000,
                "retry.backoff.ms": 10,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                # The broker that goes away is the point of the test, not news.
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            for topic in TOPICS:
                while not self._stopping.is_set():
                    try:
                        self._producer.produce(topic, b"%d" % number, on_delivery=self._delivered)
                    except BufferError:
                        self._producer.poll(0.05)
                    else:
                        break
            number += 1
            self._producer.poll(0)

    def _delivered(self, error: object, message: object) -> None:
        with self._progress:
            if error is not None:
                self.failures.append(error)
            else:
                topic, number = message.topic(), int(message.value())  # type: ignore[attr-defined]
                if number != self.acknowledged[topic] + 1:
                    self.failures.append(f"{topic}: {number} acknowledged after {self.acknowledged[topic]}")
                self.acknowledged[topic] = number
            self._acks += 1
            self._progress.notify_all()

    def wait_for(self, acks: int) -> None:
        """Returns when so many more records have been acknowledged."""
        with self._progress:
            target = self._acks + acks
            assert self._progress.wait_for(lambda: self._acks >= target, WAIT), "the load stands still"

    def snapshot(self) -> dict[str, int]:
        with self._progress:
            return dict(self.acknowledged)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(WAIT) == 0

    def abandon(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.purge()


class Checker:
    """Reads each log where it left off, and checks that the numbers go on without hole or repetition."""

    def __init__(self, broker: PenstockBroker) -> None:
        self._broker = broker
        self._next = dict.fromkeys(TOPICS, 0)

    def check(self, acknowledged: dict[str, int]) -> None:
        for topic in TOPICS:
            expected = self._next[topic]
            for record in self._broker.consume(topic, offset=expected):
                assert record.value == b"%d" % expected, f"{topic}: offset {record.offset}"
                assert record.offset == expected
                expected += 1
            assert expected > acknowledged[topic], f"{topic}: acknowledged records are missing"
            self._next[topic] = expected

    def verify_files(self) -> None:
        # Stopped in the middle of its work, so that the files hold still but are those of a running broker.
        self._broker.pause()
        try:
            command = [sys.executable, "-m", "penstock", "log", "verify", self._broker.data_dir]
            outcome = subprocess.run(command, capture_output=True, text=True)
            assert outcome.returncode == 0, outcome.stdout + outcome.stderr
        finally:
            self._broker.resume()


@pytest.fixture
def load(penstock: PenstockBroker) -> Iterator[Load]:
    small_segments = {"segment.bytes": 200_000, "index.interval.bytes": 1000}
    penstock.create_topic("flushed", config={"flush.messages": 1, **small_segments})
    penstock.create_topic("cached", config=small_segments)
    running = Load(penstock.bootstrap)
    yield running
    running.abandon()


@pytest.mark.promise(
    "crashes",
    "After repeated kill -9 under load no acknowledged record is lost or duplicated, and the log verifies",
)
@pytest.mark.slow
@pytest.mark.repeated
def test_nothing_acknowledged_is_lost_or_doubled_by_kill_9(penstock: PenstockBroker, load: Load) -> None:
    chance = random.Random(20_090)
    checker = Checker(penstock)
    for kill in range(KILLS):
        load.wait_for(chance.randrange(1, 1500))
        penstock.kill()
        acknowledged = load.snapshot()
        penstock.start()
        if kill % 5 == 4:
            # Once more, while it has hardly come back and the clients are just connecting.
            penstock.kill()
            acknowledged = load.snapshot()
            penstock.start()
        checker.check(acknowledged)
        checker.verify_files()
    load.stop()
    checker.check(load.snapshot())
    assert load.failures == []
