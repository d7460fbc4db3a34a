"""`format("penstock")`: the data source that Spark finds, and its readers for batches and for streams.

Columns, options and offset JSON are those of Spark's Kafka source. Readers run on the driver, each in its own
process, and decide what to read; `task.py` reads it. Writing is in `sink/`.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.errors import PenstockError
from penstock.spark.errors import BadOffsets, BadOption, DataLoss, plainly
from penstock.spark.source.backpressure import BatchSizer
from penstock.spark.source.offsets import Offsets, TopicPartition, from_json, names, to_json
from penstock.spark.source.options import SourceOptions, parse_source_options
from penstock.spark.source.plan import (
    Range,
    is_too_little,
    limit_rate,
    limit_rate_by_priority,
    ranges,
    rank_of,
    restarts,
    split,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

    from penstock.client import Cluster, TopicInfo
    from penstock.spark.source.group import GroupProgress
    from penstock.spark.source.lookup import Lookup
    from penstock.spark.typed.columns import TypedColumns

log = logging.getLogger("penstock.spark")

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " timestampType int"
)
HEADERS = "headers array<struct<key: string, value: binary>>"


class PenstockDataSource(DataSource):
    """Kafka topics, from any cluster that speaks Kafka's protocol."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    _typed: TypedColumns | None = None
    """Set by schema(); Spark keeps this object with the plan, so readers have the same types."""

    @plainly
    def schema(self) -> str | StructType:
        options = parse_source_options(self.options, streaming=None)
        columns = self._columns(options)
        if columns is not None:
            from penstock.spark.typed.columns import source_ddl, source_schema

            if any(part.options.is_text for part in columns.parts):
                return source_ddl(columns, options.include_headers)
            return source_schema(columns, options.include_headers)
        return f"{SCHEMA}, {HEADERS}" if options.include_headers else SCHEMA

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_source_options(self.options, streaming=False)
        columns = _checked(schema, options, self._columns(options))
        return BatchReader(options, columns)

    @plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = parse_source_options(self.options, streaming=True)
        columns = _checked(schema, options, self._columns(options))
        return StreamReader(options, columns)

    def _columns(self, options: SourceOptions) -> TypedColumns | None:
        if options.typed is not None and self._typed is None:
            from penstock.spark.typed.columns import resolve

            self._typed = resolve(options.typed)
        return self._typed

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.spark.sink import writers as sink

        return sink.batch_writer(schema, self.options, overwrite)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from penstock.spark.sink import writers as sink

        return sink.stream_writer(schema, self.options, overwrite)


@dataclass
class RangePartition(InputPartition):
    """The range of one task; `token` if the task is to announce the query's group.

    `open_start` and `open_end`: it starts at `earliest` and ends at `latest`, as of when the task runs.
    """

    wanted: Range
    token: str | None = None
    open_start: bool = False
    open_end: bool = False


