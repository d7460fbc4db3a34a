"""Runs an example as a process, and kills it and the broker at seeded moments: after so many of its lines."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from penstock.testing import PenstockBroker

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RECORDS = 240
PARTITIONS = 3
_MOST_STARTS = 20


class Example:
    """One of the programs in examples/, with its options; started as often as it takes."""

    def __init__(self, name: str, broker: PenstockBroker, log: Path, *options: str) -> None:
        self._command = [
            sys.executable,
            str(EXAMPLES / f"{name}.py"),
            "--bootstrap",
            broker.bootstrap,
            *options,
        ]
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log, text=True)

    def read_lines(self, count: int) -> list[str]:
        """The next lines that it prints; fewer where it ends."""
        lines = []
        for _ in range(count):
            line = self._running().stdout.readline()
            if not line:
                break
            lines.append(line.rstrip("\n"))
        return lines

    def read_until(self, beginning: str) -> str:
        """The next line that begins so."""
        while line := self._running().stdout.readline():
            if line.startswith(beginning):
                return line.rstrip("\n")
        raise AssertionError(f"ended without saying '{beginning}':\n{self._log.read_text()}")

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
            self._process = None

    def finish(self) -> list[str]:
        """Runs it to its end, as a supervisor would: again while it fails. What it printed last."""
        for _ in range(_MOST_STARTS):
            if self._process is None:
                self.start()
            lines = self._running().stdout.read().splitlines()
            code = self._running().wait()
            self.kill()
            if code == 0:
                return lines
        raise AssertionError(f"did not end well in {_MOST_STARTS} starts:\n{self._log.read_text()}")

    def ends(self) -> tuple[int, str]:
        """Waits for it. With what code it ended, and what it said about it."""
        self._running().stdout.read()
        return self._running().wait(), self._log.read_text()

    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process


def crash_and_finish(example: Example, broker: PenstockBroker, rng: random.Random, crashes: int = 6) -> None:
    """Some crashes of the program and of the broker, in an order and at moments that `rng` chooses."""
    victims = ["program", "broker"] + rng.choices(("program", "broker"), k=crashes - 2)
    rng.shuffle(victims)
    example.start()
    for victim in victims:
        example.read_lines(rng.randrange(0, 2 * RECORDS // (crashes + 1)))
        if victim == "broker":
            broker.kill()
            broker.start()
        else:
            example.kill()
            example.start()
    example.finish()
