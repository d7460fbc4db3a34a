"""The web console of the demonstration."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.demo import run
from penstock.demo.run import Demo, DemoSettings


class Platform:
    """Stands for `penstock up`: ready at once, with a console at the port that it got."""

    started: list[list[str]] = []

    environment: dict[str, str] = {}

    def __init__(self, name: str, arguments: list[str], log: Path, environment: dict[str, str]) -> None:
        self.started.append(arguments)
        Platform.environment = environment

    def wait_until_ready(self, file: Path, seconds: float) -> dict[str, Any]:
        words = self.started[-1]
        port = int(words[words.index("--console-port") + 1]) or 4711
        return {"bootstrap": "127.0.0.1:9092", "console": f"http://127.0.0.1:{port}"}

    def stop(self, seconds: float) -> None: ...


@pytest.mark.promise(
    "demo", "The address of the web console is printed; if its port is in use, another one is chosen"
)
@pytest.mark.parametrize("taken", [True, False])
def test_the_address_of_the_console_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    monkeypatch.setattr(run, "Child", Platform)
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        if not taken:
            listening.close()
        settings = DemoSettings(
            tmp_path, 0, datetime(2013, 2, 7, tzinfo=UTC), 1, 1.0, None, False, "local[2]", port
        )
        demo = Demo(settings, threading.Event(), said.append, lambda board: pytest.fail("no view is made"))
        with ExitStack() as stack:
            demo._start_platform(stack)
    assert f"Web console: http://127.0.0.1:{4711 if taken else port}" in said
