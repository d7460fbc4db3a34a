"""The config topic, read into memory: connectors, their tasks, target states, and who runs what.

The records are Kafka Connect's (JSON without schemas): `connector-NAME`, `task-NAME-N`, `commit-NAME`,
`target-state-NAME`, `restart-connector-NAME`, `task-count-record-NAME`, `logger-cluster-NAME`, `session-key`.
One kind is Penstock's own: `penstock-assignment`, which the leader writes in the same transaction as the
change that requires it. Pure.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.elected.membership import named_leader

Record = tuple[bytes, bytes | None]
STARTED, PAUSED, STOPPED = "STARTED", "PAUSED", "STOPPED"
ASSIGNMENT = "penstock-assignment"
SESSION_KEY = "session-key"
_LOGGER = "logger-cluster-"
_TASK = re.compile(r"task-(.+)-(\d+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of work that is assigned to a worker: a connector (task -1) or one of its tasks."""

    connector: str
    task: int = -1

    @property
    def is_task(self) -> bool:
        return self.task >= 0

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}" if self.is_task else self.connector


@dataclass(frozen=True, slots=True)
class ConnectorState:
    config: Mapping[str, str]
    target: str = STARTED
    tasks: tuple[Mapping[str, str], ...] = ()
    generation: int = 0
    """The offset of its latest configuration: a process with an older one is restarted."""
    tasks_generation: int = 0
    divided: int = -1
    """The generation for which its tasks were created; until it is the current one they are outdated."""
    task_count: int = 0
    """The generation of the last set of tasks that was fenced."""

    @property
    def most_tasks(self) -> int:
        """The highest number of tasks that may have transactions."""
        return max(self.task_count, len(self.tasks))


@dataclass(frozen=True, slots=True)
class Restart:
    connector: str
    include_tasks: bool
    only_failed: bool
    task: int | None = None


@dataclass(slots=True)
class ConfigState:
    """An Image for `penstock.elected.store`."""

    offset: int = -1
    connectors: dict[str, ConnectorState] = field(default_factory=dict)
    assignment: dict[Unit, str] = field(default_factory=dict)
    session_key: bytes | None = None
    """The key with which workers sign requests to each other (KIP-507)."""
    leader: str | None = None
    """The worker that wrote the key."""
    on_change: Callable[[], None] = lambda: None
    on_restart: Callable[[Restart], None] = lambda restart: None
    on_logger: Callable[[str, str], None] = lambda name, level: None
    """A level for all running workers (KIP-976): workers that start later use their own."""
    _targets: dict[str, str] = field(default_factory=dict)
    _tasks: dict[str, dict[int, Mapping[str, str]]] = field(default_factory=dict)
    _task_counts: dict[str, int] = field(default_factory=dict)
    """Also for deleted connectors: a task that hangs may outlive them."""

    def apply(self, key: bytes | None, value: bytes | None, offset: int, timestamp: int | None) -> None:
        self.offset = offset
        try:
            name = (key or b"").decode()
            content = None if value is None else json.loads(value)
        except ValueError:
            return  # a record of another program
        if content is not None and not isinstance(content, dict):
            return
        self._apply(name, content, offset)
        self.on_change()

    def _apply(self, key: str, content: dict[str, Any] | None, offset: int) -> None:
        if key.startswith("connector-"):
            self._connector(key.removeprefix("connector-"), content, offset)
        elif key.startswith("target-state-"):
            name = key.removeprefix("target-state-")
            target = (
                STARTED if content is None else content.get("state.v2") or content.get("state") or STARTED
            )
            self._targets[name] = target
            if name in self.connectors:
                self.connectors[name] = replace(self.connectors[name], target=target)
        elif key.startswith("commit-"):
            self._commit(key.removeprefix("commit-"), content, offset)
        elif key.startswith("restart-connector-") and content is not None:
            restart = Restart(
                key.removeprefix("restart-connector-"),
                bool(content.get("include-tasks")),
                bool(content.get("only-failed")),
                content.get("task"),
            )
            self.on_restart(restart)
        elif key.startswith(_LOGGER) and content is not None:
            self.on_logger(key.removeprefix(_LOGGER), str(content.get("level")))
        elif key.startswith("task-count-record-"):
            name = key.removeprefix("task-count-record-")
            count = self._task_counts[name] = int((content or {}).get("task-count", 0))
            if name in self.connectors:
                self.connectors[name] = replace(self.connectors[name], task_count=count)
        elif key == SESSION_KEY:
            self.session_key = _read_session_key(content or {})
            self.leader = named_leader(content)
        elif key == ASSIGNMENT:
            self.assignment = read_assignment(content or {})
        elif (match := _TASK.fullmatch(key)) is not None and content is not None:
            self._tasks.setdefault(match[1], {})[int(match[2])] = _properties(content)

    def _connector(self, name: str, content: dict[str, Any] | None, offset: int) -> None:
        if content is None:
            self.connectors.pop(name, None)
            self._tasks.pop(name, None)
            self._targets.pop(name, None)
            return
        known = self.connectors.get(name)
        if known is None:
            target, count = self._targets.get(name, STARTED), self._task_counts.get(name, 0)
            self.connectors[name] = ConnectorState(
                _properties(content), target, generation=offset, task_count=count
            )
        else:
            self.connectors[name] = replace(known, config=_properties(content), generation=offset)

    def _commit(self, name: str, content: dict[str, Any] | None, offset: int) -> None:
        known = self.connectors.get(name)
        if known is None or content is None:
            return
        count = int(content.get("tasks", 0))
        written = self._tasks.get(name, {})
        tasks = tuple(written[number] for number in range(count) if number in written)
        if len(tasks) == count:
            self.connectors[name] = replace(
                known, tasks=tasks, tasks_generation=offset, divided=known.generation
            )

    def preview(self, records: Sequence[Record]) -> ConfigState:
        """The state after these records."""
        ahead = ConfigState(
            self.offset,
            dict(self.connectors),
            dict(self.assignment),
            _targets=dict(self._targets),
            _tasks={name: dict(tasks) for name, tasks in self._tasks.items()},
            _task_counts=dict(self._task_counts),
        )
        for key, value in records:
            ahead.apply(key, value, ahead.offset + 1, None)
        return ahead

    def units(self) -> list[Unit]:
        """Everything that should run now. A stopped connector has no units."""
        found = []
        for name, each in sorted(self.connectors.items()):
            if each.target == STOPPED:
                continue
            found.append(Unit(name))
            found += [Unit(name, number) for number in range(len(each.tasks))]
        return found


