"""Registries as real processes on a real broker; the tests of a module share one of each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock.testing import PenstockBroker

START_SECONDS = 60.0


class RegistryProcess:
    """One `penstock registry`."""

    def __init__(
        self, bootstrap: str, directory: Path, *options: str, port: int = 0, scheme: str = "http"
    ) -> None:
        self.directory = directory
        self.log = directory / f"registry-{time.monotonic_ns()}.log"
        self._ready_file = self.log.with_suffix(".json")
        words = ["registry", "-b", bootstrap, "--port", str(port), "--ready-file", str(self._ready_file)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock", *words, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait(self) -> RegistryProcess:
        """Until it listens; its own words if it does not."""
        deadline = time.monotonic() + START_SECONDS
        while not self._ready_file.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the registry did not start:\n{self.log.read_text()}")
            time.sleep(0.01)
        self.url: str = json.loads(self._ready_file.read_text())["registry"]
        self.port = int(self.url.rpartition(":")[2])
        return self

    def client(self, **options: object) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60.0, trust_env=False, **options)

    @property
    def leads(self) -> bool:
        with self.client() as client:
            return "penstock_registry_leader 1.0" in client.get("/metrics").text

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._ready_file.unlink(missing_ok=True)

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def stop(self) -> int:
        """Cleanly; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()


class Registries:
    """Starts registries and stops what is left of them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._all: list[RegistryProcess] = []

    def start(self, bootstrap: str, *options: str, port: int = 0, wait: bool = True) -> RegistryProcess:
        registry = RegistryProcess(bootstrap, self._directory, *options, port=port)
        self._all.append(registry)
        return registry.wait() if wait else registry

    def close(self) -> None:
        for registry in self._all:
            registry.stop()


@pytest.fixture
def registries(tmp_path: Path) -> Iterator[Registries]:
    started = Registries(tmp_path)
    yield started
    started.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[PenstockBroker]:
    # A group of one need not wait for others.
    with PenstockBroker(
        {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1000}
    ) as broker:
        yield broker


@pytest.fixture(scope="module")
def registry(broker: PenstockBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    started = Registries(tmp_path_factory.mktemp("registry"))
    yield started.start(broker.bootstrap)
    started.close()


@pytest.fixture
def http(registry: RegistryProcess) -> Iterator[httpx.Client]:
    with registry.client() as client:
        yield client


@pytest.fixture
def subject() -> str:
    """A name of the test's own: the registry of a module is shared."""
    return f"s{time.monotonic_ns()}"


def wait_until(condition: object, seconds: float = 60.0) -> None:
    """Until `condition()` holds."""
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)
