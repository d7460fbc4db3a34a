"""SELECT: over the current records, by Spark; or EMIT CHANGES, over new records, until the client
disconnects.
"""

from __future__ import annotations

import queue
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.pipelines.failures import cause
from penstock.sql.catalog.catalog import Catalog, Relation
from penstock.sql.catalog.cluster_admin import ClusterAdmin
from penstock.sql.catalog.relations import only_looked_at
from penstock.sql.continuous import functions as python_functions
from penstock.sql.continuous.define import Maker, check_streaming
from penstock.sql.continuous.planning import shape
from penstock.sql.continuous.preparing import Prepared, new_session, prepare, spark_errors
from penstock.sql.continuous.spark_queries import analysed
from penstock.sql.errors import Place, SqlError
from penstock.sql.language.properties import RESET
from penstock.sql.language.statements import Query
from penstock.sql.results import ColumnType, Rows, arrow_rows
from penstock.sql.settings import EngineSettings
from penstock.sqltext.identifiers import quoted
from penstock.sqltext.spark_types import from_words, words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_END = object()
_MOST_WAITING = 64
"""Batches that a slow reader may be behind before the query waits for it."""
_TOO_SLOW = "failed to connect back"
"""What Spark says when a Python process of its own took more than 10 s to start: the machine is busy."""
_MOST_STARTS = 5


