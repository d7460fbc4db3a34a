"""Starts one flow: its checkpoint, its place of output, its StreamingQuery; and computes materialized views.

Checkpoints lie where `spark-pipelines` keeps them, and single-flow tables are written as it writes them, so
the two can take turns on one project.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.pipelines.errors import BadDefinition
from penstock.pipelines.plans.reruns import rerun_check
from penstock.pipelines.project.graph import Dataset, FlowDefinition, Graph, Kind
from penstock.pipelines.run.resolving import Resolver
from penstock.pipelines.run.storage import Storage, latest_checkpoint, next_checkpoint
from penstock.pipelines.run.tables import DEFAULT_FORMAT, PipelineTables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

REFRESH_GROUP = "penstock-refresh"
"""The job group of materialized views, by which they are cancelled."""


class Writer:
    """Everything that a flow does to the storage."""

    def __init__(
        self, resolver: Resolver, tables: PipelineTables, storage: Storage, trigger: str | None
    ) -> None:
        self.project = resolver.project
        self.spark: SparkSession = resolver.spark
        self.resolver = resolver
        self.tables = tables
        self.storage = storage
        self.trigger = trigger

    def checkpoint_root(self, flow: FlowDefinition) -> str:
        return self.checkpoint_of(flow.target, flow.name)

    def checkpoint_of(self, target: tuple[str, ...], name: str) -> str:
        return self.project.under_storage("_checkpoints", *target, name.rpartition(".")[2])

    def checkpoint(self, flow: FlowDefinition) -> str:
        return latest_checkpoint(self.storage, self.checkpoint_root(flow))

    def has_begun(self, flow: FlowDefinition) -> bool:
        """Whether there is a checkpoint that a batch was planned in."""
        return bool(self.storage.names(f"{self.checkpoint(flow)}/offsets"))

    def forget(self, flow: FlowDefinition) -> None:
        """Begins a new checkpoint: the flow will read its sources from the start."""
        next_checkpoint(self.storage, self.checkpoint_root(flow))

    def start(self, graph: Graph, flow: FlowDefinition, version: str) -> StreamingQuery:
        """The running query of a streaming flow, from its newest checkpoint. `version`: of its query."""
        dataset = graph.target_of(flow)
        with self.resolver.settings(flow):
            frame = self.resolver.evaluate(flow)
            stream = frame.writeStream
            stream = stream.queryName(self.project.query_name(flow.name)).outputMode("append")
            stream = stream.option("checkpointLocation", self.checkpoint(flow))
            if self.trigger:
                stream = stream.trigger(processingTime=self.trigger)
            if (
                dataset.kind is Kind.SINK
                and (dataset.format or "").lower() == "delta"
                and not self._has_delta_jar()
            ):
                return stream.foreachBatch(_delta_writer(dataset)).start()
            if dataset.kind is Kind.SINK:
                options = {**_rerun_options(dataset, frame, version), **dataset.options}
                return stream.format(dataset.format or "").options(**options).start()
            if len(graph.flows_into(dataset.name)) > 1:
                return stream.foreachBatch(self._appender(dataset, flow)).start()
            if dataset.partition_by:
                stream = stream.partitionBy(*dataset.partition_by)
            return stream.format(dataset.format or DEFAULT_FORMAT).toTable(dataset.sql_name)

    def _has_delta_jar(self) -> bool:
        return "delta" in (self.spark.conf.get("spark.sql.extensions", "") or "").lower()

    def _appender(self, dataset: Dataset, flow: FlowDefinition) -> Any:
        """Writes batches of one of several flows into a table.

        Spark's file sink keeps one log of batches in a table: a second query in it fails, or skips batches.
        Here a batch is one file with the flow's and the batch's number as its name: written aside, renamed
        into the table, and not written again when the batch is repeated.
        """
        location = self.tables.location(dataset).rstrip("/")
        storage, format_ = self.storage, dataset.format or DEFAULT_FORMAT
        # The number of the checkpoint is part of the name: batches count from 0 again after a rebuild.
        number = self.checkpoint(flow).rpartition("/")[2]
        name = "".join(letter if letter.isalnum() else "-" for letter in flow.name)

        def append(batch: DataFrame, batch_id: int) -> None:
            final = f"{location}/part-{name}-{number}-{batch_id:010d}.{format_}"
            if storage.exists(final):
                return
            aside = f"{location}/_writing/{name}"
            batch.repartition(1).write.format(format_).mode("overwrite").save(aside)
            (part,) = [file for file in storage.names(aside) if file.startswith("part-")]
            storage.rename(f"{aside}/{part}", final)

        return append

    def refresh(self, graph: Graph, flow: FlowDefinition, inputs: list[str]) -> None:
        """Computes a materialized view again and puts it in the place of what it was."""
        dataset = graph.target_of(flow)
        self.spark.sparkContext.setJobGroup(REFRESH_GROUP, f"refresh {flow.name}", interruptOnCancel=True)
        for name in inputs:
            # Files that streams have added since the table was last read are not seen otherwise.
            self.spark.catalog.refreshTable(name)
        frame = self.resolver.evaluate(flow)
        if flow.conf:
            with self.resolver.settings(flow):  # others wait meanwhile: the settings are the session's
                self.tables.put(dataset, frame)
        else:
            self.tables.put(dataset, frame)


def _rerun_options(dataset: Dataset, frame: DataFrame, version: str) -> dict[str, str]:
    """What the sink for topics compares of a batch that is run again, unless the project says it."""
    if (dataset.format or "").lower() != "penstock" or "reruncheck" in map(str.lower, dataset.options):
        return {}
    check = rerun_check(frame)
    if check == "off":
        return {}  # that rows may be others, the project has to say
    return {"rerunCheck": check, "queryVersion": version}


def _delta_writer(dataset: Dataset) -> Any:
    """A sink of format "delta" without Delta's jar: `penstock.spark.delta` writes it, exactly once."""
    from penstock.spark import delta

    options = {key.lower(): value for key, value in dataset.options.items()}

    def columns(name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in options.pop(name, "").split(",") if part.strip())

    path = options.pop("path", "")
    if not path:
        raise BadDefinition(
            f"sink '{dataset.name[0]}' of format delta needs the option `path`", dataset.where
        )
    mode = options.pop("mode", "append")
    return delta.writer(
        path,
        "upsert" if mode == "upsert" else "append",
        columns("key"),
        order_by=columns("orderby"),
        delete=options.pop("delete", None),
        partition_by=columns("partitionby"),
        merge_schema=options.pop("mergeschema", "false").lower() == "true",
        app_id=None,
        storage_options={key: value for key, value in dataset.options.items() if key.lower() in options},
    )
