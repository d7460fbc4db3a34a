"""Turns definitions into analysed queries: each flow is evaluated once its inputs are there.

Spark says which tables a query reads only when it analyses it. So flows are tried until none of them gets
further; what is left then is wrong, or waits for itself.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.pipelines.errors import BadDefinition, PipelineError
from penstock.pipelines.failures import cause
from penstock.pipelines.plans.expressions import digest_of
from penstock.pipelines.plans.fingerprint import (
    FlowPrint,
    plan_hash,
    runs_python,
    sources_by_cluster,
    sources_of,
)
from penstock.pipelines.plans.spark_plans import read_query, tables_read
from penstock.pipelines.plans.topics import topics_read, topics_written
from penstock.pipelines.project.graph import TABLES, VIEWS, FlowDefinition, Graph, Kind, split_name
from penstock.pipelines.project.loading import place_of
from penstock.pipelines.project.project import Project
from penstock.pipelines.run.clusters import Clusters
from penstock.pipelines.run.groups import FlowGroup, groups_of
from penstock.pipelines.run.tables import PipelineTables
from penstock.sqltext.identifiers import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class ResolvedFlow:
    """A flow whose query Spark has accepted."""

    definition: FlowDefinition
    kind: Kind
    print: FlowPrint
    groups: tuple[FlowGroup, ...] = ()
    reads: tuple[str, ...] = ()
    """The topics of its streaming sources."""
    writes: tuple[str, ...] = ()
    """The topics of its sink, where the sink's options or constants of its query name them."""


@dataclass(slots=True)
class Resolution:
    """One version of the project, as Spark understands it."""

    graph: Graph
    flows: dict[str, ResolvedFlow] = field(default_factory=dict)
    """In an order in which inputs come first; views are among them."""
    replaced: dict[str, str] = field(default_factory=dict)
    """Tables whose columns cannot hold what their flows give, and why."""

    def prints(self) -> dict[str, FlowPrint]:
        return {name: flow.print for name, flow in self.flows.items() if flow.kind not in VIEWS}


class Resolver:
    """Evaluates flows in one session; also used to evaluate them again when they start."""

    def __init__(self, project: Project, spark: SparkSession, tables: PipelineTables) -> None:
        self.project = project
        self.spark = spark
        self.tables = tables
        self._views: set[str] = set()
        # Settings and the current database are the session's: one flow at a time may change them.
        self._lock = threading.RLock()

    def resolve(self, graph: Graph) -> Resolution:
        """All flows of the graph; BadDefinition for the first that Spark does not accept."""
        for view in self._views:
            self.spark.catalog.dropTempView(view)
        self._views.clear()
        resolution = Resolution(graph)
        content, clusters = self.project.content(), Clusters()
        everything = functools.cache(self.project.everything)
        settled: set[tuple[str, ...]] = set()
        pending = dict(graph.flows)
        waiting: dict[str, BadDefinition | set[str]] = {}
        going = True
        while pending and going:
            going = False
            for name, flow in list(pending.items()):
                outcome = self._try(graph, flow, settled, content, everything, clusters)
                if not isinstance(outcome, ResolvedFlow):
                    waiting[name] = outcome
                    continue
                resolution.flows[name] = outcome
                del pending[name]
                going = True
                self._settle(resolution, flow, settled)
        if pending:
            raise _explain(graph, pending, {name: waiting[name] for name in pending})
        return resolution

    def restore_views(self, resolution: Resolution) -> None:
        """Brings back the temporary views of a version that runs on, after another one was tried in vain."""
        for flow in resolution.flows.values():
            if flow.kind is Kind.TEMPORARY_VIEW:
                self.evaluate(flow.definition).createOrReplaceTempView(quoted(flow.definition.target[0]))
                self._views.add(flow.definition.target[0])

    def _try(
        self,
        graph: Graph,
        flow: FlowDefinition,
        settled: set[tuple[str, ...]],
        content: Mapping[str, str],
        everything: Callable[[], str],
        clusters: Clusters,
    ) -> ResolvedFlow | BadDefinition | set[str]:
        """The resolved flow; or the tables it waits for; or what is wrong with it, as things stand."""
        try:
            frame = self.evaluate(flow)
            analysed: Any = frame
            with self.settings(flow):
                read = read_query(self.spark, analysed, opaque=everything)
            plan = read.plan
            streams, static = tables_read(self.spark, analysed)
        except BadDefinition as error:
            return _missing(graph, error) or error
        reads = [name for name in streams if split_name(name) in graph.datasets]
        looks_up = [name for name in static if split_name(name) in graph.datasets]
        unsettled = {name for name in (*reads, *looks_up) if split_name(name) not in settled}
        if unsettled:
            return unsettled
        dataset = graph.target_of(flow)
        problem = _wrong_kind(flow, dataset.kind, frame.isStreaming)
        if problem:
            return BadDefinition(problem, flow.where)
        short = [graph.short(split_name(name)) for name in reads]
        groups = () if dataset.kind in VIEWS else groups_of(plan, self.project.query_name(flow.name))
        return ResolvedFlow(
            flow,
            dataset.kind,
            FlowPrint(
                target=graph.short(dataset.name),
                kind=str(dataset.kind),
                sources=sources_of(plan),
                by_cluster=sources_by_cluster(plan, clusters.id_of),
                state=read.state,
                query=digest_of(read.query, sorted(dataset.options.items()), dataset.format),
                gives=read.gives,
                lineage=read.lineage,
                columns=tuple(
                    f"{column.name} {column.dataType.simpleString()}" for column in frame.schema.fields
                ),
                plan=hashlib.sha256(
                    f"{plan_hash(plan)} {sorted(dataset.options.items())} {dataset.format}".encode()
                ).hexdigest()[:16],
                code=content.get(flow.where.file, "")[:16] if runs_python(plan) else "",
                conf=tuple(sorted(flow.conf.items())),
                reads=tuple(short),
                looks_up=tuple(graph.short(split_name(name)) for name in looks_up),
                shared=dataset.kind is Kind.STREAMING_TABLE and len(graph.flows_into(dataset.name)) > 1,
                groups=tuple(dict.fromkeys(each.name for each in groups)),
            ),
            groups,
            topics_read(plan),
            topics_written(plan, dataset.format, dataset.options),
        )

    def _settle(self, resolution: Resolution, flow: FlowDefinition, settled: set[tuple[str, ...]]) -> None:
        """Makes the dataset readable for those that come after, once all flows into it are known."""
        graph = resolution.graph
        dataset = graph.target_of(flow)
        into = graph.flows_into(dataset.name)
        if dataset.kind is Kind.SINK or any(other.name not in resolution.flows for other in into):
            return
        if dataset.kind is Kind.TEMPORARY_VIEW:
            self.evaluate(flow).createOrReplaceTempView(quoted(dataset.name[0]))
            self._views.add(dataset.name[0])
        elif dataset.kind is Kind.VIEW:
            with self.settings(flow):
                self.spark.sql(f"CREATE OR REPLACE VIEW {dataset.sql_name} AS {(flow.select or '').strip()}")
        elif dataset.kind in TABLES:
            schemas = [self.evaluate(other).schema for other in into]
            reason = self.tables.settle(graph, dataset, schemas)
            if reason:
                resolution.replaced[graph.short(dataset.name)] = reason
        settled.add(dataset.name)

    def evaluate(self, flow: FlowDefinition) -> DataFrame:
        """The flow's DataFrame, analysed now; BadDefinition says where and why not."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException
        from pyspark.sql import DataFrame

        try:
            with self.settings(flow):
                frame = flow.function() if flow.function else self.spark.sql(flow.select or "")
        except (PySparkException, Py4JJavaError) as error:
            raise _at(error, flow, self.project) from error
        except PipelineError:
            raise
        except Exception as error:
            raise BadDefinition(
                f"flow '{flow.name}': {cause(error)}", place_of(error, self.project) or flow.where
            ) from error
        if not isinstance(frame, DataFrame):
            raise BadDefinition(
                f"flow '{flow.name}' gave {type(frame).__name__} and no DataFrame: does it return its query?",
                flow.where,
            )
        return frame

    @contextmanager
    def settings(self, flow: FlowDefinition) -> Iterator[None]:
        """The flow's own Spark settings, catalog and database, for as long as it is evaluated or started."""
        from pyspark.errors import PySparkException

        catalog, database = self.project.catalog, self.project.database
        moved = bool(flow.catalog or flow.database)
        self._lock.acquire()
        before = {key: self.spark.conf.get(key, None) for key in flow.conf}
        try:
            try:
                for key, value in flow.conf.items():
                    self.spark.conf.set(key, value)
                if moved:
                    self.spark.catalog.setCurrentCatalog(flow.catalog or catalog)
                    self.spark.catalog.setCurrentDatabase(flow.database or database)
            except PySparkException as error:
                raise BadDefinition(f"flow '{flow.name}': {cause(error)}", flow.where) from error
            yield
        finally:
            for key, old in before.items():
                if old is None:
                    self.spark.conf.unset(key)
                else:
                    self.spark.conf.set(key, old)
            if moved:
                self.spark.catalog.setCurrentCatalog(catalog)
                self.spark.catalog.setCurrentDatabase(database)
            self._lock.release()


class _TableMissing(BadDefinition):
    """Spark does not find a table or view of this name."""

    name: tuple[str, ...] = ()


def _at(error: Any, flow: FlowDefinition, project: Project) -> BadDefinition:
    where = place_of(error, project) or flow.where
    condition = error.getCondition() if hasattr(error, "getCondition") else None
    if flow.select:
        line = _line_in_query(error, flow.select)
        if line:
            where = type(where)(flow.where.file, line)
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        name = (error.getMessageParameters() or {}).get("relationName", "")
        missing = _TableMissing(
            f"flow '{flow.name}' reads '{name.replace('`', '')}', which neither pipeline nor catalog has",
            where,
        )
        missing.name = split_name(name)
        return missing
    return BadDefinition(f"flow '{flow.name}': {cause(error)}", where)


def _line_in_query(error: Any, select: str) -> int | None:
    """The file's line of an error in a SELECT, which is padded to have the file's positions."""
    try:
        contexts = error.getQueryContext()
        if contexts:
            return select.count("\n", 0, contexts[0].startIndex()) + 1
    except Exception:  # noqa: BLE001 - a DataFrame context has no position; the flow's own line will do
        pass
    import re

    found = re.search(
        r"== SQL \(line (\d+), position \d+\) ==|\(line (\d+), pos \d+\)|line (\d+) pos", str(error)
    )
    return int(next(group for group in found.groups() if group)) if found else None


def _missing(graph: Graph, error: BadDefinition) -> set[str] | None:
    """The dataset of the graph that an error says does not exist yet."""
    if not isinstance(error, _TableMissing):
        return None
    written = ".".join(map(quoted, error.name))
    if error.name in graph.datasets or graph.qualify(written) in graph.datasets:
        return {".".join(error.name if error.name in graph.datasets else graph.qualify(written))}
    return None


def _wrong_kind(flow: FlowDefinition, kind: Kind, streaming: bool) -> str | None:
    if kind in (Kind.STREAMING_TABLE, Kind.SINK) and not streaming:
        return f"flow '{flow.name}' into a {kind} must read a stream: use spark.readStream, or STREAM in SQL"
    if kind is Kind.MATERIALIZED_VIEW and streaming:
        return f"materialized view '{flow.name}' reads a stream: use spark.read, or make it a streaming table"
    return None


def _explain(
    graph: Graph, pending: Mapping[str, FlowDefinition], waiting: Mapping[str, BadDefinition | set[str]]
) -> BadDefinition:
    """The one error to show for flows that got nowhere: a real one before a cycle."""
    for outcome in waiting.values():
        if isinstance(outcome, BadDefinition):
            return outcome
    waits = {
        name: {other for other, flow in pending.items() if ".".join(flow.target) in outcome}
        for name, outcome in waiting.items()
        if isinstance(outcome, set)
    }
    name = next(iter(waits))
    path: list[str] = []
    while name not in path:
        path.append(name)
        name = next(iter(sorted(waits.get(name) or ())), path[0])
    circle = [*path[path.index(name) :], name]
    return BadDefinition(
        f"flows depend on each other in a cycle: {' reads '.join(repr(step) for step in circle)}",
        graph.flows[circle[0]].where,
    )
