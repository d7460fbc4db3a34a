"""The sink of `format("penstock")`: columns and options of Spark's Kafka sink, batch and streaming.

`delivery=exactly_once`, the default of a streaming query: each task writes its rows of a batch in one Kafka
transaction together with a mark (`written_tasks.py`); a task run again finds it and writes nothing. The
transactional id is that of (query, task), so that of two attempts at most one can commit:

    take over the transactional id     an earlier attempt is fenced, its transaction is ended
    read the marks of the query
      mine is of this batch            it has been written: compare the rows, write nothing
      any is of a later batch          this is a left-over task or an old checkpoint: an error
      else                             write the rows and the mark, commit

A batch that is run again after a crash must be divided into the same tasks as before, or other tasks may have
written a part of an unmarked task's rows. So in a batch of which an earlier run has written a part, tasks
with a mark compare their rows with it, and the others write but leave their transactions open: the driver
commits those (`finish_batch.py`) when all tasks have ended and every mark was confirmed. Otherwise the batch
fails, without duplicates.

`delivery=at_least_once`, the default of a batch: no transaction; a task that is run again writes again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.client import ClientError
from penstock.client.errors import ClusterTimeout
from penstock.errors import ApiError
from penstock.spark.errors import BadOption, BatchChanged, NotDelivered, SparkError, plainly
from penstock.spark.sink import written_tasks as marks
from penstock.spark.sink.finish_batch import (
    State,
    TaskDone,
    WhichBatch,
    batch_changed,
    finish_batch,
    transactional_id,
    written_by_others,
)
from penstock.spark.sink.producer import Layout, ProducerSettings, Rows, RowsIdentity, TaskProducer, split
from penstock.spark.sink.value_formats import Encoding, encoded, encodings
from penstock.spark.source.options import SOURCE_OPTIONS, refuse_slip, resolved

if TYPE_CHECKING:
    from penstock.spark.sink.written_tasks import Mark, QueryMarks

RerunCheck = Literal["on", "keys", "off"]
"""What of a batch that is run again is compared with what was written of it: all of each row; topic,
partition and key (a value only where there is no key); nothing."""
_RERUN_CHECKS: Mapping[str, RerunCheck] = {"on": "on", "keys": "keys", "off": "off"}
DELIVERIES = ("exactly_once", "at_least_once")
SINK_OPTIONS = (
    "topic", "delivery", "transactionalIdPrefix", "marksTopic", "rerunCheck", "queryVersion",
    "timestampColumn", "txnAppId", "txnVersion",
    *(f"{part}.{name}" for part in ("key", "value")
      for name in ("format", "subject", "schema", "schema.version", "message")),
)  # fmt: skip

_SOURCES = frozenset(name.lower() for name in SOURCE_OPTIONS)
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"  # a streaming query's jobs are the group of its run
_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All options of a write, validated. Sent to the tasks with pickle."""

    kafka: Mapping[str, str]
    layout: Layout
    delivery: Literal["exactly_once", "at_least_once"]
    prefix: str
    marks_topic: str
    rerun_check: RerunCheck
    query_version: str | None
    app_id: str | None
    app_version: int | None
    producer: ProducerSettings
    encodings: tuple[Encoding, ...] = ()
    marks_since: int | None = None
    """There are no marks of this write before this offset."""