def _properties(content: Mapping[str, Any]) -> dict[str, str]:
    properties = content.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {str(name): "" if value is None else str(value) for name, value in properties.items()}


# Records


def _record(key: str, value: Any) -> Record:
    return key.encode(), None if value is None else json.dumps(value, separators=(",", ":")).encode()


def connector_record(name: str, config: Mapping[str, str]) -> Record:
    return _record(f"connector-{name}", {"properties": dict(config)})


def target_record(name: str, target: str) -> Record:
    # An older Kafka Connect does not know STOPPED, and only reads `state`.
    old = PAUSED if target == STOPPED else target
    return _record(f"target-state-{name}", {"state": old, "state.v2": target})


def task_records(name: str, tasks: Sequence[Mapping[str, str]]) -> list[Record]:
    records = [
        _record(f"task-{name}-{number}", {"properties": dict(each)}) for number, each in enumerate(tasks)
    ]
    return [*records, _record(f"commit-{name}", {"tasks": len(tasks)})]


def removal_records(name: str, tasks: int) -> list[Record]:
    """The task count stays, as in Kafka Connect: a new connector of that name fences this many tasks."""
    gone = [_record(f"task-{name}-{number}", None) for number in range(tasks)]
    keys = (f"connector-{name}", f"target-state-{name}", f"commit-{name}")
    return [*(_record(key, None) for key in keys), *gone]


def restart_record(restart: Restart) -> Record:
    value: dict[str, Any] = {"include-tasks": restart.include_tasks, "only-failed": restart.only_failed}
    if restart.task is not None:
        value["task"] = restart.task
    return _record(f"restart-connector-{restart.connector}", value)


def logger_record(name: str, level: str) -> Record:
    return _record(f"{_LOGGER}{name}", {"level": level})


def task_count_record(name: str, count: int) -> Record:
    return _record(f"task-count-record-{name}", {"task-count": count})


def session_key_record(key: bytes, now_ms: int, leader: str) -> Record:
    """Kafka Connect's format plus `leader`, the URL of the worker that writes it."""
    value = {
        "key": base64.b64encode(key).decode(),
        "algorithm": "HmacSHA256",
        "creation-timestamp": now_ms,
        "leader": leader,
    }
    return _record(SESSION_KEY, value)


def _read_session_key(content: Mapping[str, Any]) -> bytes | None:
    try:
        return base64.b64decode(str(content.get("key", "")), validate=True) or None
    except (binascii.Error, ValueError):
        return None


def assignment_record(assignment: Mapping[Unit, str]) -> Record:
    workers: dict[str, list[list[Any]]] = {}
    for unit, worker in sorted(assignment.items(), key=lambda pair: (pair[0].connector, pair[0].task)):
        workers.setdefault(worker, []).append([unit.connector, unit.task])
    return _record(ASSIGNMENT, {"workers": workers})


def read_assignment(content: Mapping[str, Any]) -> dict[Unit, str]:
    return {
        Unit(str(name), int(task)): worker
        for worker, units in (content.get("workers") or {}).items()
        for name, task in units
    }


def assign(units: Iterable[Unit], workers: Iterable[str], before: Mapping[Unit, str]) -> dict[Unit, str]:
    """The assignment: each unit stays where it is, unless its worker is gone or has more than its share.

    Connectors and tasks are balanced separately: a connector's process is short-lived, a task's is not.
    """
    members = sorted(set(workers))
    if not members:
        return {}
    found: dict[Unit, str] = {}
    every = list(units)
    for kind in (False, True):
        mine = [unit for unit in every if unit.is_task is kind]
        least, extra = divmod(len(mine), len(members))
        held: dict[str, list[Unit]] = {worker: [] for worker in members}
        homeless = []
        for unit in mine:
            home = before.get(unit)
            if home in held:
                held[home].append(unit)
            else:
                homeless.append(unit)
        # The fullest workers keep the remainder of the division: fewest moves.
        order = sorted(members, key=lambda worker: (-len(held[worker]), worker))
        quota = {worker: least + (at < extra) for at, worker in enumerate(order)}
        for worker in members:
            homeless += held[worker][quota[worker] :]
            held[worker] = held[worker][: quota[worker]]
        for unit in homeless:
            worker = min(members, key=lambda each: (len(held[each]) - quota[each], each))
            held[worker].append(unit)
        found |= {unit: worker for worker, own in held.items() for unit in own}
    return found
