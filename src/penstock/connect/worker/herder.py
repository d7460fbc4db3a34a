"""Runs the units assigned to this worker and, as the leader, changes and assigns them.

The desired state is in the config topic, replayed into `ConfigState`; `reconcile` starts, stops and pauses
processes until it is reached. A unit that another worker still runs is started when that worker has reported
its end, or has left the group.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.connect.worker import statuses as states
from penstock.connect.worker.cluster import WorkerCluster
from penstock.connect.worker.configs import (
    PAUSED,
    STOPPED,
    ConfigState,
    Record,
    Restart,
    Unit,
    assign,
    assignment_record,
    task_count_record,
    task_records,
)
from penstock.connect.worker.processes import ScoutProcess, UnitRunner
from penstock.connect.worker.statuses import Status, Statuses
from penstock.elected.errors import ElectedError
from penstock.web.loggers import Loggers, UnknownLevel, UnknownLogger

log = logging.getLogger(__name__)

_HANDOVER_SECONDS = 15.0
_AGAIN_SECONDS = 0.5
# Names that no code of the worker logs under: connectors have their own, in other processes.
_MOST_LOGGERS = 1000


class Herder:
    """Of one worker, for its event loop. `submit` sends task configurations to the leader."""

    def __init__(
        self,
        worker_id: str,
        configs: ConfigState,
        statuses: Statuses,
        cluster: WorkerCluster,
        scout: ScoutProcess,
        message: Mapping[str, Any],
        *,
        grace: float,
        exactly_once: bool,
        submit: Callable[[str, list[dict[str, str]]], Coroutine[Any, Any, bool]],
    ) -> None:
        self.worker_id = worker_id
        self.configs = configs
        self.statuses = statuses
        self.cluster = cluster
        self.scout = scout
        self.members: frozenset[str] | None = None
        self.generation = 0
        self.runners: dict[Unit, UnitRunner] = {}
        self._message = dict(message)
        self._grace = grace
        self.exactly_once = exactly_once
        self.loggers = Loggers(most_made=_MOST_LOGGERS)
        self._submit = submit
        self._versions: dict[str, str] = {}
        self._progress: dict[Unit, dict[str, Any]] = {}
        self._ending: dict[Unit, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._status_changed = asyncio.Event()
        self._background: set[asyncio.Task[Any]] = set()
        self._loop_task: asyncio.Task[None] | None = None
        configs.on_change = self._wake.set
        configs.on_restart = self._restarted
        statuses.on_change = self._status_changed.set

    def start(self) -> None:
        """Call it after the topics were read."""
        self.configs.on_logger = self._logger_of_all
        self._loop_task = asyncio.get_running_loop().create_task(self._run())

    async def is_member(self) -> bool:
        """Whether this worker is in its group, and accepts requests."""
        return self.members is not None

    def members_are(self, members: frozenset[str] | None) -> None:
        """The group's members: all workers by id; None if this worker is not a member (any more)."""
        self.members = members
        self.generation += 1
        log.info("workers in the group: %s", "none" if members is None else ", ".join(sorted(members)))
        self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                if self.cluster.leads and self.members is not None:
                    self._give_up_dead()
                    await self.change(list)
            except ElectedError as error:
                log.warning("could not write the assignment: %s", error)
                asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._wake.set)
            self._reconcile()
            await self._wake.wait()

    # As the leader

    async def change(self, plan: Callable[[], list[Record]]) -> int:
        """Write records together with the assignment that results from them."""

        def whole() -> list[Record]:
            records = plan()
            if self.members is None:
                return records
            units = self.configs.preview(records).units()
            assignment = assign(units, self.members, self.configs.assignment)
            if assignment != self.configs.assignment:
                records = [*records, assignment_record(assignment)]
            return records

        return await self.cluster.change(whole)

    def _give_up_dead(self) -> None:
        """A worker that is gone does not report the end of its units."""
        assert self.members is not None
        for unit, status in list(self.statuses.by_unit.items()):
            if status.worker and status.worker not in self.members and status.state in states.ALIVE:
                self.statuses.put(unit, Status(states.UNASSIGNED, status.worker, self.generation))

    async def put_tasks(self, name: str, tasks: Sequence[Mapping[str, str]]) -> int:
        """A connector has divided its work. Writes nothing if nothing changed."""
        known = self.configs.connectors.get(name)
        if self.exactly_once and known is not None and known.most_tasks and self._changes(name, tasks):
            await self.scout.ask("fence", connector=name, tasks=known.most_tasks, config=dict(known.config))

        def plan() -> list[Record]:
            if not self._changes(name, tasks):
                return []
            records = task_records(name, tasks)
            return [*records, task_count_record(name, len(tasks))] if self.exactly_once else records

        return await self.change(plan)

    def _changes(self, name: str, tasks: Sequence[Mapping[str, str]]) -> bool:
        known = self.configs.connectors.get(name)
        if known is None or known.target == STOPPED:
            return False
        return known.divided != known.generation or list(known.tasks) != [dict(each) for each in tasks]

    # As one that runs units

    def _reconcile(self) -> None:
        wanted = self._wanted()
        for unit, runner in list(self.runners.items()):
            if wanted.get(unit) != runner.generation:
                del self.runners[unit]
                self._ending[unit] = self._in_background(self._end(unit, runner))
        for unit, generation in wanted.items():
            known = self.configs.connectors[unit.connector]
            if unit in self._ending:
                continue  # it is started when it has ended
            if unit not in self.runners:
                self.runners[unit] = self._start(unit, generation)
            self.runners[unit].pause(known.target == PAUSED)

    def _wanted(self) -> dict[Unit, int]:
        """The units of this worker, with the generation of their configuration."""
        if self.members is None:
            return {}
        wanted = {}
        there = set(self.configs.units())
        for unit, worker in self.configs.assignment.items():
            if worker == self.worker_id and unit in there:
                known = self.configs.connectors[unit.connector]
                wanted[unit] = known.tasks_generation if unit.is_task else known.generation
        return wanted

    def _start(self, unit: Unit, generation: int) -> UnitRunner:
        known = self.configs.connectors[unit.connector]
        message = {
            **self._message,
            "kind": "task" if unit.is_task else "connector",
            "connector": unit.connector,
            "task": unit.task,
            "connector_config": dict(known.config),
            "config": dict(known.tasks[unit.task]) if unit.is_task else {},
            "paused": known.target == PAUSED,
            "log_levels": self.loggers.for_others(),
        }
        return UnitRunner(
            unit,
            message,
            generation=generation,
            attempts=_number(known.config, "penstock.task.restart.attempts", 3),
            backoff=_number(known.config, "penstock.task.restart.backoff.ms", 1000) / 1000,
            grace=self._grace,
            ready=lambda: self._handed_over(unit),
            on_state=self._report,
            on_event=self._on_event,
        )

    async def _handed_over(self, unit: Unit) -> None:
        """Wait until no other worker of the group runs the unit."""
        deadline = asyncio.get_running_loop().time() + _HANDOVER_SECONDS
        while True:
            status = self.statuses.by_unit.get(unit)
            if (
                status is None
                or status.worker == self.worker_id
                or status.state not in states.ALIVE
                or status.worker not in (self.members or ())
            ):
                return
            self._status_changed.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._status_changed.wait()
            except TimeoutError:
                log.warning(
                    "starting %s, although worker %s has not reported that it stopped", unit, status.worker
                )
                return

    async def _end(self, unit: Unit, runner: UnitRunner) -> None:
        try:
            await runner.stop(None)
            known = self.configs.connectors.get(unit.connector)
            if known is None or (unit.is_task and unit.task >= len(known.tasks)):
                self.statuses.forget(unit)
            elif known.target == STOPPED:
                self._report(unit, states.STOPPED, None)
            elif unit not in self._wanted():
                self._report(unit, states.UNASSIGNED, None)
        finally:
            self._ending.pop(unit, None)
            self._wake.set()

    def _report(self, unit: Unit, state: str, trace: str | None) -> None:
        version = self._versions.get(unit.connector)
        if state not in (states.RUNNING, states.PAUSED):
            self._progress.pop(unit, None)
        progress = self._progress.get(unit)
        self.statuses.put(unit, Status(state, self.worker_id, self.generation, trace, version, progress))

    def _on_event(self, unit: Unit, event: dict[str, Any]) -> None:
        if event["event"] == "version":
            self._versions[unit.connector] = event["version"]
        elif event["event"] == "task_configs":
            self._in_background(self._send_tasks(unit, event["configs"]))
        elif event["event"] == "progress":
            self._show_progress(unit, event["progress"])
        elif event["event"] == "topics":
            for topic in event["topics"]:
                self.statuses.used(unit.connector, topic, unit.task)

    def _show_progress(self, unit: Unit, progress: dict[str, Any] | None) -> None:
        if progress is None:
            self._progress.pop(unit, None)
        else:
            self._progress[unit] = progress
        status = self.statuses.by_unit.get(unit)
        if status is not None and unit in self.runners and status.worker == self.worker_id:
            self.statuses.put(unit, replace(status, progress=progress))

    async def _send_tasks(self, unit: Unit, tasks: list[dict[str, str]]) -> None:
        generation = self.configs.connectors[unit.connector].generation
        while True:
            known = self.configs.connectors.get(unit.connector)
            if known is None or known.generation != generation or unit not in self.runners:
                return  # it is divided again
            if await self._submit(unit.connector, tasks):
                return
            await asyncio.sleep(_AGAIN_SECONDS)

    def _restarted(self, restart: Restart) -> None:
        for unit, runner in self.runners.items():
            if chooses(restart, unit, runner.state):
                runner.restart()

    def set_logger(self, name: str, level: str) -> list[str]:
        """Set a level for this worker, its connectors and tasks. Returns the changed loggers. Raises
        UnknownLevel, UnknownLogger.
        """
        changed = self.loggers.set(name, level)
        for runner in self.runners.values():
            runner.set_log_levels(self.loggers.for_others())
        return changed

    def _logger_of_all(self, name: str, level: str) -> None:
        try:
            self.set_logger(name, level)
        except (UnknownLevel, UnknownLogger) as error:
            log.warning("logger %s: %s", name, error)

    def _in_background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def close(self) -> None:
        """Stop everything and report it, so that another worker need not wait."""
        if self._loop_task is not None:
            self._loop_task.cancel()
        runners, self.runners = dict(self.runners), {}
        if runners:
            await asyncio.gather(*(runner.stop(states.UNASSIGNED) for runner in runners.values()))
        if self._ending:
            await asyncio.wait(list(self._ending.values()), timeout=self._grace + 1)


def chooses(restart: Restart, unit: Unit, state: str) -> bool:
    """Whether a unit in this state should be restarted."""
    if unit.connector != restart.connector:
        return False
    if restart.task is not None:
        chosen = unit.task == restart.task
    else:
        chosen = not unit.is_task or restart.include_tasks
    return chosen and (not restart.only_failed or state in (states.FAILED, states.RESTARTING))


def _number(config: Mapping[str, str], name: str, default: int) -> int:
    text = config.get(name, "")
    return int(text) if text.strip().isdecimal() else default
