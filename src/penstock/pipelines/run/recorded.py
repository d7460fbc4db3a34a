"""What is recorded of the checkpoints in a project's storage: the query that each was last run with.

A flow that is removed keeps its checkpoint, and the record of it: it may come back with another query. State
whose query nobody recorded (another runner's, or a lost file's) fits nothing.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.pipelines.plans.changes import Action, Change
from penstock.pipelines.plans.fingerprint import FlowPrint
from penstock.pipelines.project.graph import Graph, Kind, split_name
from penstock.pipelines.run.resolving import Resolution
from penstock.pipelines.run.state import StateDirectory
from penstock.pipelines.run.writing import Writer

_BACK = "it is back in the files, and continues from its checkpoint"


class Recorded:
    """The prints of flows by their names: of those that run (`applied`), and of those that are gone."""

    def __init__(self, state: StateDirectory, writer: Writer) -> None:
        self._state = state
        self._writer = writer
        self.applied = state.prints()
        self._removed = state.removed_prints()

    def against(self, resolution: Resolution) -> dict[str, FlowPrint]:
        """All that the flows of a version are compared with."""
        found = dict(self.applied)
        for name, flow in resolution.flows.items():
            if name in found or flow.kind not in (Kind.STREAMING_TABLE, Kind.SINK):
                continue
            if name in self._removed:
                found[name] = self._removed[name]
            elif flow.print.state and self._writer.has_begun(flow.definition):
                found[name] = FlowPrint.unknown()
        return found

    def described(self, change: Change, graph: Graph) -> Change:
        """A change with what only the records say: a flow that comes back, and what one leaves behind."""
        if change.action is Action.KEEP and change.flow not in self.applied:
            return replace(change, action=Action.RESTART, reasons=(_BACK,))
        if change.action is Action.STOP and change.flow in self.applied:
            return replace(change, reasons=(*change.reasons, *self._left(change.flow, graph)))
        return change

    def _left(self, name: str, graph: Graph) -> list[str]:
        then = self.applied[name]
        said = [] if then.kind == Kind.SINK else [f"its table '{then.target}' stays"]
        if then.kind != Kind.MATERIALIZED_VIEW:
            target = split_name(then.target) if then.kind == Kind.SINK else graph.qualify(then.target)
            said.append(f"its checkpoint stays in {self._writer.checkpoint_of(target, name)}")
        said += [f"its consumer group '{group}' stays, until it is deleted" for group in then.groups]
        return said

    def apply(self, name: str, now: FlowPrint) -> None:
        self.applied[name] = self.remembered(name, now)
        self._removed.pop(name, None)

    def remembered(self, name: str, now: FlowPrint) -> FlowPrint:
        """A new print, with the clusters that the one before knew."""
        return now.remembering(self.applied.get(name))

    def remove(self, name: str) -> None:
        gone = self.applied.pop(name, None)
        if gone is not None:
            self._removed[name] = gone

    def write(self) -> None:
        self._state.write_prints(self.applied, self._removed)
