"""A task's process as a worker starts it, without the worker: so that a test can kill just that."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


class TaskProcess:
    """One task of a connector, from now until it is killed or stopped."""

    def __init__(
        self, bootstrap: str, name: str, config: Mapping[str, object], log: Path, *, once: bool = True
    ) -> None:
        texts = {key: str(value) for key, value in config.items()}
        message = {
            "kind": "task",
            "connector": name,
            "task": 0,
            "connector_config": texts,
            "config": texts,
            "worker": {
                "client": {"bootstrap.servers": bootstrap},
                "properties": {"offset.flush.interval.ms": "200"},
                "group": "tasks",
                "offsets_topic": "connect-offsets",
                "exactly_once": once,
            },
        }
        self._log = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock.connect.runtime.process"],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
        )
        self._say(message)

    def _say(self, message: Mapping[str, object]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()

    def stop(self) -> int:
        self._say({"do": "stop"})
        try:
            return self.process.wait(60)
        finally:
            self.kill()
