"""The definitions of a project: datasets and flows, collected from its files and checked against each other.

Pure data. Definitions in Python files are loaded by `loading`, those in SQL files by `sql`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from penstock.pipelines.errors import BadDefinition, Where
from penstock.sqltext.identifiers import quoted, unquoted


class Kind(StrEnum):
    """What a dataset is."""

    STREAMING_TABLE = "streaming table"
    MATERIALIZED_VIEW = "materialized view"
    TEMPORARY_VIEW = "temporary view"
    VIEW = "view"
    SINK = "sink"


TABLES = (Kind.STREAMING_TABLE, Kind.MATERIALIZED_VIEW)
VIEWS = (Kind.TEMPORARY_VIEW, Kind.VIEW)


@dataclass(frozen=True, slots=True)
class Dataset:
    """One output of a pipeline. `name` is its identifier: three parts of a table, one of a view or a sink."""

    name: tuple[str, ...]
    kind: Kind
    where: Where
    comment: str | None = None
    schema: Any = None
    """A StructType, a DDL string, or None if the flows define it."""
    format: str | None = None
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def sql_name(self) -> str:
        return ".".join(map(quoted, self.name))


@dataclass(frozen=True, slots=True)
class FlowDefinition:
    """One query that writes to a dataset: either a Python function that returns a DataFrame, or a SELECT."""

    name: str
    target: tuple[str, ...]
    where: Where
    function: Callable[[], Any] | None = None
    select: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    catalog: str | None = None
    database: str | None = None
    by_default: bool = False
    """Whether the flow was made by its dataset's own definition, whose name it has."""


@dataclass(slots=True)
class Graph:
    """All definitions of one version of a project. `add_*` reject a definition that contradicts an earlier
    one.
    """

    catalog: str
    database: str
    datasets: dict[tuple[str, ...], Dataset] = field(default_factory=dict)
    flows: dict[str, FlowDefinition] = field(default_factory=dict)

    def qualify(self, name: str, catalog: str | None = None, database: str | None = None) -> tuple[str, ...]:
        """A name as it is written, as the parts of a table's full identifier, in Spark's lower case."""
        parts = split_name(name)
        if len(parts) < 2:
            parts = (database or self.database, *parts)
        if len(parts) < 3:
            parts = (catalog or self.catalog, *parts)
        return parts

    def add_dataset(self, dataset: Dataset) -> None:
        earlier = self.datasets.get(dataset.name)
        if earlier:
            raise BadDefinition(
                f"{dataset.kind} '{self.short(dataset.name)}' is defined at {earlier.where} already: rename",
                dataset.where,
            )
        if dataset.kind is Kind.SINK and not dataset.format:
            raise BadDefinition(f"sink '{dataset.name[-1]}' needs a format", dataset.where)
        self.datasets[dataset.name] = dataset

    def add_flow(self, flow: FlowDefinition) -> None:
        earlier = self.flows.get(flow.name)
        if earlier:
            raise BadDefinition(
                f"flow '{flow.name}' is defined already at {earlier.where}: rename one of them", flow.where
            )
        self.flows[flow.name] = flow

    def short(self, name: tuple[str, ...]) -> str:
        """A dataset's name for people: without the catalog and database that are the project's own."""
        if name[:-1] == (self.catalog, self.database):
            return name[-1]
        return ".".join(name)

    def target_of(self, flow: FlowDefinition) -> Dataset:
        return self.datasets[flow.target]

    def flows_into(self, name: tuple[str, ...]) -> list[FlowDefinition]:
        return [flow for flow in self.flows.values() if flow.target == name]

    def check(self) -> None:
        """The checks that need no Spark: targets exist, and datasets have the required flows."""
        for flow in self.flows.values():
            if flow.target not in self.datasets:
                # A sink has one part: it was looked for by its full name when the flow was collected.
                raise BadDefinition(
                    f"flow '{flow.name}' goes into '{self.short(flow.target)}', which is not defined; "
                    "create it with dp.create_streaming_table, dp.create_sink or CREATE STREAMING TABLE",
                    flow.where,
                )
        for dataset in self.datasets.values():
            count = len(self.flows_into(dataset.name))
            name = self.short(dataset.name)
            if dataset.kind in (Kind.MATERIALIZED_VIEW, *VIEWS) and count != 1:
                raise BadDefinition(
                    f"{dataset.kind} '{name}' has {count} flows, and must have exactly one: its own query",
                    dataset.where,
                )
            if count == 0:
                raise BadDefinition(
                    f"{dataset.kind} '{name}' has no flow: nothing would ever be written to it; "
                    "add one with @dp.append_flow or CREATE FLOW",
                    dataset.where,
                )
            if count > 1 and dataset.partition_by:
                raise BadDefinition(
                    f"{dataset.kind} '{name}' is partitioned and has {count} flows: it can be one of both",
                    dataset.where,
                )
        if not self.flows:
            raise BadDefinition("the project defines no flow: are its files where `libraries` says?")

    def resolve_targets(self) -> None:
        """Points flows at sinks, whose identifier has one part, where no table has the full name."""
        for flow in list(self.flows.values()):
            single = flow.target[-1:]
            if flow.target not in self.datasets and single in self.datasets:
                self.flows[flow.name] = _retarget(flow, single)


def _retarget(flow: FlowDefinition, target: tuple[str, ...]) -> FlowDefinition:
    from dataclasses import replace

    return replace(flow, target=target)


def split_name(name: str) -> tuple[str, ...]:
    """`a.b` or `` `a`.`b.c` `` as its parts, in lower case as Spark compares them."""
    parts = re.findall(r"`((?:[^`]|``)*)`|([^.`]+)", name)
    return tuple((unquoted(inside) or plain.strip()).lower() for inside, plain in parts)
