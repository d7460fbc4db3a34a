"""A task in a Python worker of Spark: reads one range, and handles deleted records."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.client import EARLIEST, LATEST, ClientSettings, Cluster, ClusterTimeout
from penstock.spark.errors import DataGone, DataLoss, LogCut
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.plan import Range

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.typed.columns import TypedColumns

log = logging.getLogger("penstock.spark")

_clusters: dict[ClientSettings, Cluster] = {}
"""Spark keeps its workers, so one connection serves many batches. A worker runs one task at a time."""

ADVICE = (
    "To continue with the remaining records, set the option failOnDataLoss to false;"
    " to start over, choose another checkpointLocation"
)


def worker_cluster(settings: ClientSettings) -> Cluster:
    """The cluster client of this process for these settings."""
    cluster = _clusters.get(settings)
    if cluster is None:
        cluster = _clusters[settings] = Cluster(settings)
    return cluster


def drop_cluster(settings: ClientSettings) -> None:
    """After an error the next task connects again."""
    cluster = _clusters.pop(settings, None)
    if cluster is not None:
        cluster.close()


def task_settings(options: SourceOptions) -> ClientSettings:
    kafka = options.client_settings
    if options.poll_timeout_ms is not None:
        kafka["default.api.timeout.ms"] = str(options.poll_timeout_ms)
    return ClientSettings.from_kafka(kafka)


def streaming_query() -> str | None:
    """The id of the query of whose micro-batch this task is part, on its streaming side or another."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty("sql.streaming.queryId")


def as_of_now(cluster: Cluster, wanted: Range, *, earliest: bool) -> Range:
    """A range up to `latest`, with its current offset.

    Spark plans a topic that is joined with a stream once, when the query starts, and runs its tasks in each
    micro-batch. As with Spark's own source, each batch reads the current records of the topic.
    """
    place = (wanted.topic, wanted.partition)
    end = cluster.list_offsets({place: LATEST})[place]
    start = cluster.list_offsets({place: EARLIEST})[place] if earliest else wanted.start
    return replace(
        wanted, start=wanted.start if start is None else start, end=wanted.end if end is None else end
    )


def read_typed(
    cluster: Cluster, wanted: Range, options: SourceOptions, columns: TypedColumns
) -> Iterator[pa.RecordBatch]:
    """The records of a range with typed columns."""
    from penstock.spark.dead_letters import DeadLetters
    from penstock.spark.typed.columns import decoded, needs_headers

    topic, letters = columns.options.dead_letter_topic, None
    if topic is not None:
        query = columns.options.dead_letter_query or streaming_query()
        letters = DeadLetters(cluster, topic, options.kafka, query)
    headers = options.include_headers or needs_headers(columns)
    batches = read(cluster, wanted, replace(options, include_headers=headers))
    yield from decoded(batches, columns, keep_headers=options.include_headers, dead_letters=letters)


def read(cluster: Cluster, wanted: Range, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The records of a range. Deleted records raise DataLoss, or are skipped with failOnDataLoss=false."""
    from penstock.spark.source.reading import read_range

    start = wanted.start
    while start < wanted.end:
        try:
            yield from read_range(
                cluster, wanted.topic, wanted.partition, start, wanted.end, headers=options.include_headers
            )
            return
        except DataGone as gone:
            start = min(gone.log_start_offset, wanted.end)
            what = (
                f"{wanted.topic}-{wanted.partition} has lost the offsets from {gone.start} to {start}:"
                " retention deleted them before they were read"
            )
        except (LogCut, ClusterTimeout) as error:
            what = _why_missing(cluster, wanted, error)
            start = wanted.end
        if options.fail_on_data_loss:
            raise DataLoss(f"{what}. {ADVICE}")
        log.warning("%s; continuing, because failOnDataLoss is false", what)


def _why_missing(cluster: Cluster, wanted: Range, error: LogCut | ClusterTimeout) -> str:
    """The report of a loss of records. Raises other errors again."""
    name = f"{wanted.topic}-{wanted.partition}"
    if isinstance(error, LogCut):
        return f"{name} no longer has the offsets up to {wanted.end} ({error})"
    if wanted.topic not in cluster.partitions([wanted.topic]):
        return f"topic {wanted.topic} was deleted before {name} was read up to {wanted.end}"
    raise error