class BatchReader(DataSourceReader):
    """Reads the records between two positions, once."""

    def __init__(self, options: SourceOptions, columns: TypedColumns | None = None) -> None:
        self._options = options
        self._columns = columns

    @plainly
    def partitions(self) -> list[InputPartition]:
        options = self._options
        _warn(options)
        with _connect(options) as cluster:
            lookup = _lookup(cluster, options)
            partitions = lookup.all_there()
            start = lookup.resolve(options.starting, partitions, starting=True)
            end = lookup.resolve(options.ending, partitions, starting=False)
            end = self._that_are_there(lookup, start, end)
        for place in sorted(partitions):
            if start[place] > end[place]:
                raise BadOffsets(
                    f"{options.starting.option} is after the end of {place[0]}-{place[1]}:"
                    f" {start[place]} > {end[place]}. Check both options, and whether the topic was"
                    " deleted and created again"
                )
        found = [
            Range(topic, index, start[topic, index], end[topic, index]) for topic, index in sorted(partitions)
        ]
        planned = split(found, options.min_partitions, options.max_records_per_partition)
        if options.ending.kind == "latest":
            # Spark plans a static side of a streaming query once: an empty range may grow later.
            planned += [one for one in found if one.size == 0]
        return [
            RangePartition(
                one,
                open_start=options.starting.kind == "earliest"
                and one.start == start[one.topic, one.partition],
                open_end=options.ending.kind == "latest" and one.end == end[one.topic, one.partition],
            )
            for one in planned
        ]

    def _that_are_there(self, lookup: Lookup, start: Offsets, end: Offsets) -> Offsets:
        """An end that is given as an offset may be past the end of the log, where a task would wait for
        records.
        """
        if self._options.ending.kind != "offsets":
            return end
        written = lookup.written(end)
        beyond = {place for place, offset in end.items() if offset > written[place]}
        if not beyond:
            return end
        option, first = self._options.ending.option, min(beyond)
        what = f"{option} is past the end of {names(beyond)}: {end[first]} > {written[first]}"
        if self._options.fail_on_data_loss:
            raise BadOffsets(
                f"{what}. Check it, and whether the topic was deleted and created again; or set"
                " failOnDataLoss to false to read the available records"
            )
        log.warning("%s; reading the available records, because failOnDataLoss is false", what)
        return {place: min(offset, max(written[place], start[place])) for place, offset in end.items()}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark adds a partition of its own if there is none.
        if not isinstance(partition, RangePartition):
            return iter(())
        return _read(partition, self._options, self._columns)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Continues at the offsets of the checkpoint. One process on the driver for each query and source."""

    def __init__(self, options: SourceOptions, columns: TypedColumns | None = None) -> None:
        self._options = options
        self._columns = columns
        self._cluster: Cluster | None = None
        self._lookup_made: Lookup | None = None
        self._progress_made: GroupProgress | None = None
        self._topic_ids: dict[str, uuid.UUID] = {}
        self._initial: Offsets | None = None
        self._latest: Offsets | None = None
        self._available_now = False
        self._target: Offsets | None = None
        self._last_batch_at: float | None = None
        self._reported: set[str] = set()
        target = options.target_batch_ms
        self._sizer = None if target is None else BatchSizer(target / 1000, options.max_offsets_per_trigger)
        self._sent: tuple[Offsets, int, float] | None = None

    # ---- position ----

    @plainly
    def initialOffset(self) -> dict[str, dict[str, int]]:
        # Spark asks again for each step of the first batch: the answer must stay the same.
        if self._initial is None:
            lookup = self._lookup()
            partitions = lookup.all_there()
            self._remember(lookup.topics())
            self._initial = lookup.resolve(self._options.starting, partitions, starting=True)
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:
        # Passed by Spark to latestOffset, which takes the limits from the options: both may be set.
        if (most := self._most()) is not None:
            return ReadMaxRows(most)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._available_now = True

    @plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, dict[str, int]]:
        offsets = from_json(start)
        self._measure(offsets)
        lookup = self._lookup()
        # Spark asks for the next batch when the last one is done, so all before `start` has been processed.
        self._progress().commit(offsets)
        if self._target is None:
            moved = self._look(lookup, offsets)
            if moved is not None:
                return to_json(moved)
        latest = self._latest = self._target if self._target is not None else self._latest or {}
        if self._available_now:
            self._target = latest
        end = self._limited(lookup, offsets, latest, limit)
        size = sum(until - offsets.get(place, 0) for place, until in end.items())
        self._sent = (end, size, time.monotonic())
        return to_json(end)

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:
        return to_json(self._latest) if self._latest else None

    def _look(self, lookup: Lookup, start: Offsets) -> Offsets | None:
        """Sets `_latest`. If records are lost and that is accepted, returns where to continue, as a separate
        batch.

        The batch is empty; it writes the new position to the checkpoint before anything is read from there.
        """
        topics = lookup.topics()
        self._check_checkpoint(start, topics)
        known = {topic for topic, _ in start}
        lookup.check_named(topics, accepted=known)
        partitions = lookup.partitions(topics)
        if gone := start.keys() - partitions:
            self._lose(f"{names(gone)} no longer exist: the topic was deleted before it was read to its end")
        remade = {name for name, info in topics.items() if self._topic_ids.get(name, info.id) != info.id}
        unchanged = self._topic_ids.keys() - remade
        fixed = {place: offset for place, offset in start.items() if place[0] not in remade}
        latest = lookup.latest_not_before(partitions, fixed)
        behind = {
            place for place in partitions & start.keys() if place[0] in remade or latest[place] < start[place]
        }
        earliest = lookup.earliest(behind)
        if lookup.recreated_since(topics):
            return self._look(lookup, start)
        moved = restarts(start, latest, earliest, remade, unchanged) if behind else {}
        for reason in dict.fromkeys(restart.reason for restart in moved.values()):
            self._lose(reason)
        self._remember(topics)
        self._latest = latest
        if not moved:
            return None
        kept = {place: offset for place, offset in start.items() if place in partitions}
        return {**kept, **{place: restart.offset for place, restart in moved.items()}}

    def _limited(self, lookup: Lookup, start: Offsets, latest: Offsets, limit: ReadLimit) -> Offsets:
        options = self._options
        least, most = options.min_offsets_per_trigger, self._most()
        if isinstance(limit, ReadAllAvailable) or (least is None and most is None):
            return latest
        begin = {**lookup.earliest(latest.keys() - start.keys()), **start}
        # A run with availableNow must end: it does not wait for more.
        if least is not None and not self._available_now:
            now = time.monotonic()
            waited = self._last_batch_at is None or (
                (now - self._last_batch_at) * 1000 >= options.max_trigger_delay_ms
            )
            if not waited and is_too_little(least, begin, latest):
                return start
            self._last_batch_at = now
        if most is None:
            return latest
        if options.priority:
            return limit_rate_by_priority(most, begin, latest, options.priority)
        return limit_rate(most, begin, latest)

    def _most(self) -> int | None:
        return self._options.max_offsets_per_trigger if self._sizer is None else self._sizer.limit

    def _measure(self, start: Offsets) -> None:
        """Spark asks for the next batch when the last one is done, or later, when the trigger fires."""
        if self._sizer is not None and self._sent is not None:
            end, size, sent_at = self._sent
            if start == end:
                self._sizer.observe(size, time.monotonic() - sent_at)
        self._sent = None

    # ---- batches ----

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        options = self._options
        first, last = from_json(start), from_json(end)
        if first == self._initial and options.starting.kind == "latest":
            # Spark runs the first batch again that an earlier run of the query has planned. The end of the
            # topic has moved since then: the batch is empty, and the next one begins where this one ends.
            first = {place: min(offset, last.get(place, offset)) for place, offset in first.items()}
        lookup = self._lookup()
        earliest: Offsets = {}
        if added := last.keys() - first.keys():
            topics = lookup.topics()
            earliest = lookup.earliest(added & lookup.partitions(topics))
        if first.keys() - last.keys():
            self._check_checkpoint(first, lookup.topics())
        whole, losses = ranges(first, last, earliest)
        for loss in losses:
            self._lose(loss)
        planned = [
            RangePartition(one)
            for one in split(whole, options.min_partitions, options.max_records_per_partition)
        ]
        # Spark starts tasks in this order.
        planned.sort(key=lambda one: rank_of(one.wanted.topic, options.priority))
        if planned:
            planned[0].token = self._progress().token_for(planned[0].wanted)
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return _read(partition, self._options, self._columns)

    def commit(self, end: dict[str, Any]) -> None:
        self._progress().commit(from_json(end))

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
        if self._progress_made is not None:
            self._progress_made.close()

    # ---- internal ----

    def _lookup(self) -> Lookup:
        if self._lookup_made is None:
            _warn(self._options)
            self._cluster = _connect(self._options)
            self._lookup_made = _lookup(self._cluster, self._options)
        return self._lookup_made

    def _progress(self) -> GroupProgress:
        if self._progress_made is None:
            from penstock.spark.source.group import GroupProgress

            self._progress_made = GroupProgress(self._options, f"penstock:{uuid.uuid4()}")
        return self._progress_made

    def _remember(self, topics: Mapping[str, TopicInfo]) -> None:
        self._topic_ids.update((name, info.id) for name, info in topics.items())

    def _check_checkpoint(self, start: Mapping[TopicPartition, int], topics: Mapping[str, TopicInfo]) -> None:
        """Offsets of topics that this query does not read: usually another query's checkpoint."""
        wanted = self._options.subscription
        if wanted.pattern is not None or not start:
            return  # a topic that no longer matches counts as deleted
        asked = wanted.topics or {topic for topic, _ in wanted.partitions or ()}
        others = sorted({topic for topic, _ in start} - asked)
        if not others:
            return
        what = f"the checkpoint has offsets of {', '.join(others)}, which this query does not read ({wanted})"
        if self._options.fail_on_data_loss:
            raise BadOffsets(
                f"{what}. A checkpoint belongs to one query: choose another checkpointLocation, or read the"
                " topic again. To leave the topic for good, set the option failOnDataLoss to false"
            )
        self._warn_once(f"{what}; going on without it, because failOnDataLoss is false")

    def _lose(self, what: str) -> None:
        """Records were deleted before they were read."""
        if self._options.fail_on_data_loss:
            from penstock.spark.source.task import ADVICE

            raise DataLoss(f"{what}. {ADVICE}")
        self._warn_once(f"{what}; continuing, because failOnDataLoss is false")

    def _warn_once(self, what: str) -> None:
        if what not in self._reported:
            self._reported.add(what)
            log.warning("%s", what)


