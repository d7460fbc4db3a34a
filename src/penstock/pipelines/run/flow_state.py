"""How a run behaves, and one flow of it as it stands: what the runner decides by, and what `status` shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.pipelines.project.graph import Graph, Kind
from penstock.pipelines.run.resolving import ResolvedFlow
from penstock.restarts import Backoff, Restarts
from penstock.spark.progress import QueryProgress

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


_QUIET_SECONDS = 15.0
"""A query that was started again and has run so long has got over its error, even if nothing came in."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run behaves."""

    trigger: str | None = "1 second"
    apply: str = "compatible"
    """What is applied without being asked: `all`, `compatible` (all but rebuilds) or `never`."""
    rebuild: tuple[str, ...] = ()
    """Flows or tables to rebuild at the start."""
    keep: tuple[str, ...] = ()
    """Flows that continue at the start with the state and rows that they have, as far as they can."""
    watch: bool = True
    poll: float = 1.0
    """Seconds between two looks at the files."""
    refresh_every: float = 10.0
    """Seconds between two computations of a materialized view, at least."""
    backoff: Backoff = field(default_factory=lambda: Backoff(quiet_after=_QUIET_SECONDS))


@dataclass(slots=True)
class FlowState:
    """One flow as it runs. `state`: waiting, running, failed, held, refreshing, up to date, stopped."""

    resolved: ResolvedFlow
    graph: Graph
    life: Restarts
    """Its failures, and when it is started or refreshed, if it waits."""
    state: str = "waiting"
    query: StreamingQuery | None = None
    run_id: str = ""
    """Spark's id of this run of its query."""
    hold: tuple[str, ...] = ()
    """Why it must be rebuilt, while nobody has agreed to that."""
    refreshed: int = 0
    seen: tuple[int, ...] | None = None
    """How far its inputs had come when it was last refreshed."""
    before: Mapping[str, Any] | None = None
    """The last progress of the query that it continues from, as `status` shows it."""

    @property
    def is_view(self) -> bool:
        return self.resolved.kind is Kind.MATERIALIZED_VIEW

    def _path(self) -> str | None:
        """Where its sink keeps files."""
        options = self.graph.target_of(self.resolved.definition).options
        return next((value for key, value in options.items() if key.lower() == "path"), None)

    def _without_data(self) -> dict[str, Any] | None:
        """How far it came before it was started again. Spark reports nothing until new data comes."""
        if self.before is None:
            return None
        waits = self.query is not None and self.query.status["message"].startswith("Waiting for")
        lag = 0 if waits and self.before.get("lag") is not None else None
        rates = dict.fromkeys(("input_rows", "input_rows_per_second", "processed_rows_per_second"), 0)
        return {**self.before, **rates, "lag": lag}

    def status(self, progress: QueryProgress | None, now: float) -> dict[str, Any]:
        """The flow as other terminals see it."""
        print_ = self.resolved.print
        return {
            "name": self.resolved.definition.name,
            "target": print_.target,
            "kind": print_.kind,
            "reads": list(self.resolved.reads),
            "writes": list(self.resolved.writes),
            "tables": list(dict.fromkeys((*print_.reads, *print_.looks_up))),
            "path": self._path(),
            "groups": list(print_.groups),
            "state": self.state,
            "error": self.life.error,
            "restarts": self.life.total,
            "retry_in": round(max(0.0, self.life.due - now), 1) if self.state == "failed" else None,
            "hold": list(self.hold),
            "refreshes": self.refreshed if self.is_view else None,
            "progress": progress.to_json() if progress else self._without_data(),
        }
