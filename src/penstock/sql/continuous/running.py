"""Runs a query of the catalog: from its definition to a handle that can be stopped."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from penstock.pipelines.plans.reruns import rerun_check
from penstock.spark.errors import SparkError
from penstock.spark.sink.forgotten_marks import forget_marks
from penstock.spark.starting import begun
from penstock.sql.catalog.catalog import QueryDef, Relation
from penstock.sql.catalog.cluster_admin import ClusterAdmin
from penstock.sql.catalog.relations import file_versions, sink_options
from penstock.sql.continuous import functions as python_functions
from penstock.sql.continuous.planning import KEY_PREFIX, Shape, shape, text_of
from penstock.sql.continuous.preparing import Analysed, Prepared, activate, new_session, prepare
from penstock.sql.continuous.table_versions import Versions
from penstock.sql.continuous.writing import (
    ChangelogWriter,
    app_id,
    changed_rows,
    emptied,
    emptying,
    named,
    settle,
    stream_records,
    table_records,
)
from penstock.sql.errors import Clash
from penstock.sql.language.parser import parse
from penstock.sql.language.statements import CreateRelation, InsertQuery, Query
from penstock.sql.settings import EngineSettings
from penstock.sqltext.identifiers import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

_IDLE_SECONDS = 10.0
_FILES_SECONDS = 5.0
"""How often tables in files that a stream is joined with are checked for changes."""
_LOOK_SECONDS = 0.5


class TablesChanged(Exception):
    """Not a failure: restart a query from its checkpoint."""


class Running(Protocol):
    """A running query."""

    def begun(self) -> bool:
        """Whether its sources have responded, or it has ended."""

    def active(self) -> bool: ...

    def error(self) -> Exception | None:
        """The error that ended it."""

    def stop(self, *, settle: bool = True) -> None:
        """Returns when it has ended; with `settle`, its transactions, too."""


def group_of(definition: QueryDef) -> str:
    """The consumer group that shows the progress of a streaming query."""
    return f"penstock-{definition.id}"


def query_of(definition: QueryDef) -> Query:
    return _query_in(definition.statement)


@functools.lru_cache(maxsize=256)
def _query_in(text: str) -> Query:
    """Kept for restarts and comparisons; it follows from the text alone."""
    statement = parse(text)[0]
    assert isinstance(statement, CreateRelation | InsertQuery) and statement.query is not None
    return statement.query


def shape_of(definition: QueryDef, query: Query) -> Shape:
    return shape(query, definition.sources, "table" if definition.kind == "ctas" else None)


def record_key(definition: QueryDef) -> tuple[str, ...]:
    """What the key of the records that a query writes into a stream is made of, as text."""
    query = query_of(definition)
    added = (each for name, each in shape_of(definition, query).extra if name.startswith(KEY_PREFIX))
    texts = (each if isinstance(each, str) else text_of(query, each) for each in added)
    return tuple(" ".join(each.replace("{source}.", "").split()) for each in texts)


class Watching(Protocol):
    """Hears of the sessions that queries have, and that they have them no longer."""

    def follow(self, spark: SparkSession) -> None: ...

    def leave(self, spark: SparkSession) -> None: ...


class Launcher:
    """Starts queries."""

    def __init__(
        self,
        spark: SparkSession,
        settings: EngineSettings,
        admin: ClusterAdmin,
        watch: Watching,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._admin = admin
        self._watch = watch
        self.versions = Versions(0)
        """The epoch of the leader that this server is, or was."""

    def difference(self, definition: QueryDef) -> ChangelogWriter:
        return ChangelogWriter(
            definition,
            self._settings,
            lambda: self.session(definition, streaming=False),
            self.versions,
        )

    def empty(self, definition: QueryDef) -> None:
        """Deletes the rows of the query that this one replaced, unless this one has run already.

        If the server dies in between, the definition still says that this must be done.
        """
        if definition.empties is None or self._exists(self.checkpoint(definition)):
            return
        old = QueryDef.from_json(definition.empties)
        emptied(self.session(definition, streaming=False), old, self._settings, self.versions)

    def _exists(self, home: str) -> bool:
        if "://" not in home:
            return Path(home).exists()
        jvm: Any = self._spark._jvm
        path = jvm.org.apache.hadoop.fs.Path(home)
        return bool(path.getFileSystem(self._spark._jsc.hadoopConfiguration()).exists(path))

    def launch(self, definition: QueryDef, found: Analysed | None = None) -> Running:
        """`found` is the query as its statement was just analysed; without it, it is analysed again."""
        self._check_functions(definition)
        self.empty(definition)
        if definition.mode == "refresh":
            query = found.query if found is not None else query_of(definition)
            return Refreshing(self, definition, query)
        if found is None or not _runs(definition, found):
            found = self._analysed(definition)
        else:
            activate(found.prepared.session)
        return self._stream(definition, found)

    def _check_functions(self, definition: QueryDef) -> None:
        """Clash if a module has changed that functions of the query use, and what it has kept or written is
        of the one before. Rows of a stream are what they were when they came, as after CREATE OR REPLACE."""
        kept = (definition.fingerprint or {}).get("state") or definition.target.kind == "table"
        if definition.mode == "refresh" or not kept or not self._exists(self.checkpoint(definition)):
            return
        names = python_functions.changed(definition.functions, definition.fingerprint)
        if names:
            kind = f"CREATE OR REPLACE {definition.target.kind.upper()} {definition.target.name}"
            raise Clash(
                f"a module that {', '.join(names)} uses has changed since the query was created: write its "
                f"{kind} again WITH (state = 'rebuild'), or with 'keep' to continue with what it has"
                if definition.kind != "insert"
                else f"a module that {', '.join(names)} uses has changed since the query was created: "
                f"TERMINATE {definition.id}, and write its INSERT again"
            )

    def checkpoint(self, definition: QueryDef) -> str:
        return f"{self._settings.storage.rstrip('/')}/{definition.directory}"

    def forget(self, definition: QueryDef) -> None:
        """Deletes the checkpoints of all its generations, and its marks."""
        self._forget_marks(definition)
        self.delete(f"{self._settings.storage.rstrip('/')}/queries/{definition.id}")

    def delete(self, home: str) -> None:
        if "://" not in home:
            shutil.rmtree(home, ignore_errors=True)
            return
        with contextlib.suppress(Exception):  # left behind, and never read again
            jvm: Any = self._spark._jvm
            path = jvm.org.apache.hadoop.fs.Path(home)
            path.getFileSystem(self._spark._jsc.hadoopConfiguration()).delete(path, True)

    def forget_generation(self, definition: QueryDef) -> None:
        """Deletes the checkpoint of one generation, and its marks."""
        self._forget_marks(definition)
        self.delete(self.checkpoint(definition))

    def _forget_marks(self, definition: QueryDef) -> None:
        """Those of what emptied its table are needed until now: by them a leader that was paused meanwhile
        knows that the rows are others."""
        names = [app_id(definition)]
        if definition.empties is not None:
            names.append(app_id(emptying(QueryDef.from_json(definition.empties))))
        names += [self._spark_id(definition)] if definition.mode == "append" else []
        try:
            forget_marks(
                {"max.block.ms": "10000", **self._settings.client()}, [name for name in names if name]
            )
        except SparkError as error:
            log.warning("Could not delete the exactly-once state of %s: %s", definition.id, error)

    def _spark_id(self, definition: QueryDef) -> str:
        """By which a sink of Spark's own knows a query; empty if it has not begun."""
        home = f"{self.checkpoint(definition)}/metadata"
        try:
            if "://" in home:
                text = "".join(row[0] for row in self._spark.read.text(home).collect())
            else:
                text = Path(home).read_text(encoding="utf-8")
            return str(json.loads(text)["id"])
        except Exception:  # noqa: BLE001 - Spark may raise anything; there is no checkpoint
            return ""

    def session(self, definition: QueryDef, *, streaming: bool) -> SparkSession:
        return new_session(
            self._spark,
            definition.properties,
            definition.shuffle_partitions,
            streaming=streaming,
            any_setting=self._settings.python_functions,
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
            reader=definition.id,
        )

    def _analysed(self, definition: QueryDef) -> Analysed:
        query = query_of(definition)
        how = shape_of(definition, query)
        versions = file_versions(definition.sources)
        prepared = self.prepared(definition, query, how, self.session(definition, streaming=True))
        rows, columns = named(prepared, query)
        return Analysed(
            query,
            definition.sources,
            how,
            prepared,
            rows,
            tuple(columns),
            definition.functions,
            definition.starting,
            versions,
        )

    def _stream(self, definition: QueryDef, found: Analysed) -> Running:
        query, how, rows, session = found.query, found.shape, found.rows, found.prepared.session
        target = definition.target
        writer = None
        if definition.mode == "append" and target.topic is not None:
            records = outgoing(rows, query, how, definition)
            writer = records.writeStream.format("penstock").options(**sink_options(target, self._settings))
            if "timestamp" in records.columns:
                writer = writer.option("timestampColumn", "timestamp")
            writer = writer.options(**rerun_options(definition, rows))
            writer = writer.outputMode("append")
        elif definition.mode == "complete":
            difference = self.difference(definition)
            writer = rows.writeStream.outputMode("complete").foreachBatch(
                lambda batch, _: _ignore(difference.apply(batch))
            )
        else:
            mode = "append" if definition.mode == "append" else "update"
            write = changed_rows(definition, self._settings, rerun_options(definition, rows))
            writer = rows.writeStream.outputMode(mode).foreachBatch(write)
        interval = definition.properties.get("trigger.interval")
        if interval is not None:
            writer = writer.trigger(processingTime=interval)
        writer = writer.queryName(definition.id).option("checkpointLocation", self.checkpoint(definition))
        # A separate pool, so that each query gets a share of the cores.
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", definition.id)
        self._watch.follow(session)
        try:
            started = writer.start()
        except BaseException:
            self._watch.leave(session)
            raise
        finally:
            self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]
        return Streaming(
            started,
            lambda: self._watch.leave(session),
            lambda spark_id: self._settle(definition, spark_id),
            lambda: file_versions(definition.sources),
            found.versions,
        )

    def _settle(self, definition: QueryDef, spark_id: str) -> None:
        """Ends transactions that a micro-batch has left open: `read_committed` consumers would wait for
        them.
        """
        if definition.target.topic is None:
            return
        own = definition.mode == "append"
        topics = [each.topic for each in definition.sources.values() if each.topic is not None]
        tasks = max(definition.shuffle_partitions, len(self._admin.offsets(topics)) if own else 1)
        settle(self._settings, spark_id if own else app_id(definition), tasks)

    def changes(self, definition: QueryDef) -> object:
        """What the sources of a refresh are now; another value when one of them has changed."""
        topics = [each.topic for each in definition.sources.values() if each.topic is not None]
        paths = [each.path for each in definition.sources.values()]
        offsets = sorted(self._admin.offsets(topics).items())
        return (tuple(offsets), *paths, *file_versions(definition.sources))

    @property
    def settings(self) -> EngineSettings:
        return self._settings


