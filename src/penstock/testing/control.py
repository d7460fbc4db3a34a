"""The test's end of the control pipe: one JSON object per line for each request and response."""

from __future__ import annotations

import json
import os
import select
import subprocess
import threading
import time
from typing import Any


class ControlError(RuntimeError):
    """The broker's process rejected an operation, or could not be reached."""


class ControlPipe:
    """Calls operations in the broker's process over its standard input and output."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._to = process.stdin
        self._from = process.stdout
        self._lock = threading.Lock()
        self._buffer = b""
        self._last_id = 0

    def call(self, op: str, *, timeout: float, **arguments: Any) -> Any:
        with self._lock:
            self._last_id += 1
            line = json.dumps({"id": self._last_id, "op": op, **arguments}) + "\n"
            try:
                self._to.write(line.encode())
                self._to.flush()
            except (BrokenPipeError, ValueError) as error:
                raise ControlError(f"the broker's process has ended: cannot {op}") from error
            deadline = time.monotonic() + timeout
            while True:
                answer = json.loads(self._read_line(op, deadline))
                # Ignore the response to an earlier call that timed out.
                if answer["id"] == self._last_id:
                    break
        if "error" in answer:
            raise ControlError(answer["error"])
        return answer.get("result")

    def _read_line(self, op: str, deadline: float) -> bytes:
        fd = self._from.fileno()
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                raise TimeoutError(f"the broker's process did not answer {op!r} in time")
            chunk = os.read(fd, 65536)
            if not chunk:
                raise ControlError(f"the broker's process ended during {op!r}")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def close(self) -> None:
        for stream in (self._to, self._from):
            try:
                stream.close()
            except BrokenPipeError:
                # Unsent data does not matter when the process has ended.
                continue
