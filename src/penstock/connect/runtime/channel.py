"""The pipe between a worker and a child process: one line of JSON per message, in both directions."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TextIO


class Channel:
    """The child's end. What plugins print goes to stderr, because stdout belongs to the worker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._out: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        sys.stdout = sys.stderr

    def receive(self) -> dict[str, Any]:
        """The next message; the process ends when the worker is gone."""
        line = sys.stdin.readline()
        if not line:
            os._exit(0)
        message: dict[str, Any] = json.loads(line)
        return message

    def send(self, event: str, **more: Any) -> None:
        with self._lock:
            try:
                self._out.write(json.dumps({"event": event, **more}, default=str) + "\n")
                self._out.flush()
            except OSError:
                os._exit(0)  # the worker is gone

    def listen(self, on_message: Callable[[dict[str, Any]], None]) -> None:
        """Pass every further message to a function, in a thread."""

        def read() -> None:
            while True:
                on_message(self.receive())

        threading.Thread(target=read, name="channel", daemon=True).start()
