"""Keeps the flows of one project running: starts, watches, restarts, refreshes, follows the files, stops.

One thread does all of that, a step at a time; only materialized views are computed beside it. What a change
of the files means is decided in `changes`, how a flow is started in `writing`, when a view is due in
`refreshing`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.pipelines.errors import PipelineError
from penstock.pipelines.failures import cause, reason, state_does_not_fit
from penstock.pipelines.plans.changes import Action, Change, plan_changes, rebuilt_together
from penstock.pipelines.project.graph import Kind
from penstock.pipelines.project.loading import load_graph
from penstock.pipelines.project.project import Project, load_project
from penstock.pipelines.run.flow_state import FlowState, RunOptions
from penstock.pipelines.run.groups import delete_groups
from penstock.pipelines.run.recorded import Recorded
from penstock.pipelines.run.refreshing import Refreshes, inputs_ready
from penstock.pipelines.run.resolving import Resolution, Resolver
from penstock.pipelines.run.state import StateDirectory
from penstock.pipelines.run.storage import Storage
from penstock.pipelines.run.tables import PipelineTables, wanted_schema
from penstock.pipelines.run.writing import Writer
from penstock.restarts import Restarts
from penstock.spark.progress import QueryProgress
from penstock.spark.starting import begun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Event = dict[str, Any]
_START_SECONDS = 10.0
"""How long one flow's start holds up the next."""


