"""The materialized views of a run: which of them is due, and its computation, one at a time, in a thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from penstock.pipelines.run.flow_state import FlowState
from penstock.pipelines.run.writing import REFRESH_GROUP, Writer
from penstock.sqltext.identifiers import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Flows = Mapping[str, FlowState]


class Refreshes:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._workers = ThreadPoolExecutor(1, thread_name_prefix="penstock-refresh")
        self._running: tuple[str, Future[None]] | None = None
        self._batches: Counter[str] = Counter()

    def has_rows(self, flow: str) -> None:
        """A micro-batch of the flow has brought rows. For any thread."""
        self._batches[flow] += 1

    def begin(self, name: str, flows: Flows, now: float) -> None:
        """Computes the view if one of its inputs has changed, or its last computation has failed."""
        flow = flows[name]
        if self._running or flow.life.due > now or flow.hold or not inputs_ready(flow, flows):
            return
        inputs = flow.resolved.print.looks_up
        marker = tuple(self._progress_of(table, flows) for table in inputs)
        if flow.seen == marker and flow.life.error is None:
            return
        flow.state, flow.seen = "refreshing", marker
        flow.life.since = now  # no run that may prove healthy: it has succeeded when it has ended
        definition = flow.resolved.definition
        tables = [".".join(map(quoted, flow.graph.qualify(table))) for table in inputs]
        self._running = (name, self._workers.submit(self._writer.refresh, flow.graph, definition, tables))

    def take_ended(self) -> tuple[str, BaseException | None] | None:
        """The computation that has ended since the last call, and its error."""
        if self._running is None or not self._running[1].done():
            return None
        name, future = self._running
        self._running = None
        return name, future.exception()

    def shut_down(self, spark: SparkSession) -> None:
        if self._running:
            spark.sparkContext.cancelJobGroup(REFRESH_GROUP)
        self._workers.shutdown(wait=True)

    def _progress_of(self, table: str, flows: Flows) -> int:
        """A number that grows whenever a table of the pipeline gets rows."""
        total = 0
        for name, flow in flows.items():
            if flow.resolved.print.target == table:
                total += flow.refreshed if flow.is_view else self._batches[name]
        return total


def inputs_ready(flow: FlowState, flows: Flows) -> bool:
    """What looks up a materialized view starts when that has been computed."""
    return not any(
        each.is_view and each.refreshed == 0 and each.resolved.print.target in flow.resolved.print.looks_up
        for each in flows.values()
    )
