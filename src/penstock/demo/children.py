"""The processes of the demo: the platform and the pipeline, each stopped cleanly and in order.

They run in their own sessions, so that Ctrl-C in the terminal reaches only the demo, which stops its flights
first, then the pipeline, then the platform. If it is killed, the kernel signals them (Linux).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.processes import with_parent

_POLL_S = 0.05
_TAIL_BYTES = 2000


class ChildFailed(PenstockError):
    """A process of the demo did not start, or exited unexpectedly."""


class Child:
    """One `penstock ...` process whose output goes to a log file."""

    def __init__(
        self, name: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        with open(log, "ab") as output:
            # The output of an earlier run stays in the file, and is ignored here.
            self._began = output.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
                preexec_fn=with_parent(signal.SIGTERM),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raises ChildFailed if it has ended."""
        code = self._process.poll()
        if code is not None:
            raise ChildFailed(f"{self.name} ended with {code}: {self.tail()} (all of it: {self.log})")

    def wait_until_ready(self, ready_file: Path, timeout_s: float) -> dict[str, Any]:
        """The contents of the ready file, once it exists."""
        deadline = time.monotonic() + timeout_s
        while not ready_file.exists():
            self.check()
            if time.monotonic() > deadline:
                raise ChildFailed(f"{self.name} was not ready within {timeout_s:.0f} s: {self.tail()}")
            time.sleep(_POLL_S)
        ready: dict[str, Any] = json.loads(ready_file.read_text())
        return ready

    def stop(self, timeout_s: float) -> None:
        """SIGTERM, and SIGKILL to all of its session if that is not enough."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                pass
        # Everything it started is in its session: nothing may be left.
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        self._process.wait()

    def tail(self) -> str:
        """The end of its output, on one line."""
        return " ".join(self._end().split())[-500:]

    def last_line(self) -> str:
        """The last line of its output."""
        return next((line.strip() for line in reversed(self._end().splitlines()) if line.strip()), "")

    def _end(self) -> str:
        try:
            with open(self.log, "rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - _TAIL_BYTES, self._began))
                return file.read().decode(errors="replace")
        except OSError:
            return ""
