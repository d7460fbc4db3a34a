"""Reads logical plans out of Spark's JVM: as PlanNodes for `fingerprint`, and which tables they read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.pipelines.fingerprint import PlanNode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WIDE = 10_000
"""Fields of a node that its text names: all of them."""
_NEEDS_INPUT = ("Join", "Deduplicate", "DeduplicateWithinWatermark")


def read_plan(spark: SparkSession, frame: Any) -> tuple[PlanNode, PlanNode]:
    """The analysed plan of a DataFrame, and the optimised one, which has only the columns that are used."""
    from py4j.protocol import Py4JError

    session: Any = spark
    analysed = frame._jdf.queryExecution().analyzed()
    node = _node(session, analysed)
    if not frame.isStreaming:
        return node, node
    try:
        optimized = session._jsparkSession.sessionState().optimizer().execute(analysed)
        return node, _node(session, optimized)
    except Py4JError:
        return node, node  # an operator that only a running stream can optimise


def _node(spark: Any, plan: Any) -> PlanNode:
    name = plan.getClass().getSimpleName()
    children = tuple(_node(spark, child) for child in _items(plan.children()))
    streaming = bool(plan.isStreaming())
    source = None
    output: tuple[str, ...] = ()
    if streaming and not children:
        source = _source(spark, plan, name)
    if name in _NEEDS_INPUT:
        children = tuple(
            PlanNode(child.name, child.text, child.streaming, (_columns(at),), child.children, child.source)
            for child, at in zip(children, _items(plan.children()), strict=True)
        )
    return PlanNode(name, plan.simpleString(_WIDE), streaming, output, children, source)


def _columns(plan: Any) -> str:
    return str(plan.schema().simpleString())


def _source(spark: Any, plan: Any, name: str) -> tuple[str, dict[str, str]]:
    if name == "StreamingRelationV2":
        return str(plan.sourceName()), dict(plan.extraOptions().asCaseSensitiveMap())
    if name == "StreamingRelation":
        source = plan.dataSource()
        options = spark._jvm.scala.jdk.javaapi.CollectionConverters.asJava(source.options())
        return str(source.className()), dict(options)
    return name, {"plan": plan.simpleString(_WIDE)}


def tables_read(spark: SparkSession, frame: Any) -> tuple[list[str], list[str]]:
    """The full names of the catalog's tables that a query reads: as streams, and as they stand."""
    analysed = frame._jdf.queryExecution().analyzed()
    streams: dict[str, None] = {}
    static: dict[str, None] = {}
    for plan in (analysed, *_items(analysed.subqueriesAll())):
        for leaf in _items(plan.collectLeaves()):
            name = _table(leaf)
            if name:
                (streams if leaf.isStreaming() else static).setdefault(name.lower())
    return list(streams), list(static)


def _table(leaf: Any) -> str | None:
    kind = leaf.getClass().getSimpleName()
    if kind == "StreamingRelation":
        table = leaf.dataSource().catalogTable()
        return str(table.get().identifier().unquotedString()) if table.isDefined() else None
    if kind == "LogicalRelation":
        table = leaf.catalogTable()
        return str(table.get().identifier().unquotedString()) if table.isDefined() else None
    if kind == "HiveTableRelation":
        return str(leaf.tableMeta().identifier().unquotedString())
    if kind in ("DataSourceV2Relation", "StreamingRelationV2"):
        identifier, catalog = leaf.identifier(), leaf.catalog()
        if identifier.isDefined() and catalog.isDefined():
            return f"{catalog.get().name()}.{identifier.get()}"
    return None


def _items(sequence: Any) -> Iterator[Any]:
    for at in range(sequence.size()):
        yield sequence.apply(at)
