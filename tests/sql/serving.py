"""`penstock sql serve` as a process, and a plain client of its endpoint: JSON lines over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

START_SECONDS = 110.0


@dataclass
class Answer:
    """What one statement gave."""

    statement: str
    columns: list[list[str]] | None = None
    rows: list[list[Any]] = field(default_factory=list)
    message: str | None = None
    details: dict[str, Any] = field(default_factory=dict)
    error: dict[str, Any] | None = None


class SqlClient:
    """Posts statements. A client for each thread that uses one."""

    def __init__(self, url: str, *, timeout: float = 110.0) -> None:
        self.http = httpx.Client(base_url=url, timeout=timeout, trust_env=False)

    def __enter__(self) -> SqlClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def run(
        self,
        sql: str,
        properties: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> list[Answer]:
        """All answers, up to the first error."""
        answers: list[Answer] = []
        with self.stream(sql, properties, variables) as lines:
            for line in lines:
                take(line, answers)
        return answers

    def rows(self, sql: str, **session: Mapping[str, str]) -> list[list[Any]]:
        """Of the last statement; AssertionError if one has failed."""
        return self.ok(sql, **session)[-1].rows

    def ok(self, sql: str, **session: Mapping[str, str]) -> list[Answer]:
        answers = self.run(sql, **session)
        assert answers[-1].error is None, answers[-1].error
        return answers

    @contextmanager
    def stream(
        self,
        sql: str,
        properties: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Iterator[Iterator[dict[str, Any]]]:
        """The lines of the answer as they come; leaving the block ends a push query."""
        body = {"sql": sql, "properties": dict(properties or {}), "variables": dict(variables or {})}
        with self.http.stream("POST", "/sql", json=body) as response:
            if response.status_code >= 500:
                response.read()
                raise AssertionError(f"{response.status_code}: {response.text}")
            yield (json.loads(line) for line in response.iter_lines() if line.strip())


def take(line: dict[str, Any], answers: list[Answer]) -> None:
    if "statement" in line:
        answers.append(Answer(line["statement"]))
        return
    if not answers:
        answers.append(Answer(""))
    last = answers[-1]
    if "columns" in line:
        last.columns = line["columns"]
    elif "row" in line:
        last.rows.append(line["row"])
    elif "error" in line:
        last.error = line
    elif "done" in line:
        last.message = line["done"]
        last.details = {key: value for key, value in line.items() if key != "done"}
        last.details |= last.details.pop("details", {})


class SqlServer:
    """One `penstock sql serve`."""

    def __init__(
        self, bootstrap: str, registry_url: str, directory: Path, *options: str, port: int = 0
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / f"sql-{time.monotonic_ns()}.log"
        self._ready_file = self.log.with_suffix(".json")
        words = ["sql", "serve", "-b", bootstrap, "--registry", registry_url, "--port", str(port)]
        words += ["--data", str(directory), "--ready-file", str(self._ready_file), "--master", "local[2]"]
        # A dead leader is to be noticed soon.
        words += ["--session-timeout-ms", "3000", "--allow-python-functions"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock", *words, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Its Java dies with it when a test kills the group.
                start_new_session=True,
            )
        self.url = ""

    def wait(self) -> SqlServer:
        """Until it is ready for statements; its own words if it does not come to that."""
        deadline = time.monotonic() + START_SECONDS
        while not self._ready_file.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the SQL server did not start:\n{self.log.read_text()[-8000:]}")
            time.sleep(0.02)
        self.url = json.loads(self._ready_file.read_text())["sql"]
        return self

    def client(self) -> SqlClient:
        return SqlClient(self.url)

    def kill(self) -> None:
        """kill -9 of the server and of its Java."""
        _signal_group(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                pass
        _signal_group(self.process.pid, signal.SIGKILL)
        return self.process.wait()


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass
