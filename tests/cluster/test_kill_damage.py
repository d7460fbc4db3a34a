"""What a crash or a bad disk can leave behind: after a restart all whole batches are there, once, and verify.

Each case kills the broker, does something to its files, starts it again and compares what consumers read.
"""

from __future__ import annotations

import glob
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from penstock.testing import PenstockBroker, WireClient
from tests.clients.raw import batch_of, init_producer, produce

RECORDS = 60


def verify(broker: PenstockBroker) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", "log", "verify", broker.data_dir]
    return subprocess.run(command, capture_output=True, text=True)


def values(broker: PenstockBroker) -> list[bytes | None]:
    return [record.value for record in broker.consume("t")]


def value(number: int) -> bytes:
    return b"%d" % number + b"." * 400


class Files:
    """The files of partition 0."""

    def __init__(self, broker: PenstockBroker) -> None:
        self.data_dir = broker.data_dir
        self.directory = os.path.join(broker.data_dir, "t-0")

    def all(self, suffix: str) -> list[str]:
        found = sorted(glob.glob(os.path.join(self.directory, f"*{suffix}")))
        assert found, suffix
        return found

    def first(self, suffix: str) -> str:
        return self.all(suffix)[0]

    def last(self, suffix: str) -> str:
        return self.all(suffix)[-1]


def cut(path: str, count: int) -> None:
    os.truncate(path, max(os.path.getsize(path) - count, 0))


def overwrite(path: str, data: bytes, position: int = 0) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def append(path: str, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def remove_all(paths: list[str]) -> None:
    for path in paths:
        os.remove(path)


# Nothing of these may cost a record.
HARMLESS: dict[str, Callable[[Files], object]] = {
    "nothing": lambda files: None,
    "garbage after the last batch": lambda files: append(files.last(".log"), os.urandom(300)),
    "zeros after the last batch": lambda files: append(files.last(".log"), bytes(5000)),
    "half a batch after the last": lambda files: append(files.last(".log"), batch_of([b"x" * 999])[:500]),
    "no offset indexes": lambda files: remove_all(files.all(".index")),
    "no time indexes": lambda files: remove_all(files.all(".timeindex")),
    "no index at all": lambda files: remove_all([*files.all(".index"), *files.all(".timeindex")]),
    "an index that ends in half an entry": lambda files: cut(files.first(".index"), 3),
    "an empty index": lambda files: os.truncate(files.first(".index"), 0),
    "an index of garbage": lambda files: overwrite(files.last(".index"), os.urandom(64)),
    "a time index of garbage": lambda files: overwrite(files.last(".timeindex"), os.urandom(60)),
    "no producer snapshots": lambda files: remove_all(glob.glob(os.path.join(files.directory, "*.snapshot"))),
    "no leader epochs": lambda files: os.remove(os.path.join(files.directory, "leader-epoch-checkpoint")),
    "leader epochs of garbage": lambda files: overwrite(
        os.path.join(files.directory, "leader-epoch-checkpoint"), b"\x00\xff garbage"
    ),
    "checkpoints of garbage": lambda files: [
        append(os.path.join(files.data_dir, name), b"\nnot a number\n")
        for name in os.listdir(files.data_dir)
        if name.endswith("-checkpoint")
    ],
    "no checkpoints": lambda files: remove_all(glob.glob(os.path.join(files.data_dir, "*-checkpoint"))),
}


@pytest.fixture
def producer(penstock: PenstockBroker) -> Iterator[tuple[int, int]]:
    """A broker with records in several segments, written by one idempotent producer, one batch each."""
    penstock.create_topic("t", config={"segment.bytes": 8000, "index.interval.bytes": 500})
    with WireClient(penstock.port) as wire:
        identity = init_producer(wire)
        for number in range(RECORDS):
            answer = produce(wire, "t", batch_of([value(number)], producer=(*identity, number)))
            assert (answer.error_code, answer.base_offset) == (0, number)
    yield identity


# Each damage after one end of the broker in `make test`, after the other in `make test-long`.
ENDS = [
    pytest.param(damage, how, marks=[pytest.mark.long] if (at + turn) % 2 else [])
    for at, damage in enumerate(HARMLESS)
    for turn, how in enumerate(("stop", "kill"))
]


@pytest.mark.parametrize(("damage", "how"), ENDS)
def test_no_record_is_lost_or_doubled(
    penstock: PenstockBroker, producer: tuple[int, int], damage: str, how: str
) -> None:
    getattr(penstock, how)()
    HARMLESS[damage](Files(penstock))
    penstock.start()
    assert values(penstock) == [value(number) for number in range(RECORDS)]
    with WireClient(penstock.port) as wire:
        again = produce(wire, "t", batch_of([value(RECORDS - 1)], producer=(*producer, RECORDS - 1)))
        assert (again.error_code, again.base_offset) == (0, RECORDS - 1)
        new = produce(wire, "t", batch_of([b"new"], producer=(*producer, RECORDS)))
        assert (new.error_code, new.base_offset) == (0, RECORDS)
    penstock.stop()
    outcome = verify(penstock)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.parametrize("missing", [1, 100, 460])
def test_a_torn_tail_is_cut_at_the_last_whole_batch(
    penstock: PenstockBroker, producer: tuple[int, int], missing: int
) -> None:
    penstock.kill()
    cut(Files(penstock).last(".log"), missing)
    penstock.start()
    whole = RECORDS - 1
    assert values(penstock) == [value(number) for number in range(whole)]
    with WireClient(penstock.port) as wire:
        # The producer's state is that of the log: what was cut is not a duplicate now.
        again = produce(wire, "t", batch_of([value(whole)], producer=(*producer, whole)))
        assert (again.error_code, again.base_offset) == (0, whole)
    penstock.stop()
    outcome = verify(penstock)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_a_damaged_batch_in_a_closed_segment_costs_only_itself(
    penstock: PenstockBroker, producer: tuple[int, int]
) -> None:
    penstock.stop()
    closed = Files(penstock).first(".log")
    overwrite(closed, b"DAMAGE", position=200)
    outcome = verify(penstock)
    assert outcome.returncode != 0
    assert os.path.basename(closed) in outcome.stdout + outcome.stderr
    penstock.start()
    read = penstock.consume("t", offset=1)
    assert [record.value for record in read] == [value(number) for number in range(1, RECORDS)]
    assert penstock.produce("t", [b"new"])[0].offset == RECORDS