class Runner:
    """One run of one project. `report` gets an event for everything that a person may want to see."""

    def __init__(
        self,
        project: Project,
        spark: SparkSession,
        state: StateDirectory,
        options: RunOptions,
        report: Callable[[Event], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        luck: Callable[[], float] = random.random,
    ) -> None:
        self.project = project
        self.spark = spark
        self.state = state
        self.options = options
        self.report = report
        self.clock = clock
        self.luck = luck
        storage = Storage(spark)
        self.tables = PipelineTables(project, spark, storage)
        self.resolver = Resolver(project, spark, self.tables)
        self.writer = Writer(self.resolver, self.tables, storage, options.trigger)
        self.flows: dict[str, FlowState] = {}
        self.recorded = Recorded(state, self.writer)
        self.pending: list[Change] = []
        """Rebuilds, and with `never` all changes, that wait for somebody to agree."""
        self.file_error: str | None = None
        self.progress: dict[str, QueryProgress] = {}
        self._before = {
            str(flow.get("name")): flow.get("progress") for flow in state.status().get("flows", [])
        }
        self._content: dict[str, str] = {}
        self._looked_at: dict[str, str] = {}
        self._next_look = 0.0
        self._resolution: Resolution | None = None
        self._refreshes = Refreshes(self.writer)
        self._started_at = time.time()
        self._phase = "starting"

    # -- the run

    def run(self, stop: threading.Event) -> None:
        """Until `stop`, after `load`. Whatever goes wrong from here on is shown, and does not end the run."""
        try:
            while not stop.is_set():
                self.step()
                stop.wait(0.2)
        finally:
            self.shut_down()

    def load(self) -> None:
        """Reads the project for the first time and plans its start."""
        self._content = self._looked_at = self.project.content()
        resolution = self.resolver.resolve(load_graph(self.project, self.spark))
        rebuild = self._named(resolution, "--rebuild", self.options.rebuild)
        keep = self._named(resolution, "--keep", self.options.keep)
        self._plan_and_apply(resolution, agreed=set(rebuild), rebuild=rebuild, keep=keep)
        self._phase = "running"

    def step(self) -> None:
        """Whatever is due now."""
        now = self.clock()
        for flow in self.flows.values():
            self._watch(flow, now)
        self._finish_refresh(now)
        for name, flow in self.flows.items():
            if flow.is_view:
                self._refreshes.begin(name, self.flows, now)
            elif (
                flow.state in ("waiting", "failed")
                and flow.life.due <= now
                and not flow.hold
                and inputs_ready(flow, self.flows)
                and not self._one_is_starting(now)
            ):
                self._start(flow, now)
        if self.options.watch and now >= self._next_look:
            self._next_look = now + self.options.poll
            self._look_at_files()
        wanted = self.state.take_apply()
        if wanted is not None:
            self.apply_pending(*wanted)
        self.state.write_status(self.status())

    def shut_down(self) -> None:
        """Stops the flows, inputs first, and shows that it is over."""
        self._phase = "stopping"
        self.state.write_status(self.status())
        self._refreshes.shut_down(self.spark)
        for flow in self.flows.values():
            self._stop(flow)
            if flow.state not in ("failed", "held"):
                flow.state = "stopped"
        self._phase = "stopped"
        self.state.write_status(self.status())
        self.report({"event": "stopped"})

    # -- flows

    def _start(self, flow: FlowState, now: float) -> None:
        name = flow.resolved.definition.name
        try:
            flow.query = self.writer.start(flow.graph, flow.resolved.definition, flow.resolved.print.query)
        except Exception as error:  # noqa: BLE001 - Spark and user code may raise anything; the flow fails, not the run
            self._failed(flow, cause(error), str(error), now)
            return
        flow.state, flow.run_id = "running", str(flow.query.runId)
        flow.life.started(now)
        self.report({"event": "started", "flow": name, "restart": flow.life.total > 0})

    def _one_is_starting(self, now: float) -> bool:
        """Whether a query is still looking for its first offsets."""
        return any(
            flow.query is not None and now - flow.life.since < _START_SECONDS and not begun(flow.query)
            for flow in self.flows.values()
        )

    def _watch(self, flow: FlowState, now: float) -> None:
        """Notices a query that has ended on its own."""
        if flow.query is None:
            return
        if flow.query.isActive:
            progress = self.progress.get(flow.resolved.definition.name)
            flow.life.works(now, proven=progress is not None and progress.run_id == flow.run_id)
            return
        error = flow.query.exception()
        flow.query = None
        self._failed(flow, reason(error), str(error), now)

    def _failed(self, flow: FlowState, text: str, whole: str, now: float) -> None:
        flow.state = "failed"
        delay = flow.life.failed(text, now, self.luck()) or 0.0
        name = flow.resolved.definition.name
        if state_does_not_fit(whole):
            text += f" (its checkpoint is of another query: `penstock pipeline apply {name}` rebuilds it)"
            flow.hold = (text,)
            flow.state = "held"
            self.pending = [
                *(c for c in self.pending if c.flow != name),
                Change(name, Action.REBUILD, (text,)),
            ]
        flow.life.error = text
        self.report(
            {
                "event": "failed",
                "flow": name,
                "error": text,
                "retry_in": round(delay, 1) if not flow.hold else None,
                "detail": whole,
            }
        )

    def _life(self, now: float) -> Restarts:
        return Restarts(self.options.backoff, due=now)

    def _stop(self, flow: FlowState) -> None:
        if flow.query is None:
            return
        try:
            flow.query.stop()
        except Exception as error:  # noqa: BLE001 - a query that fails while it is stopped is stopped
            self.report({"event": "note", "flow": flow.resolved.definition.name, "text": cause(error)})
        flow.query = None

    # -- materialized views

    def _finish_refresh(self, now: float) -> None:
        ended = self._refreshes.take_ended()
        flow = self.flows.get(ended[0]) if ended is not None else None
        if ended is None or flow is None:
            return
        name, error = ended
        if error:
            flow.seen = None
            self._failed(flow, cause(error), str(error), now)
            return
        flow.state = "up to date"
        flow.life.forget()
        flow.refreshed += 1
        flow.life.due = now + self.options.refresh_every
        for reader in self.flows.values():
            looks_up = flow.resolved.print.target in reader.resolved.print.looks_up
            if looks_up and not reader.is_view and reader.query:
                # It sees what it looks up as that was when it started.
                self._stop(reader)
                reader.state = "waiting"
                reader.life.again(now)
        self.report({"event": "refreshed", "flow": name, "seconds": round(now - flow.life.since, 1)})

    def on_progress(self, progress: QueryProgress) -> None:
        """Called by Spark's listener thread."""
        prefix = f"{self.project.name}."
        if progress.name and progress.name.startswith(prefix):
            name = progress.name.removeprefix(prefix)
            self.progress[name] = progress
            if progress.input_rows:
                self._refreshes.has_rows(name)

    # -- changes

    def _look_at_files(self) -> None:
        content = self.project.content()
        changed = content != self._content
        settled = content == self._looked_at  # an editor may be in the middle of writing
        self._looked_at = content
        if changed and settled:
            files = sorted(
                name for name in {*content, *self._content} if content.get(name) != self._content.get(name)
            )
            self._content = content
            self.report({"event": "changed", "files": files})
            self._new_version()

    def _new_version(self, agreed: Collection[str] = ()) -> None:
        try:
            project = load_project(self.project.spec)
            if project != self.project:
                if replace(project, globs=()) != replace(self.project, globs=()):
                    raise PipelineError(f"{project.spec.name} has changed: run the pipeline again to use it")
                self.project = self.resolver.project = self.writer.project = self.tables.project = project
            resolution = self.resolver.resolve(load_graph(project, self.spark))
        except PipelineError as error:
            self.file_error = str(error)
            self.report({"event": "error", "error": str(error)})
            self._restore_views()
            return
        self.file_error = None
        self._plan_and_apply(resolution, agreed=agreed)

    def _restore_views(self) -> None:
        if self._resolution is None:
            return
        try:
            self.resolver.restore_views(self._resolution)
        except PipelineError as error:
            self.report({"event": "note", "flow": "views", "text": str(error)})

    def _plan_and_apply(
        self,
        resolution: Resolution,
        *,
        agreed: Collection[str],
        rebuild: Collection[str] = (),
        keep: Collection[str] = (),
    ) -> None:
        """Shows what the new version means, then applies as much of it as may be applied."""
        self._resolution = resolution
        planned = plan_changes(
            self.recorded.against(resolution),
            resolution.prints(),
            replaced_tables=resolution.replaced,
            rebuild=rebuild,
            keep=keep,
        )
        changes = [self.recorded.described(change, resolution.graph) for change in planned]
        # What cannot be kept is not emptied for it.
        refused = {c.flow for c in changes if c.flow in keep and c.action is Action.REBUILD}
        may, agreed = set(agreed) - refused, set(agreed) - refused
        if self.options.apply == "all" or not self.flows:
            may |= {
                change.flow
                for change in changes
                if self.options.apply == "all" or change.action is not Action.REBUILD
            }
        elif self.options.apply == "compatible":
            may |= {change.flow for change in changes if change.action is not Action.REBUILD}
        # Rebuilds hang together: a table is emptied for all of its flows.
        wanted_rebuilds = [change for change in changes if change.action is Action.REBUILD]
        if any(change.flow in agreed for change in wanted_rebuilds):
            may |= rebuilt_together(wanted_rebuilds, resolution.prints(), agreed)
        self.pending = [c for c in changes if c.flow not in may and c.action is not Action.KEEP]
        shown = [change for change in changes if change.action is not Action.KEEP]
        if self.flows or any(change.action is not Action.START for change in shown):
            self.report(
                {
                    "event": "plan",
                    "changes": [
                        {
                            "flow": c.flow,
                            "action": str(c.action),
                            "reasons": list(c.reasons),
                            "applied": c.flow in may,
                        }
                        for c in changes
                    ],
                }
            )
        self._apply(resolution, changes, may)

    def _apply(self, resolution: Resolution, changes: list[Change], may: Collection[str]) -> None:
        now = self.clock()
        rebuilds = [c for c in changes if c.action is Action.REBUILD and c.flow in may]
        for change in changes:
            flow = self.flows.get(change.flow)
            if flow and change.flow in may and change.action in (Action.STOP, Action.RESTART, Action.REBUILD):
                self._stop(flow)
        other_columns = self._rebuild(resolution, rebuilds)
        states: dict[str, FlowState] = {}
        for change in changes:
            name = change.flow
            old = self.flows.get(name)
            if change.action is Action.STOP:
                if name in may:
                    self.recorded.remove(name)
                    gone = self.progress.pop(name, None)
                    self._before[name] = gone.to_json() if gone else None
                elif old:
                    states[name] = old
                continue
            resolved = resolution.flows[name]
            if name not in may:
                hold = change.reasons or ("it waits for `apply`",)
                states[name] = old or FlowState(
                    resolved, resolution.graph, self._life(now), state="held", hold=hold
                )
                continue
            if change.action is Action.KEEP and old:
                old.resolved, old.graph = resolved, resolution.graph
                states[name] = old
            else:
                last = self.progress.pop(name, None)
                before = last.to_json() if last else self._before.pop(name, None)
                goes_on = change.action in (Action.KEEP, Action.RESTART)
                states[name] = FlowState(
                    resolved, resolution.graph, self._life(now), before=before if goes_on else None
                )
            self.recorded.apply(name, resolved.print)
        order = [name for name in resolution.flows if name in states]
        self.flows = {name: states[name] for name in [*order, *(n for n in states if n not in order)]}
        self.recorded.write()
        if other_columns:
            # What reads the tables is looked at again.
            self._new_version(agreed=[change.flow for change in rebuilds])

    def _rebuild(self, resolution: Resolution, rebuilds: list[Change]) -> bool:
        """Empties the tables and begins new checkpoints; gives whether a table has other columns now."""
        graph = resolution.graph
        emptied: set[tuple[str, ...]] = set()
        changed = False
        for change in rebuilds:
            resolved = resolution.flows[change.flow]
            definition, dataset = resolved.definition, graph.target_of(resolved.definition)
            then, running = self.recorded.applied.get(change.flow), self.flows.get(change.flow)
            if then is not None and then.sources != resolved.print.sources:
                delete_groups((running.resolved if running is not None else resolved).groups)
            self.writer.forget(definition)
            if dataset.kind is not Kind.STREAMING_TABLE or dataset.name in emptied:
                continue
            emptied.add(dataset.name)
            schemas = [self.resolver.evaluate(flow).schema for flow in graph.flows_into(dataset.name)]
            if self.tables.start_again(dataset, wanted_schema(graph, dataset, schemas)):
                changed = True
        return changed

    def apply_pending(self, flows: Collection[str], keep: bool = False) -> None:
        """Somebody agrees to what waits: to the named flows, or to all of it. With `keep`, as far as nothing
        is emptied for it."""
        waiting = [change.flow for change in self.pending]
        chosen = [name for name in flows if name in waiting] if flows else waiting
        for name in flows:
            if name not in waiting:
                self.report({"event": "note", "flow": name, "text": "it has no pending change"})
        if not chosen or self._resolution is None:
            return
        forced = [c.flow for c in self.pending if c.flow in chosen and c.action is Action.REBUILD]
        self.report({"event": "applying", "flows": chosen})
        for name in forced:
            flow = self.flows.get(name)
            if flow:
                flow.hold = ()
        now, recorded = self._resolution.prints(), self.recorded
        as_it_was = [
            name
            for name in forced
            if name in now and recorded.applied.get(name) == recorded.remembered(name, now[name])
        ]
        self._plan_and_apply(
            self._resolution,
            agreed=chosen,
            rebuild=() if keep else as_it_was,
            keep=chosen if keep else (),
        )
        for change in self.pending if keep else ():
            if change.flow in chosen:
                self.report({"event": "note", "flow": change.flow, "text": "it cannot keep its state"})

    def _named(self, resolution: Resolution, option: str, names: Collection[str]) -> list[str]:
        """The flows that are meant by names of flows or tables; PipelineError for a name of neither."""
        prints = resolution.prints()
        for name in names:
            if name not in prints and all(print_.target != name for print_ in prints.values()):
                raise PipelineError(
                    f"{option} {name}: no such flow or table. Available: {', '.join(prints)}."
                )
        return [flow for flow, print_ in prints.items() if flow in names or print_.target in names]

    # -- what others see

    def status(self) -> dict[str, Any]:
        """All that `penstock pipeline status` shows."""
        phase = self._phase
        if phase == "running" and (
            self.file_error or any(flow.life.error or flow.hold for flow in self.flows.values())
        ):
            phase = "degraded"
        now = self.clock()
        return {
            "pipeline": self.project.name,
            "state": phase,
            "started_at": round(self._started_at, 3),
            "updated_at": round(time.time(), 3),
            "file_error": self.file_error,
            "pending": [
                {"flow": c.flow, "action": str(c.action), "reasons": list(c.reasons)} for c in self.pending
            ],
            "flows": [flow.status(self.progress.get(name), now) for name, flow in self.flows.items()],
        }