class Selects:
    def __init__(
        self,
        spark: SparkSession,
        settings: EngineSettings,
        admin: ClusterAdmin,
        maker: Maker,
        delete: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._admin = admin
        self._maker = maker
        self._delete = delete
        """A directory of the storage."""
        self._lock = threading.Lock()
        self._pushes: set[_Push] = set()

    def close(self) -> None:
        with self._lock:
            pushes = list(self._pushes)
        for push in pushes:
            push.close()

    # Over current records

    def batch(
        self, query: Query, sources: Mapping[str, Relation], catalog: Catalog, properties: Mapping[str, str]
    ) -> Rows:
        session = new_session(
            self._spark,
            properties,
            self._maker.shuffle_partitions,
            streaming=False,
            any_setting=self._settings.python_functions,
        )
        prepared = prepare(
            session,
            query,
            {name: only_looked_at(each) for name, each in sources.items()},
            self._settings,
            functions=python_functions.mentioned(_text(query), catalog.functions),
            known=catalog.function_names(),
            properties=properties,
            starting={},
        )
        return self._collected(prepared, query, sources)

    def over_rows(
        self, relation: Relation, rows: Sequence[Mapping[str, Any]], query: Query, catalog: Catalog
    ) -> Rows:
        """The query over a few rows instead of the whole relation."""
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import StructField, StructType

        from penstock.sql.language.spark_text import to_spark

        session = new_session(self._spark, {}, 1, streaming=False, any_setting=False)
        fields = StructType([StructField(each.name, from_words(each.type)) for each in relation.columns])
        table: Any = pa.Table.from_pylist(
            [dict(row) for row in rows], to_arrow_schema(fields, timezone="UTC")
        )
        view = session.createDataFrame(table, schema=fields)
        view.createOrReplaceTempView(quoted(query.sources[0].name))
        python_functions.register(
            session,
            python_functions.mentioned(_text(query), catalog.functions),
            allowed=self._settings.python_functions,
        )
        rewritten = to_spark(query)
        sources = {query.sources[0].name: relation}
        with spark_errors(rewritten.text, rewritten.place, sources, session):
            found = analysed(session, rewritten.text, sources)
        return self._collected(
            Prepared(session, found, tuple(range(len(found.columns))), rewritten.text), query, sources
        )

    def _collected(self, prepared: Prepared, query: Query, sources: Mapping[str, Relation]) -> Rows:
        """Computed when the first row is requested; closing them ends the computation."""
        columns, rows = selected(prepared)
        start = Place.of(query.text, query.span[0])
        job = _Job(self._spark)

        def computed() -> Iterator[list[Any]]:
            with job, spark_errors(prepared.text, lambda offset: start, sources, prepared.session):
                table = rows.toArrow()
            yield from arrow_rows(table.to_batches(max_chunksize=1000))

        return Rows(columns, computed(), close=job.cancel)

    # Over new records

    def push(
        self, query: Query, sources: Mapping[str, Relation], catalog: Catalog, properties: Mapping[str, str]
    ) -> Rows:
        how = shape(query, sources, None, push=True)
        topics = [each.topic for name in how.streams if (each := sources[name]).topic is not None]
        session = new_session(
            self._spark,
            properties,
            self._maker.shuffle_partitions,
            streaming=True,
            any_setting=self._settings.python_functions,
        )
        prepared = prepare(
            session,
            query,
            {name: only_looked_at(each) for name, each in sources.items()},
            self._settings,
            functions=python_functions.mentioned(_text(query), catalog.functions),
            known=catalog.function_names(),
            shape=how,
            properties=properties,
            starting=self._admin.starting(topics, properties.get(RESET, "latest")),
            commits=False,  # its group would remain, with an ever-growing lag
        )
        check_streaming(query, prepared.rows, how, prepared, sources)
        columns, rows = selected(prepared)
        home = f"{self._home}/{uuid.uuid4().hex}"
        push = _Push(rows, how.mode, query.limit, home, self._forget)
        with self._lock:
            self._pushes.add(push)
        start = Place.of(query.text, query.span[0])
        try:
            with spark_errors(prepared.text, lambda offset: start, sources, session):
                push.start()
        except BaseException:
            push.close()
            raise
        return Rows(columns, push.rows(), live=True, close=push.close)

    def _forget(self, push: _Push) -> None:
        self._delete(push.directory)
        with self._lock:
            self._pushes.discard(push)

    @property
    def _home(self) -> str:
        """The directory for checkpoints of push queries, which all machines of a Spark cluster can
        write to.
        """
        return f"{self._settings.storage.rstrip('/')}/push"

    def clean_up(self) -> None:
        """Deletes the checkpoints of push queries of a server that died."""
        self._delete(self._home)


def _text(query: Query) -> str:
    return query.text[query.span[0] : query.span[1]]


def selected(prepared: Prepared) -> tuple[tuple[ColumnType, ...], DataFrame]:
    """The displayed columns, by position, because names may be duplicated."""
    numbered = prepared.rows.toDF(*(f"c{at}" for at in range(len(prepared.rows.columns))))
    kinds = [prepared.rows.schema[at].dataType for at in prepared.places]
    columns = tuple((name, words(kind)) for name, kind in zip(prepared.columns, kinds, strict=True))
    return columns, numbered.select(*(f"c{at}" for at in prepared.places))


class _Job:
    """The Spark jobs of a block, in the block's thread; `cancel` ends them, from any thread."""

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext
        self._group = f"select-{uuid.uuid4().hex}"
        self._lock = threading.Lock()
        self._running = False
        self._cancelled = False

    def __enter__(self) -> None:
        with self._lock:
            if self._cancelled:
                raise SqlError("it was cancelled")
            self._running = True
        self._context.setJobGroup(self._group, "SELECT", interruptOnCancel=True)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._running = False
        # Later jobs of this thread do not belong to the group.
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            self._context.setLocalProperty(name, None)

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            if self._running:
                # Also future jobs: a query may be between two of its jobs.
                self._context._jsc.sc().cancelJobGroupAndFutureJobs(
                    self._group, "its client has disconnected"
                )


class _Push:
    """A streaming query whose rows go to one reader, and which ends with it."""

    def __init__(
        self,
        rows: DataFrame,
        mode: str,
        limit: int | None,
        directory: str,
        ended: Callable[[_Push], None],
    ) -> None:
        self._frame = rows
        self._mode = mode
        self._limit = limit
        self.directory = directory
        self._ended = ended
        self._batches: queue.Queue[Any] = queue.Queue(_MOST_WAITING)
        self._closing = threading.Event()
        self._closed = threading.Lock()
        self._query: Any = None
        self._starts = 0
        self._begun = False

    def start(self) -> None:
        self._starts += 1
        self._query = (
            self._frame.writeStream.outputMode(self._mode)
            .foreachBatch(self._take)
            .queryName(f"push_{uuid.uuid4().hex[:8]}")
            .option("checkpointLocation", self.directory)
            .start()
        )

    def _take(self, batch: DataFrame, batch_id: int) -> None:
        self._begun = True
        table = batch.toArrow()
        if not table.num_rows:
            return
        while not self._closing.is_set():
            try:
                self._batches.put(table, timeout=0.5)
                return
            except queue.Full:
                continue

    def rows(self) -> Iterator[list[Any]]:
        sent = 0
        try:
            while self._limit is None or sent < self._limit:
                table = self._next()
                if table is _END:
                    return
                for row in arrow_rows(table.to_batches()):
                    yield row
                    sent += 1
                    if sent == self._limit:
                        return
        finally:
            self.close()

    def _next(self) -> Any:
        while True:
            try:
                return self._batches.get(timeout=0.25)
            except queue.Empty:
                if self._closing.is_set():
                    return _END
                query = self._query  # which another thread may close meanwhile
                if query is not None and not query.isActive:
                    error = query.exception()
                    if error is None or self._closing.is_set():
                        return _END
                    if not self._started_again(str(error)):
                        raise SqlError(f"the query has failed: {cause(error)}") from error

    def _started_again(self, error: str) -> bool:
        """Retries a query that failed to start only because the machine is busy, from the same offsets."""
        if self._begun or _TOO_SLOW not in error or self._starts == _MOST_STARTS:
            return False
        with self._closed:
            if not self._closing.is_set():
                self.start()
        return True

    def close(self) -> None:
        self._closing.set()
        with self._closed:
            if self._query is not None:
                query, self._query = self._query, None
                try:
                    query.stop()
                except Exception:  # noqa: BLE001 - it ends with its last batch, if not now
                    pass
            self._ended(self)