def _read(
    partition: RangePartition, options: SourceOptions, columns: TypedColumns | None
) -> Iterator[pa.RecordBatch]:
    from penstock.spark.source import task

    settings = task.task_settings(options)
    cluster = task.worker_cluster(settings)
    done = False
    try:
        if partition.token is not None:
            from penstock.spark.source.group import announce

            announce(options, partition.wanted, partition.token)
        wanted = partition.wanted
        if partition.open_end and task.streaming_query() is not None:
            wanted = task.as_of_now(cluster, wanted, earliest=partition.open_start)
        if columns is None:
            yield from task.read(cluster, wanted, options)
        else:
            yield from task.read_typed(cluster, wanted, options, columns)
        done = True
    except PenstockError as error:
        raise error.with_traceback(None) from None
    finally:
        if not done:
            task.drop_cluster(settings)


def _connect(options: SourceOptions) -> Cluster:
    from penstock.client import ClientSettings, Cluster

    return Cluster(ClientSettings.from_kafka(options.client_settings))


def _lookup(cluster: Cluster, options: SourceOptions) -> Lookup:
    from penstock.spark.source.lookup import Lookup

    return Lookup(cluster, options)


def _warn(options: SourceOptions) -> None:
    for warning in options.warnings:
        log.warning("%s", warning)


def _checked(schema: StructType, options: SourceOptions, typed: TypedColumns | None) -> TypedColumns | None:
    """The typed columns with the types that Spark parsed from their DDL."""
    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    if options.include_headers:
        columns.append("headers")
    if schema.fieldNames() != columns:
        raise BadOption(
            f"the source has the columns {', '.join(columns)}, and no schema can be given."
            " Use DataFrame operations on key and value instead"
        )
    if typed is None:
        return None
    from penstock.spark.typed.columns import part_types, with_types

    typed = with_types(typed, schema)
    for part, kind in part_types(typed).items():
        given = schema[part].dataType.simpleString()
        if given != kind.simpleString():
            raise BadOption(
                f"the column {part} of these options is {kind.simpleString()}, not {given}: "
                f"leave out the schema, or name the one to read with in {part}.schema"
            )
    return typed
