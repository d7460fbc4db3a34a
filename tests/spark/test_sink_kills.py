"""Exactly once, whatever is killed: a topic is copied to a topic and to Delta tables under kill -9.

Drivers (JVM and Python), Python workers and the broker are killed at random moments; drivers start again
from their checkpoints. In the end a read_committed reader of the topic, and a reader of the tables, see every
input exactly once, and the topic has each key's records in order. PENSTOCK_SEED repeats a schedule.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from penstock.client import LATEST, ClientSettings, Cluster
from tests.repetitions import times

if TYPE_CHECKING:
    from penstock.testing import PenstockBroker

KILLS = {"driver": times(1, 5), "worker": times(1, 8), "broker": times(1, 8)}
KEYS = 100
CHUNK = 500
APP = Path(__file__).with_name("killed_app.py")


def children(pid: int) -> list[int]:
    """The child processes of all threads of a process."""
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    except OSError:
        pass  # it has ended meanwhile
    return found


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class App:
    """The program under test, started again and again."""

    def __init__(self, bootstrap: str, home: Path) -> None:
        self._arguments = [sys.executable, str(APP), bootstrap, str(home)]
        self._home = home
        self.starts = 0
        self._start()

    def _start(self) -> None:
        self.starts += 1
        with (self._home / "app.log").open("ab") as log:
            self._process = subprocess.Popen(self._arguments, stdout=log, stderr=log, start_new_session=True)

    def keep_running(self) -> None:
        """Starts it again if it has ended by itself: a query may fail, and goes on from its checkpoint."""
        if self._process.poll() is not None and not (self._home / "done").exists():
            assert self.starts < 40, (self._home / "app.log").read_text()[-4000:]
            self._start()

    def jvms(self) -> list[int]:
        return [pid for pid in children(self._process.pid) if "java" in command(pid)]

    def workers(self) -> list[int]:
        daemons = [child for jvm in self.jvms() for child in children(jvm)]
        return [worker for daemon in daemons for worker in children(daemon)]

    def kill_driver(self) -> None:
        """The JVM and the Python beside it; workers and what they have under way are left to themselves."""
        victims = [self._process.pid, *self.jvms()]
        for pid in victims:
            kill(pid)
        self._process.wait()
        self._start()

    def running(self) -> bool:
        return (self._home / f"started-{self._process.pid}").exists()

    def wait(self, timeout: float) -> None:
        self._process.wait(timeout)

    def close(self) -> None:
        if self._process.poll() is None:
            for pid in [*self.workers(), *self.jvms(), self._process.pid]:
                kill(pid)
            self._process.wait()


def wait_until(condition: object, app: App, home: Path, *, timeout: float = 120.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + timeout
    while not condition():
        app.keep_running()
        if time.monotonic() > deadline:
            pytest.fail("no progress; the end of its log:\n" + (home / "app.log").read_text()[-4000:])
        time.sleep(0.02)


@pytest.mark.promise(
    "spark sinks",
    "A topic copied to a topic and to Delta tables is there exactly once, in order for each key, after "
    "kills of drivers, workers and brokers (21 kills in `make test-long`)",
)
@pytest.mark.slow
@pytest.mark.repeated
@pytest.mark.timeout(900)
def test_every_record_is_copied_exactly_once_through_kills_of_drivers_workers_and_brokers(
    penstock: PenstockBroker, tmp_path: Path
) -> None:
    seed = int(os.environ.get("PENSTOCK_SEED") or random.randrange(2**32))
    print(f"seed {seed}")
    chance = random.Random(seed)
    penstock.create_topic("in", partitions=4)
    penstock.create_topic("out", partitions=3)
    produced = 0

    def feed() -> None:
        nonlocal produced
        values = range(produced, produced + CHUNK)
        for partition in range(4):
            mine = [(f"key-{v % KEYS}", str(v)) for v in values if v % KEYS % 4 == partition]
            penstock.produce("in", mine, partition=partition)
        produced += CHUNK

    def copied() -> int:
        return sum(
            offset or 0 for offset in cluster.list_offsets({("out", p): LATEST for p in range(3)}).values()
        )

    plan = [what for what, times in KILLS.items() for _ in range(times)]
    chance.shuffle(plan)
    done: Counter[str] = Counter()
    begun = time.monotonic()
    feed()
    cluster = Cluster(ClientSettings.from_kafka({"bootstrap.servers": penstock.bootstrap}))
    app = App(penstock.bootstrap, tmp_path)
    try:
        for what in plan:
            # At a random moment of work that goes on, not of a start that is under way.
            before = copied()
            feed()
            wait_until(lambda before=before: app.running() and copied() > before, app, tmp_path)
            feed()
            time.sleep(chance.uniform(0, 0.8))
            if what == "driver":
                app.kill_driver()
            elif what == "broker":
                penstock.kill()
                time.sleep(chance.uniform(0, 0.5))
                penstock.restart()
            else:
                found: list[int] = []

                def one_runs(found: list[int] = found) -> bool:
                    found[:] = app.workers()
                    return bool(found)

                wait_until(one_runs, app, tmp_path)
                kill(chance.choice(found))
            done[what] += 1
            print(f"{time.monotonic() - begun:.1f} s: killed {what}, {copied()} offsets, {app.starts} starts")
        (tmp_path / "stop").touch()
        wait_until((tmp_path / "done").exists, app, tmp_path, timeout=240)
        app.wait(60)
    finally:
        app.close()
        cluster.close()
    assert done == KILLS
    print(f"{produced} records, {app.starts} starts, {sum(done.values())} kills")

    expected = Counter(range(produced))
    records = penstock.consume("out", isolation="read_committed")
    assert Counter(int(record.value) for record in records) == expected
    by_key: dict[bytes, list[int]] = {}
    for record in records:
        by_key.setdefault(record.key, []).append(int(record.value))
    assert all(values == sorted(values) for values in by_key.values())

    appended = DeltaTable(str(tmp_path / "appended")).to_pyarrow_table()
    assert Counter(appended["value"].to_pylist()) == expected
    upserted = DeltaTable(str(tmp_path / "upserted")).to_pyarrow_table().to_pylist()
    assert {row["key"]: row["value"] for row in upserted} == {
        f"key-{v % KEYS}": v for v in range(produced - KEYS, produced)
    }
    assert len(upserted) == KEYS
