"""A query of the catalog set going: from its definition to something that runs until it is stopped."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from penstock.sql.catalog import QueryDef, Relation
from penstock.sql.outside import Outside
from penstock.sql.parser import parse
from penstock.sql.planning import Shape, shape
from penstock.sql.preparing import Prepared, new_session, prepare
from penstock.sql.relations import dead_letter_topic, sink_options
from penstock.sql.settings import EngineSettings
from penstock.sql.spark_types import quoted
from penstock.sql.statements import CreateRelation, InsertQuery, Query
from penstock.sql.writing import Difference, changed_rows, named, stream_records, table_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_IDLE_SECONDS = 10.0
_LOOK_SECONDS = 0.5


class Running(Protocol):
    """A query under way."""

    def active(self) -> bool: ...

    def error(self) -> Exception | None:
        """What has ended it."""

    def stop(self) -> None:
        """Returns when it has ended."""


def query_of(definition: QueryDef) -> Query:
    statement = parse(definition.statement)[0]
    assert isinstance(statement, CreateRelation | InsertQuery) and statement.query is not None
    return statement.query


def shape_of(definition: QueryDef, query: Query) -> Shape:
    return shape(query, definition.sources, "table" if definition.kind == "ctas" else None)


class Launcher:
    """Sets queries going. `watch` hears of each session that a query gets."""

    def __init__(
        self,
        spark: SparkSession,
        settings: EngineSettings,
        outside: Outside,
        watch: Callable[[SparkSession], None] = lambda session: None,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._outside = outside
        self._watch = watch

    def launch(self, definition: QueryDef) -> Running:
        self.make_ready(definition)
        if definition.mode == "refresh":
            return Refreshing(self, definition)
        return self._stream(definition)

    def make_ready(self, definition: QueryDef) -> None:
        """The topics that it writes to."""
        for source in definition.sources.values():
            self.dead_letters(source)

    def dead_letters(self, relation: Relation) -> None:
        if relation.topic is not None and relation.options.get("errors", "dead-letter") == "dead-letter":
            if relation.format not in ("string", "bytes"):
                self._outside.create_topic(dead_letter_topic(relation), 1)

    def checkpoint(self, definition: QueryDef) -> str:
        return f"{self._settings.storage.rstrip('/')}/{definition.directory}"

    def forget(self, definition: QueryDef) -> None:
        """Deletes the checkpoints of all its generations."""
        home = f"{self._settings.storage.rstrip('/')}/queries/{definition.id}"
        if "://" not in home:
            shutil.rmtree(home, ignore_errors=True)
            return
        with contextlib.suppress(Exception):  # left behind, and never read again
            jvm: Any = self._spark._jvm
            path = jvm.org.apache.hadoop.fs.Path(home)
            path.getFileSystem(self._spark._jsc.hadoopConfiguration()).delete(path, True)

    def session(self, definition: QueryDef, *, streaming: bool) -> SparkSession:
        return new_session(
            self._spark, definition.properties, definition.shuffle_partitions, streaming=streaming
        )

    def prepared(
        self, definition: QueryDef, query: Query, how: Shape | None, session: SparkSession
    ) -> Prepared:
        return prepare(
            session,
            query,
            definition.sources,
            self._settings,
            functions=definition.functions,
            shape=how,
            properties=definition.properties,
            starting=definition.starting,
        )

    def _stream(self, definition: QueryDef) -> Running:
        query = query_of(definition)
        how = shape_of(definition, query)
        session = self.session(definition, streaming=True)
        self._watch(session)
        prepared = self.prepared(definition, query, how, session)
        rows, _ = named(prepared, query)
        target = definition.target
        writer = None
        if definition.mode == "append" and target.topic is not None:
            records = outgoing(rows, how, definition)
            writer = records.writeStream.format("penstock").options(**sink_options(target, self._settings))
            if "timestamp" in records.columns:
                writer = writer.option("timestampColumn", "timestamp")
            if not repeatable(definition, rows):
                writer = writer.option("rerunCheck", "off")
            writer = writer.outputMode("append")
        elif definition.mode == "complete":
            difference = Difference(
                definition, self._settings, lambda: self.session(definition, streaming=False)
            )
            writer = rows.writeStream.outputMode("complete").foreachBatch(
                lambda batch, _: _ignore(difference.apply(batch))
            )
        else:
            mode = "append" if definition.mode == "append" else "update"
            writer = rows.writeStream.outputMode(mode).foreachBatch(changed_rows(definition, self._settings))
        interval = definition.properties.get("trigger.interval")
        if interval is not None:
            writer = writer.trigger(processingTime=interval)
        started = (
            writer.queryName(definition.id).option("checkpointLocation", self.checkpoint(definition)).start()
        )
        return Streaming(started)

    def changes(self, definition: QueryDef) -> object:
        """What the sources of a refresh are now; another value when one of them has changed."""
        topics = [each.topic for each in definition.sources.values() if each.topic is not None]
        versions = [
            (each.path, _version(each)) for each in definition.sources.values() if each.path is not None
        ]
        return (tuple(sorted(self._outside.offsets(topics).items())), tuple(versions))

    @property
    def settings(self) -> EngineSettings:
        return self._settings


def _ignore(_: object) -> None:
    return None


def _version(relation: Relation) -> int:
    """Of the files of a table."""
    from deltalake import DeltaTable

    assert relation.path is not None
    if relation.options.get("storage", "delta") != "delta" or not DeltaTable.is_deltatable(relation.path):
        return -1
    return DeltaTable(relation.path).version()


def outgoing(rows: DataFrame, how: Shape, definition: QueryDef) -> DataFrame:
    """The records of a query whose rows come once each."""
    target = definition.target
    if definition.kind == "ctas":
        return table_records(rows, target)
    if definition.kind == "insert":
        rows = fitted(rows, target)
        if target.kind == "table":
            return table_records(rows, target)
    return stream_records(rows, how, target)


def fitted(rows: DataFrame, target: Relation) -> DataFrame:
    """The columns of the target in its types, null where there are none; and what was added for the key."""
    from pyspark.sql import functions as F

    there = {name.casefold(): name for name in rows.columns}
    chosen = []
    for column in target.columns:
        found = there.get(column.name.casefold())
        value = F.lit(None) if found is None else F.col(quoted(found))
        chosen.append(value.cast(column.type).alias(column.name))
    added = [F.col(quoted(name)) for name in rows.columns if name.startswith("__penstock_")]
    return rows.select(*chosen, *added)


def repeatable(definition: QueryDef, rows: DataFrame) -> bool:
    """Whether a batch that is run again has the same rows: a table that it reads may have changed."""
    tables = any(each.kind == "table" for each in definition.sources.values())
    plan: Any = rows._jdf.queryExecution().analyzed()
    return not tables and bool(plan.deterministic())


class Streaming:
    """A StreamingQuery of Spark."""

    def __init__(self, query: Any) -> None:
        self._query = query

    def active(self) -> bool:
        return bool(self._query.isActive)

    def error(self) -> Exception | None:
        found = self._query.exception()
        return found if isinstance(found, Exception) else None

    def stop(self) -> None:
        """Between two batches if that comes soon: a transaction that is cut off stays open for a while."""
        deadline = time.monotonic() + _IDLE_SECONDS
        while self._query.isActive and time.monotonic() < deadline:
            if not self._query.status["isTriggerActive"] or not self._query.status["isDataAvailable"]:
                break
            time.sleep(0.01)
        self._query.stop()


class Refreshing:
    """A query over tables: computed again whenever one of them has changed, in a thread of its own."""

    def __init__(self, launcher: Launcher, definition: QueryDef) -> None:
        self._launcher = launcher
        self._definition = definition
        self._stopping = threading.Event()
        self._error: Exception | None = None
        self._query = query_of(definition)
        self._session = launcher.session(definition, streaming=False)
        self._difference = Difference(
            definition, launcher.settings, lambda: launcher.session(definition, streaming=False)
        )
        self._thread = threading.Thread(target=self._run, name=definition.id, daemon=True)
        self._thread.start()

    def active(self) -> bool:
        return self._thread.is_alive()

    def error(self) -> Exception | None:
        return self._error

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        seen: object = None
        try:
            while not self._stopping.is_set():
                now = self._launcher.changes(self._definition)
                if now != seen:
                    self._refresh()
                    seen = now
                self._stopping.wait(_LOOK_SECONDS)
        except Exception as error:  # noqa: BLE001 - told by `error`, and tried again by who watches
            self._error = error

    def _refresh(self) -> None:
        # From the relations on: a view that Spark has planned once reads up to where its topic was then.
        prepared = self._launcher.prepared(self._definition, self._query, None, self._session)
        rows, _ = named(prepared, self._query)
        self._difference.apply(fitted(rows, self._definition.target))