class SinkStreamWriter(DataSourceStreamArrowWriter):
    """The writer of a streaming query; each task has its own object."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _task()
        iterator = encoded(iterator, self._options.encodings)
        if self._options.delivery == "at_least_once":
            _write_at_least_once(iterator, self._options)
            return TaskDone(None, context.partitionId(), "committed")
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if query is None or batch is None:
            raise SparkError(
                "Spark does not provide the query and batch of this task, which exactly-once delivery needs;"
                " set delivery=at_least_once to write without it"
            )
        which = WhichBatch(query, int(batch), context.getLocalProperty(_RUN_ID) or "")
        return _write_exactly_once(iterator, self._options, which, context.partitionId())

    @plainly
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        settle(messages, self._options)


class SinkBatchWriter(DataSourceArrowWriter):
    """The writer of one batch write."""

    def __init__(self, options: SinkOptions) -> None:
        self._run = str(uuid.uuid4())
        self._options = options if options.app_id is not None else _once(options, self._run)

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        options, task = self._options, _task().partitionId()
        iterator = encoded(iterator, options.encodings)
        if options.delivery == "at_least_once":
            _write_at_least_once(iterator, options)
            return TaskDone(None, task, "committed")
        which = WhichBatch(options.app_id or self._run, options.app_version or 0, self._run)
        return _write_exactly_once(iterator, options, which, task)

    @plainly
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        settle(messages, self._options)


def _once(options: SinkOptions, run: str) -> SinkOptions:
    """For a write without a name: its marks are needed while it runs, and are deleted after a day."""
    if options.delivery != "exactly_once":
        return options
    topic = f"{options.marks_topic}{marks.ONCE_SUFFIX}"
    block_ms = str(round(options.producer.block_s * 1000))
    reader = marks.MarksReader({**options.kafka, "default.api.timeout.ms": block_ms}, topic)
    try:
        return replace(options, marks_topic=topic, marks_since=reader.end(run))
    except ClusterTimeout:
        return replace(options, marks_topic=topic)  # a task reports it if the cluster still does not respond
    except (ApiError, ClientError) as error:
        raise NotDelivered(f"the topic {topic} cannot be used: {error}") from error
    finally:
        reader.close()


def settle(messages: list[WriterCommitMessage | None], options: SinkOptions) -> None:
    """Called on the driver when all tasks have succeeded."""
    finish_batch(
        [message for message in messages if isinstance(message, TaskDone)],
        options.prefix,
        lambda: marks.MarksReader(options.kafka, options.marks_topic),
    )


def batch_writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> SinkBatchWriter:
    """For `df.write`: rejects what Spark's Kafka sink rejects."""
    if overwrite:
        raise BadOption(
            "Save mode Overwrite not allowed for topics: written records cannot be removed. Use mode append"
        )
    return SinkBatchWriter(parse_sink_options(schema, options, streaming=False))


def stream_writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> SinkStreamWriter:
    """For `df.writeStream`. `overwrite` is complete mode: each batch writes the whole result."""
    return SinkStreamWriter(parse_sink_options(schema, options, streaming=True))


# ---- options and columns ----


