"""The programs of examples/streams, run as they are: their main() in this process, on the tests' Spark."""

from __future__ import annotations

import importlib
import json
import runpy
import sys
from pathlib import Path
from typing import Any

from penstock.testing import PenstockBroker

DIRECTORY = Path(__file__).parents[2] / "examples" / "streams"


class Example:
    """One of the programs, with a broker and a checkpoint of its own."""

    def __init__(self, name: str, broker: PenstockBroker, checkpoint: Path) -> None:
        # As for `python examples/streams/name.py`: beside it is what the examples share.
        if str(DIRECTORY) not in sys.path:
            sys.path.insert(0, str(DIRECTORY))
        self.names = runpy.run_path(str(DIRECTORY / f"{name}.py"))
        self.doc: str = self.names["__doc__"]
        self._broker = broker
        self._options = ["--bootstrap", broker.bootstrap, "--checkpoint", str(checkpoint), "--once"]

    def run(self, *options: str) -> None:
        """Runs it until it has read all that is there."""
        self.names["main"]([*self._options, *options])

    def __getattr__(self, name: str) -> Any:
        return self.names[name]

    def streams(self) -> Any:
        """What its functions are given, for tests that start a query themselves."""
        return importlib.import_module("shared").start(None, (), self._options)

    def records(self, topic: str) -> list[tuple[str | None, Any]]:
        """Keys and values of a topic, in its order, without what transactions add or take back."""
        return [
            (None if record.key is None else record.key.decode(), read_value(record.value))
            for record in self._broker.consume(topic, isolation="read_committed")
        ]

    def newest(self, topic: str) -> dict[str | None, Any]:
        """Of each key the newest value, as a compacted topic keeps it."""
        return dict(self.records(topic))


def read_value(value: bytes | None) -> Any:
    if value is None:
        return None
    text = value.decode()
    try:
        return json.loads(text)
    except ValueError:
        return text
