"""A broker process to measure: start it, see what it costs, stop it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_START_TIMEOUT_S = 60.0


class BrokerProcess:
    """One `python -m penstock.broker` with a data directory that the caller owns."""

    def __init__(
        self, directory: Path, *, settings: dict[str, str] | None = None, module: str = "penstock.broker"
    ) -> None:
        self.directory = directory
        self.ready_file = directory / "ready.json"
        self.ready_file.unlink(missing_ok=True)
        given = {
            "log.dirs": str(directory / "data"),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            **(settings or {}),
        }
        command = [sys.executable, "-m", module, "--ready-file", str(self.ready_file)]
        for name, value in given.items():
            command += ["--set", f"{name}={value}"]
        self._log = open(directory / "broker.log", "ab")
        self.started = time.perf_counter()
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        self.port = self._wait_until_ready()
        self.seconds_to_ready = time.perf_counter() - self.started

    def _wait_until_ready(self) -> int:
        while time.perf_counter() - self.started < _START_TIMEOUT_S:
            if self._process.poll() is not None:
                break
            # The file is renamed into place, so that what is there is whole.
            if self.ready_file.exists():
                return int(json.loads(self.ready_file.read_text())["brokers"][0]["port"])
            time.sleep(0.002)
        self.stop()
        raise RuntimeError(
            "the broker did not start:\n" + (self.directory / "broker.log").read_text()[-4000:]
        )

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def resident_mib(self) -> float:
        """Of the process and of its children."""
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return sum(_resident_kib(process) for process in (pid, *map(int, children))) / 1024

    def wait_until_deleted(self, topic: str) -> None:
        """Until no directory of the topic is left, also none that waits to be removed."""
        deadline = time.perf_counter() + _START_TIMEOUT_S
        while list((self.directory / "data").glob(f"{topic}-*")):
            if time.perf_counter() > deadline:
                raise RuntimeError(f"the files of {topic} were not removed")
            time.sleep(0.005)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9."""
        if self.is_running:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()


def cpu_seconds(pid: int) -> float:
    """User and system time so far; the fields after the command's closing parenthesis."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory (under TMPDIR) that is gone afterwards, before its dirty pages are written."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def broker(
    directory: Path | None = None, settings: dict[str, str] | None = None, module: str = "penstock.broker"
) -> Iterator[BrokerProcess]:
    if directory is None:
        with scratch() as made, broker(made, settings, module) as process:
            yield process
        return
    process = BrokerProcess(directory, settings=settings, module=module)
    try:
        yield process
    finally:
        process.stop()