def parse_sink_options(schema: StructType, options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """The options of a write of these columns. BadOption names an invalid one. Names are case-insensitive."""
    given = {name.lower(): value for name, value in options.items()}
    known = {name.lower(): name for name in SINK_OPTIONS}
    for name in given.keys() - known.keys() - _SOURCES:
        # A misspelling such as `delivry` would silently give the default. Unrelated options may be in a
        # shared dict.
        if not name.startswith("kafka."):
            refuse_slip(name, known)
    delivery = given.get("delivery", "exactly_once" if streaming else "at_least_once").strip().lower()
    if delivery not in DELIVERIES:
        raise BadOption(f"delivery={given['delivery']}: must be {' or '.join(DELIVERIES)}")
    check = given.get("reruncheck", "on").strip().lower()
    if check not in _RERUN_CHECKS:
        raise BadOption(f"rerunCheck={given['reruncheck']}: must be on, keys or off")
    app_id, app_version = _application(given, delivery, streaming)
    kafka = resolved({name[6:]: value for name, value in given.items() if name.startswith("kafka.")})
    typed = frozenset(part for part in ("key", "value") if f"{part}.format" in given)
    layout = layout_of(schema, given.get("topic"), typed, given.get("timestampcolumn"))
    return SinkOptions(
        kafka=kafka,
        layout=layout,
        delivery="exactly_once" if delivery == "exactly_once" else "at_least_once",
        prefix=given.get("transactionalidprefix", "penstock"),
        marks_topic=given.get("markstopic", marks.DEFAULT_TOPIC),
        rerun_check=_RERUN_CHECKS[check],
        query_version=given.get("queryversion"),
        app_id=app_id,
        app_version=app_version,
        producer=ProducerSettings.from_kafka(kafka, transactional=delivery == "exactly_once"),
        # Last, so that nothing is registered for a rejected write.
        encodings=encodings(given, schema, layout.fixed_topic),
    )


def _application(given: Mapping[str, str], delivery: str, streaming: bool) -> tuple[str | None, int | None]:
    app_id, version = given.get("txnappid"), given.get("txnversion")
    if app_id is None and version is None:
        return None, None
    if streaming or delivery != "exactly_once":
        raise BadOption(
            "txnAppId and txnVersion are for batch writes with delivery=exactly_once; a streaming query has"
            " its own id and batch numbers"
        )
    if not app_id or version is None or not version.strip().isdecimal():
        raise BadOption(
            "txnAppId and txnVersion go together: a name for what writes, and a number that grows with every"
            " write of it, such as the batch id of foreachBatch"
        )
    return app_id, int(version)


def layout_of(
    schema: StructType,
    topic: str | None,
    typed: frozenset[str] = frozenset(),
    timestamp: str | None = None,
) -> Layout:
    """The positions of key, value, topic, partition and headers. Other columns are ignored, as by Spark's
    sink.

    `typed` columns may have any type: a schema defines their encoding.
    """
    fields = {field.name.lower(): (index, field.dataType) for index, field in enumerate(schema.fields)}
    if topic is not None and not topic.strip():
        raise BadOption("option topic is empty")
    if topic is None and "topic" not in fields:
        raise BadOption(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a"
            " topic"
        )
    if "value" not in fields:
        raise BadOption(
            f"Required attribute 'value' not found among the columns {', '.join(schema.fieldNames())}"
        )
    if timestamp is not None and timestamp.lower() not in fields:
        raise BadOption(f"timestampColumn={timestamp}: no such column")
    binary = (BinaryType(), StringType())
    value = _column(fields, "value", (DataType(),) if "value" in typed else binary)
    assert value is not None
    return Layout(
        value=value,
        key=_column(fields, "key", (DataType(),) if "key" in typed else binary),
        # The option takes precedence over the column, as in Spark's sink.
        topic=_column(fields, "topic", (StringType(),)) if topic is None else None,
        partition=_column(fields, "partition", (IntegerType(),)),
        headers=_column(fields, "headers", (_HEADERS,)),
        timestamp=_column(fields, timestamp.lower(), (TimestampType(),)) if timestamp else None,
        fixed_topic=topic.strip() if topic is not None else None,
    )


def _column(
    fields: Mapping[str, tuple[int, DataType]], name: str, allowed: tuple[DataType, ...]
) -> int | None:
    if name not in fields:
        return None
    index, kind = fields[name]
    if not any(_same_type(kind, one) for one in allowed):
        names = " or ".join(one.simpleString() for one in allowed)
        hint = (
            f"; cast it, use to_json or another function that serializes, or let {name}.format do it"
            if name in ("key", "value")
            else ""
        )
        raise BadOption(f"{name} attribute type must be {names}, and is {kind.simpleString()}{hint}")
    return index


def _same_type(kind: DataType, wanted: DataType) -> bool:
    """Whether they are the same, ignoring nullability, collations and lengths of text."""
    if isinstance(kind, ArrayType) and isinstance(wanted, ArrayType):
        return _same_type(kind.elementType, wanted.elementType)
    if isinstance(kind, StructType) and isinstance(wanted, StructType):
        return [field.name for field in kind] == [field.name for field in wanted] and all(
            _same_type(one.dataType, other.dataType) for one, other in zip(kind, wanted)
        )
    return isinstance(kind, type(wanted))


# ---- tasks ----


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "the sink writes in Spark's tasks"
    return context


_producers: dict[tuple[tuple[str, str], ...], TaskProducer] = {}


def _write_at_least_once(batches: Iterator[pa.RecordBatch], options: SinkOptions) -> None:
    # Without transactions a producer is reused for several tasks, as Spark's worker processes are.
    place = tuple(sorted(options.producer.librdkafka.items()))
    producer = _producers.pop(place, None)
    reached = producer is not None
    for batch in batches:
        if batch.num_rows:
            for rows in split(batch, options.layout):
                if producer is None:
                    producer = TaskProducer(options.producer)
                if not reached:
                    producer.reach(rows.topic)
                    reached = True
                producer.send(rows)
    if producer is not None:
        producer.flush()
        _producers[place] = producer


def _write_exactly_once(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, which: WhichBatch, task: int
) -> TaskDone:
    try:
        return TaskDone(which, task, _Task(options, which, task).write(batches))
    except (ApiError, ClientError) as error:
        marks.forget_reader(options.kafka, options.marks_topic)
        raise NotDelivered(f"the marks of query {which.query} cannot be read: {error}") from error


class _Task:
    """Writes one task of one batch, once."""

    def __init__(self, options: SinkOptions, which: WhichBatch, task: int) -> None:
        self._options = options
        self._which = which
        self._index = task
        self._name = transactional_id(options.prefix, which.query, task)
        self._reader = marks.marks_reader(options.kafka, options.marks_topic)
        self._rows = 0
        self._key_bytes = 0
        self._identity = RowsIdentity(0, 0)

    def write(self, batches: Iterator[pa.RecordBatch]) -> State:
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None and not self._wrote_before():
            return "empty"
        producer = TaskProducer(self._options.producer, self._name)
        producer.take_over()
        try:
            # Only after take_over: now no other attempt can add marks.
            found = self._read_settled()
            mine = found.settled.get(self._index)
            if mine is not None and mine.batch == self._which.batch:
                self._compare(mine, first, filled)
                producer.abandon()
                return "confirmed"
            if first is None:
                producer.abandon()  # the transaction that had rows was aborted
                return "empty"
            return self._send(producer, found, first, filled)
        except BaseException:
            producer.abandon()
            raise

    def _wrote_before(self) -> bool:
        """Whether this task of the batch, which is empty now, had rows before."""
        found = self._reader.read(self._which.query, self._options.marks_since)
        settled, pending = found.settled.get(self._index), found.open.get(self._index)
        return pending is not None or (settled is not None and settled.batch == self._which.batch)

    def _read_settled(self) -> QueryMarks:
        found = self._reader.read(self._which.query, self._options.marks_since)
        if self._index in found.open:
            # It ended before take_over returned; a reader that does not see that must not continue.
            raise NotDelivered(
                f"the end of an earlier transaction of {self._name} is not readable yet: the task has to be"
                " tried again"
            )
        latest = max((mark.batch for mark in found.settled.values()), default=-1)
        if latest > self._which.batch:
            raise BatchChanged(
                f"query {self._which.query} has written batch {latest} already, and this is batch"
                f" {self._which.batch}: either this is a task left over from an earlier run, which may fail,"
                " or the checkpoint is older than what was written. To write those batches again, begin with"
                " a new checkpoint, or set another marksTopic"
            )
        self._check_version(found)
        return found

    def _check_version(self, found: QueryMarks) -> None:
        """If values are not compared, they must come from one version of the query."""
        version = self._options.query_version
        if self._options.rerun_check == "on" or version is None:
            return
        everyone = [*found.settled.items(), *((task, pending.mark) for task, pending in found.open.items())]
        for task, mark in everyone:
            if mark.batch == self._which.batch and mark.version not in (None, version):
                raise batch_changed(self._which, f"another version of the query wrote task {task}")

    def _compare(self, mine: Mark, first: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch]) -> None:
        # All rows are read in any case: operators before the sink save their state at the end.
        for batch in chain((first,), rest) if first is not None else ():
            for rows in split(batch, self._options.layout):
                self._count(rows)
        now = self._mark()
        check = self._options.rerun_check
        if check != "off" and not mine.same_rows(now, by_key=check == "keys"):
            how = f"task {self._index} wrote {mine.rows} rows, and has {now.rows} now"
            if mine.same_rows(now, by_key=True):
                how = f"the {now.rows} rows of task {self._index} have other values than those that it wrote"
            elif mine.rows == now.rows:
                how = f"the {now.rows} rows of task {self._index} are not those that it wrote"
            raise batch_changed(self._which, how)

    def _send(
        self, producer: TaskProducer, found: QueryMarks, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]
    ) -> State:
        for batch in chain((first,), rest):
            for rows in split(batch, self._options.layout):
                producer.send(rows)
                self._count(rows)
        resumed = self._options.rerun_check != "off" and bool(written_by_others(found, self._which))
        if resumed:
            producer.flush()  # a mark allows the driver to commit: all rows must be acknowledged before it
        query = self._which.query
        producer.send_mark(
            self._options.marks_topic,
            marks.partition_of(query),
            marks.mark_key(query, self._index),
            self._mark().encode(),
        )
        if resumed:
            producer.flush()
            return "prepared"
        producer.commit()
        return "committed"

    def _count(self, rows: Rows) -> None:
        self._rows += len(rows.values)
        self._key_bytes += rows.key_bytes
        more = rows.identity()
        self._identity = RowsIdentity(
            self._identity.by_key + more.by_key, self._identity.whole + more.whole & 0xFFFFFFFFFFFFFFFF
        )

    def _mark(self) -> Mark:
        which, version = self._which, self._options.query_version
        return marks.Mark(which.batch, which.run, self._rows, self._key_bytes, *self._identity, version)
