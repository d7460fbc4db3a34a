"""kill -9 in the middle of a compaction: its process ends with the broker, and no record is lost by it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from penstock.testing import PenstockBroker, WireClient
from penstock.wire.batches.records import Record, build_batch
from tests.clients.raw import produce

KEYS = 1000
ROUNDS = 150
WAIT = 30.0
COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": 2_000_000,
    "min.cleanable.dirty.ratio": 0.01,
}


def children_of(pid: int) -> set[int]:
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{entry}/stat") as file:
                if int(file.read().rpartition(")")[2].split()[1]) == pid:
                    found.add(int(entry))
    return found


def alive(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until(what: str, condition: object) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.002)


@pytest.mark.penstock(settings={"log.cleaner.backoff.ms": 15_000})
def test_the_cleaning_process_ends_with_its_broker_and_takes_no_record_with_it(
    penstock: PenstockBroker,
) -> None:
    penstock.create_topic("t", config=COMPACT)
    now = penstock.clock.now_ms()
    with WireClient(penstock.port) as wire:
        for turn in range(ROUNDS):
            records = [Record(0, now, b"key %d" % key, b"turn %d" % turn) for key in range(KEYS)]
            assert produce(wire, "t", build_batch(records)).error_code == 0
    directory = os.path.join(penstock.data_dir, "t-0")
    broker_pid = penstock.pid

    def advance() -> None:
        # It is killed before it can answer.
        with suppress(RuntimeError, ValueError):
            penstock.clock.advance(seconds=20)

    advancing = threading.Thread(target=advance)
    advancing.start()
    wait_until("a cleaned file", lambda: any(name.endswith(".cleaned") for name in os.listdir(directory)))
    children = children_of(broker_pid)
    os.kill(broker_pid, 9)
    advancing.join()
    assert children
    wait_until("the end of the cleaning process", lambda: not any(map(alive, children)))

    penstock.restart()
    newest = {record.key: record.value for record in penstock.consume("t")}
    assert newest == {b"key %d" % key: b"turn %d" % (ROUNDS - 1) for key in range(KEYS)}
    penstock.stop()
    command = [sys.executable, "-m", "penstock", "log", "verify", penstock.data_dir]
    outcome = subprocess.run(command, capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert not [name for name in os.listdir(directory) if name.endswith((".cleaned", ".swap"))]
