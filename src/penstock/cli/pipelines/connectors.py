"""Connectors that a project declares in `connectors/`, one file each: `run` creates, `status` shows them.

A file is what `penstock connect create --file` takes. The connectors run in a Connect worker, not in the
pipeline's process, and keep running when the pipeline stops: changes in the meantime are kept in their
topics.
"""

from __future__ import annotations

import os
import time
from typing import Any
from urllib.parse import quote

import click

from penstock.admin.connect_worker import Conflict, ConnectWorker
from penstock.cli.connect.files import read_connector
from penstock.cli.failure import CommandFailed
from penstock.pipelines.project.project import Project

DEFAULT_URL = "http://127.0.0.1:8083"
COLUMNS = ("connector", "type", "state", "tasks")
_SUFFIXES = (".json", ".properties")
_FAILED = "FAILED"
_SHORT_SECONDS = 5.0
_JOIN_SECONDS, _AGAIN_SECONDS = 60.0, 0.2


def declared(project: Project) -> list[dict[str, str]]:
    """The settings of each connector, in the order of the files' names."""
    directory = project.root / "connectors"
    files = sorted(path for path in directory.glob("*") if path.suffix in _SUFFIXES)
    try:
        found = [read_connector(str(path)) for path in files]
    except click.BadParameter as error:
        raise CommandFailed(error.message) from error
    names = [each["name"] for each in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CommandFailed(f"two files in {directory} have the name {twice}: a connector's name is its own")
    return found


def create(connectors: list[dict[str, str]], url: str) -> None:
    """Creates missing connectors, and changes those whose settings differ."""
    worker = _worker(url)
    deadline = time.monotonic() + _JOIN_SECONDS
    for config in connectors:
        while True:
            try:
                worker.ask("PUT", f"{_path(config['name'])}/config", config)
                break
            except Conflict:  # a worker that was just started has no leader yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(_AGAIN_SECONDS)


def states(names: list[str], url: str) -> list[dict[str, Any]]:
    """The worker's status of each: `name`, `type`, `state`, `tasks` and `error`."""
    try:
        found = _worker(url, _SHORT_SECONDS).ask("GET", "/connectors?expand=status")
    except CommandFailed as error:
        return [_state(name, "unknown", error=str(error)) for name in names]
    return [
        _state(name, "not created") if name not in found else _shown(name, found[name]["status"])
        for name in names
    ]


def _shown(name: str, status: dict[str, Any]) -> dict[str, Any]:
    parts = [status["connector"], *status["tasks"]]
    trace = next((part["trace"] for part in parts if part.get("trace")), "")
    tasks = [part["state"] for part in status["tasks"]]
    state = _FAILED if any(part["state"] == _FAILED for part in parts) else status["connector"]["state"]
    last = trace.strip().rpartition("\n")[2]
    return _state(name, state, kind=status["type"], tasks=tasks, error=last or None)


def _state(
    name: str,
    state: str,
    *,
    kind: str | None = None,
    tasks: list[str] | None = None,
    error: str | None = None,
) -> dict[str, Any]:
    return {"name": name, "type": kind, "state": state, "tasks": tasks or [], "error": error}


def row(connector: dict[str, Any]) -> tuple[object, ...]:
    """Cells for COLUMNS; the states of tasks where they are not all the connector's."""
    tasks = connector["tasks"]
    alike = tasks and set(tasks) == {connector["state"]}
    shown = str(len(tasks)) if alike else ", ".join(tasks) or None
    return connector["name"], connector["type"], connector["state"], shown


def is_well(connector: dict[str, Any]) -> bool:
    running = connector["state"] in ("RUNNING", "PAUSED", "STOPPED")
    return running and not connector["error"] and _FAILED not in connector["tasks"]


def _worker(url: str, timeout: float = 60.0) -> ConnectWorker:
    user, ca = os.environ.get("PENSTOCK_CONNECT_USER"), os.environ.get("PENSTOCK_CONNECT_CA")
    hint = "name another with --connect; the connectors of this pipeline need one"
    return ConnectWorker(url, user, ca, hint=hint, timeout=timeout)


def _path(name: str) -> str:
    return f"/connectors/{quote(name, safe='')}"