def _ignore(_: object) -> None:
    return None


def _runs(definition: QueryDef, found: Analysed) -> bool:
    """Whether what was analysed is what the definition says. One that keeps the state of an older query has
    that one's tasks and start."""
    conf = found.prepared.session.conf
    return (
        definition.sources == found.sources
        and definition.functions == found.functions
        and definition.starting == found.starting
        and definition.mode == found.shape.mode
        and conf.get("spark.sql.shuffle.partitions") == str(definition.shuffle_partitions)
    )


def outgoing(rows: DataFrame, query: Query, how: Shape, definition: QueryDef) -> DataFrame:
    """The records of a query that writes each row once."""
    target = definition.target
    if definition.kind == "ctas":
        return table_records(rows, target)
    if definition.kind == "insert":
        selected = {name.casefold() for name in rows.columns}
        if query.partition_by is None and any(
            each.key and each.name.casefold() in selected for each in target.columns
        ):
            how = replace(how, key=())  # the key is what is selected for it, not that of what is read
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


def rerun_options(definition: QueryDef, rows: DataFrame) -> dict[str, str]:
    """What the sink compares of a batch that is run again: a table that it reads may have changed."""
    tables = any(each.kind == "table" for each in definition.sources.values())
    version = str((definition.fingerprint or {}).get("query", ""))
    options: dict[str, str] = {"rerunCheck": "off" if tables else rerun_check(rows)}
    return {**options, "queryVersion": version} if version else options


