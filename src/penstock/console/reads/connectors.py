"""Connectors of a Connect worker: state, tasks with errors, plugins and their settings; and changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from penstock.admin.connect_worker import ConnectWorker
from penstock.admin.failure import CommandFailed
from penstock.connect.secrets import hidden


@dataclass(frozen=True, slots=True)
class Task:
    id: int
    state: str
    worker: str
    trace: str


@dataclass(frozen=True, slots=True)
class Connector:
    name: str
    kind: str
    plugin: str
    state: str
    worker: str
    trace: str
    tasks: tuple[Task, ...]
    config: dict[str, str]
    """Without secrets: the console may be logged in to the worker as an administrator."""

    @property
    def failed(self) -> bool:
        return self.state == "FAILED" or any(task.state == "FAILED" for task in self.tasks)


@dataclass(frozen=True, slots=True)
class Field:
    """One setting of a plugin, with the value and errors of a validation."""

    name: str
    label: str
    kind: str
    required: bool
    default: str | None
    value: str | None
    doc: str
    group: str
    choices: tuple[str, ...]
    errors: tuple[str, ...]


def worker_of(worker: ConnectWorker | None) -> ConnectWorker:
    if worker is None:
        raise CommandFailed("this console has no Connect worker: start it with --connect URL.")
    return worker


def list_connectors(worker: ConnectWorker | None) -> list[Connector]:
    found = worker_of(worker).ask("GET", "/connectors?expand=info&expand=status")
    return [_connector(name, each) for name, each in sorted(found.items())]


def failed_connectors(worker: ConnectWorker | None) -> list[str]:
    """Their names, for the overview; none if there is no worker or it does not respond."""
    if worker is None:
        return []
    try:
        return [each.name for each in list_connectors(worker) if each.failed]
    except CommandFailed:
        return []


def find_connector(worker: ConnectWorker | None, name: str) -> Connector:
    status = worker_of(worker).ask("GET", _path(name, "status"))
    info = worker_of(worker).ask("GET", _path(name))
    types = _types(worker_of(worker), (info.get("config") or {}).get("connector.class", ""))
    return _connector(name, {"status": status, "info": info}, types)


def _types(worker: ConnectWorker, plugin: str) -> dict[str, str]:
    """The types of the settings that a plugin declares; none if the worker cannot report them (before Kafka
    3.2).
    """
    try:
        found = worker.ask("GET", f"/connector-plugins/{quote(plugin, safe='')}/config")
        return {each["name"]: each["type"] for each in found}
    except CommandFailed:
        return {}


def _connector(name: str, found: Mapping[str, Any], types: Mapping[str, str] | None = None) -> Connector:
    status, info = found.get("status") or {}, found.get("info") or {}
    state = status.get("connector") or {}
    tasks = tuple(
        Task(task["id"], task["state"], task.get("worker_id") or "", task.get("trace") or "")
        for task in status.get("tasks", ())
    )
    config = dict(info.get("config") or {})
    return Connector(
        name,
        info.get("type") or status.get("type") or "unknown",
        config.get("connector.class", ""),
        state.get("state") or "UNASSIGNED",
        state.get("worker_id") or "",
        state.get("trace") or "",
        tasks,
        hidden(config, types or (), [each for each, kind in (types or {}).items() if kind == "PASSWORD"]),
    )


def plugins(worker: ConnectWorker | None) -> list[str]:
    """Classes of the connectors that the worker can run."""
    found = worker_of(worker).ask("GET", "/connector-plugins?connectorsOnly=true")
    return sorted({each["class"] for each in found})


def validate(worker: ConnectWorker | None, plugin: str, config: Mapping[str, str]) -> list[Field]:
    """Every setting of a plugin, with the errors of the given values."""
    body = {**config, "connector.class": plugin}
    path = f"/connector-plugins/{quote(plugin, safe='')}/config/validate"
    found = worker_of(worker).ask("PUT", path, body)
    fields = []
    for each in found["configs"]:
        definition, value = each["definition"], each["value"]
        if not value.get("visible", True):
            continue
        fields.append(
            Field(
                definition["name"],
                definition.get("display_name") or definition["name"],
                definition.get("type") or "STRING",
                bool(definition.get("required")),
                definition.get("default_value"),
                value.get("value"),
                definition.get("documentation") or "",
                definition.get("group") or "",
                tuple(map(str, value.get("recommended_values") or ())),
                tuple(value.get("errors") or ()),
            )
        )
    return fields


# Changes


def create_connector(worker: ConnectWorker | None, name: str, config: Mapping[str, str]) -> None:
    if not name:
        raise CommandFailed("a connector's name cannot be empty.")
    worker_of(worker).ask("POST", "/connectors", {"name": name, "config": {**config, "name": name}})


def change_state(worker: ConnectWorker | None, name: str, verb: str) -> None:
    """`pause`, `resume` or `stop`."""
    worker_of(worker).ask("PUT", _path(name, verb))


def restart(worker: ConnectWorker | None, name: str, task: int | None = None) -> None:
    """The connector and its tasks, or one task."""
    if task is None:
        worker_of(worker).ask("POST", _path(name, "restart") + "?includeTasks=true&onlyFailed=false")
    else:
        worker_of(worker).ask("POST", _path(name, "tasks", str(task), "restart"))


def delete_connector(worker: ConnectWorker | None, name: str) -> None:
    worker_of(worker).ask("DELETE", _path(name))


def _path(name: str, *more: str) -> str:
    return "/".join(["/connectors", quote(name, safe=""), *more])
