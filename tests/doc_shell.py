"""The commands of a page, run in a shell as a reader would, with the test's addresses and directories."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

TIMEOUT_SECONDS = 120.0


@dataclass
class Shell:
    """Runs commands in `home`. What stands for the reader's own machine is replaced by what is here."""

    home: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    instead: Mapping[str, str] = field(default_factory=dict)

    def command(self, line: str) -> str:
        for theirs, ours in self.instead.items():
            line = line.replace(theirs, ours)
        return line

    @property
    def variables(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, **self.environment}

    def run(self, line: str, *, answer: str = "", code: int = 0) -> str:
        """To its end; what it printed. `answer` is typed when it asks."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.command(line)],
            cwd=self.home,
            env=self.variables,
            input=answer,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        assert done.returncode == code, (self.command(line), done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr

    @contextmanager
    def running(self, line: str, name: str = "process") -> Iterator[Running]:
        """A command that runs until Ctrl-C, which it gets at the end."""
        log = self.home / f"{name}.log"
        # Without the shell: it is the program that gets Ctrl-C.
        line = self.command(line).split("  #")[0]
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {line}"],
                cwd=self.home,
                env=self.variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        running = Running(line, process, log)
        try:
            yield running
            running.stop()
        finally:
            process.kill()
            process.wait()


@dataclass
class Running:
    line: str
    process: subprocess.Popen[bytes]
    log: Path

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, what: str, condition: Callable[[], object], seconds: float = TIMEOUT_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, (self.line, self.process.returncode, self.output())
            assert time.monotonic() < deadline, (self.line, what, self.output())
            time.sleep(0.05)

    def wait_until_ready(self, file: Path) -> None:
        self.wait_for("it is ready", file.exists)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(TIMEOUT_SECONDS) in (0, 130), (self.line, self.output())