class Streaming:
    """A StreamingQuery of Spark. `seen` are the versions of tables in files that it reads."""

    def __init__(
        self,
        query: Any,
        ended: Callable[[], None],
        settle: Callable[[str], None],
        versions: Callable[[], Sequence[int]],
        seen: Sequence[int],
    ) -> None:
        self._query = query
        self._ended: Callable[[], None] | None = ended
        self._settle = settle
        self._versions = versions
        self._seen = seen
        self._look_at = time.monotonic() + _FILES_SECONDS

    def begun(self) -> bool:
        return begun(self._query)

    def active(self) -> bool:
        if self._query.isActive:
            if self._seen and time.monotonic() >= self._look_at:
                self._look_at = time.monotonic() + _FILES_SECONDS
                return self._versions() == self._seen
            return True
        self._tell()
        return False

    def error(self) -> Exception | None:
        if self._query.isActive:
            self.stop()
            return TablesChanged("a table in files has changed and is re-read")
        found = self._query.exception()
        return found if isinstance(found, Exception) else None

    def stop(self, *, settle: bool = True) -> None:
        """Between two batches if that comes soon; a batch that is cut off may leave transactions open.

        Without `settle` at once: another server continues with the batch, or there is no cluster to end it.
        """
        deadline = time.monotonic() + (_IDLE_SECONDS if settle else 0.0)
        cut_off, batch = True, self._batch()
        while self._query.isActive and time.monotonic() < deadline:
            if not self._query.status["isTriggerActive"]:
                cut_off = False
                break
            if self._batch() != batch:
                break  # a busy query is never idle: the next batch has begun, and has hardly written
            time.sleep(0.005)
        try:
            self._query.stop()
        finally:
            self._tell()
        if cut_off and settle:
            self._settle(str(self._query.id))

    def _batch(self) -> int | None:
        """The last batch that has ended."""
        progress = self._query.lastProgress
        return None if progress is None else progress.get("batchId")

    def _tell(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()


class Refreshing:
    """A query over tables: computed again whenever one of them has changed, in a thread of its own."""

    def __init__(self, launcher: Launcher, definition: QueryDef, query: Query) -> None:
        self._launcher = launcher
        self._definition = definition
        self._stopping = threading.Event()
        self._error: Exception | None = None
        self._query = query
        self._session = launcher.session(definition, streaming=False)
        self._difference = launcher.difference(definition)
        self._thread = threading.Thread(target=self._run, name=definition.id, daemon=True)
        self._thread.start()

    def begun(self) -> bool:
        return True

    def active(self) -> bool:
        return self._thread.is_alive()

    def error(self) -> Exception | None:
        return self._error

    def stop(self, *, settle: bool = True) -> None:
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
        except Exception as error:  # noqa: BLE001 - reported in `error`, and retried by the watcher
            self._error = error

    def _refresh(self) -> None:
        # From the relations on: a view that Spark has planned once reads up to where its topic was then.
        prepared = self._launcher.prepared(self._definition, self._query, None, self._session)
        rows, _ = named(prepared, self._query)
        self._difference.apply(fitted(rows, self._definition.target))
