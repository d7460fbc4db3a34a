"""Consoles as real processes on a real broker; the tests of a module share one of each."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock.admin.cluster import Cluster
from penstock.testing import PenstockBroker
from tests.console.stuck import UNVERIFIED

START_SECONDS = 110.0


class ConsoleProcess:
    """One `penstock console`."""

    def __init__(self, bootstrap: str, directory: Path, *options: str) -> None:
        self.log = directory / f"console-{time.monotonic_ns()}.log"
        ready = self.log.with_suffix(".json")
        words = ["console", "-b", bootstrap, "--port", "0", "--ready-file", str(ready), *options]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_SECONDS
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise AssertionError(f"the console did not start:\n{self.log.read_text()}")
            time.sleep(0.02)
        self.url: str = json.loads(ready.read_text())["console"]
        self.address = self.url.rpartition("//")[2]

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60.0, trust_env=False)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockBroker]:
    with PenstockBroker({"group.initial.rebalance.delay.ms": 0, **UNVERIFIED}) as broker:
        yield broker


@pytest.fixture(scope="module")
def cluster(broker: PenstockBroker) -> Cluster:
    return Cluster(broker.bootstrap, {}, timeout=60.0)
