"""Converts rows of a query to records of its target, and writes each of them once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.sql.catalog.catalog import QueryDef, Relation
from penstock.sql.catalog.relations import (
    frame,
    json_options,
    key_text,
    only_looked_at,
    sink_options,
    value_column,
    value_names,
)
from penstock.sql.continuous.planning import KEEP, TIME, Shape, output_names
from penstock.sql.continuous.preparing import Prepared
from penstock.sql.continuous.table_versions import Versions, fence
from penstock.sql.language.statements import Query
from penstock.sql.settings import EngineSettings
from penstock.sqltext.identifiers import quoted
from penstock.sqltext.spark_types import from_words

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

_KEY, _TEXT = "__penstock_key", "__penstock_text"
GONE = "__penstock_gone"


def named(prepared: Prepared, query: Query) -> tuple[DataFrame, list[str]]:
    """The query's rows under the names that an output has for them, and these names."""
    names = output_names(query, list(prepared.columns))
    renamed = list(prepared.rows.columns)
    for at, name in zip(prepared.places, names, strict=True):
        renamed[at] = name
    return prepared.rows.toDF(*renamed), [name for name in names if not name.startswith("__")]


def stream_records(rows: DataFrame, shape: Shape, target: Relation) -> DataFrame:
    """Rows of a stream as records. The key is defined by the query, or taken from its source."""
    from pyspark.sql import functions as F

    names = value_names(target)
    keys = [each.name for each in target.columns if each.key]
    if shape.key:
        key = _stream_key(rows, shape)
    elif keys:
        key = key_text(keys)
    else:
        key = F.lit(None).cast("string")
    chosen = [key.alias("key"), value_column(target, names).alias("value")]
    if TIME in rows.columns:
        chosen.append(F.col(TIME).alias("timestamp"))
    return rows.select(*chosen)


def _stream_key(rows: DataFrame, shape: Shape) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType, StructType

    if len(shape.key) > 1:
        pairs = zip(shape.key, shape.key_names, strict=True)
        fields = F.struct(*(F.col(key).alias(name) for key, name in pairs))
        return F.to_json(fields, json_options())
    kind = rows.schema[shape.key[0]].dataType
    column = F.col(shape.key[0])
    if isinstance(kind, BinaryType):
        return column
    return F.to_json(column, json_options()) if isinstance(kind, StructType) else column.cast("string")


def table_records(rows: DataFrame, target: Relation) -> DataFrame:
    """Rows of a table as records: a row that no longer exists deletes its key."""
    from pyspark.sql import functions as F

    value = value_column(target, value_names(target))
    if KEEP in rows.columns:
        value = F.when(F.col(KEEP), value)
    return rows.select(key_text(target.key_columns).alias("key"), value.alias("value")).where(
        "key IS NOT NULL"
    )


def app_id(definition: QueryDef) -> str:
    """The name of the writes of one generation of a query, unique over catalogs."""
    return f"{definition.id}-{definition.uid}"


def settle(settings: EngineSettings, name: str, tasks: int) -> None:
    """Aborts open transactions of tasks of an ended writer."""
    from penstock.spark.errors import SparkError
    from penstock.spark.sink.finish_batch import transactional_id
    from penstock.spark.sink.producer import ProducerSettings, TaskProducer

    known = ProducerSettings.from_kafka({"max.block.ms": "10000", **settings.client()}, transactional=True)
    for task in range(tasks):
        producer = TaskProducer(known, transactional_id("penstock", name, task))
        try:
            producer.take_over()
        except SparkError as error:  # the cluster ends it, after a while
            log.warning("transactions of %s may stay open for some minutes: %s", name, error)
            return
        finally:
            producer.abandon()


def changed_rows(
    definition: QueryDef, settings: EngineSettings, rerun: Mapping[str, str]
) -> Callable[[DataFrame, int], None]:
    """For foreachBatch: writes changed rows to the target, once however often the batch is run."""
    target = definition.target
    if target.topic is None:
        return _to_delta(target, app_id(definition))
    options = {
        **sink_options(target, settings), **rerun, "delivery": "exactly_once", "txnAppId": app_id(definition),
    }  # fmt: skip

    def write(batch: DataFrame, batch_id: int) -> None:
        records = table_records(batch, target)
        records.write.format("penstock").options(**options, txnVersion=str(batch_id)).mode("append").save()

    return write


def _to_delta(target: Relation, name: str) -> Callable[[DataFrame, int], None]:
    from pyspark.sql import functions as F

    from penstock.spark import delta

    assert target.path is not None
    writer = delta.writer(
        target.path, mode="upsert", key=target.key_columns, delete=f"s.`{GONE}`", flags=(GONE,), app_id=name
    )

    def write(batch: DataFrame, batch_id: int) -> None:
        gone = ~F.coalesce(F.col(KEEP), F.lit(False)) if KEEP in batch.columns else F.lit(False)
        rows = _with_keys(batch.withColumn(GONE, gone), target)
        columns = [F.col(quoted(each.name)).alias(each.name) for each in target.columns]
        writer(rows.select(*columns, GONE), batch_id)

    return write


def _with_keys(rows: DataFrame, target: Relation) -> DataFrame:
    """Without rows that have a null in their key, which a Delta table cannot find again."""
    from pyspark.sql import functions as F

    for name in target.key_columns:
        rows = rows.where(F.col(quoted(name)).isNotNull())
    return rows


class ChangelogWriter:
    """Writes the difference between a table and its previous contents: new and changed rows, and deletions.

    One task writes them in one transaction, so that a change is atomic for readers. The contents of the
    target are read on first use, so that a restarted query continues from them.
    """

    def __init__(
        self,
        definition: QueryDef,
        settings: EngineSettings,
        session: Callable[[], SparkSession],
        versions: Versions,
    ) -> None:
        self._definition = definition
        self._target = definition.target
        self._settings = settings
        self._session = session
        self._versions = versions
        self._written: dict[str, int] | None = None

    def apply(self, rows: DataFrame) -> int:
        """Returns the number of records."""
        import pyarrow as pa
        from pyspark.sql import functions as F

        if self._written is None:
            if self._target.topic is not None:
                name = app_id(self._definition)
                fence(self._settings, name, self._versions.next(name))
            self._written = self._read_back()
        columns = [F.col(quoted(each.name)).alias(each.name) for each in self._target.columns]
        if self._target.topic is None:
            rows = _with_keys(rows, self._target)
        table = rows.select(
            key_text(self._target.key_columns).alias(_KEY), _text(self._target), *columns
        ).toArrow()
        now: dict[str, int] = {}
        places: dict[str, int] = {}
        for at, (key, text) in enumerate(zip(table[_KEY].to_pylist(), table[_TEXT].to_pylist(), strict=True)):
            if key is not None:
                now[key] = hash(text)
                places[key] = at
        changed = [places[key] for key, text in now.items() if self._written.get(key) != text]
        gone = [key for key in self._written if key not in now]
        if changed or gone:
            self._write(table.take(pa.array(changed, pa.int64())), gone)
        self._written = now
        return len(changed) + len(gone)

    def _read_back(self) -> dict[str, int]:
        target = only_looked_at(self._target)
        rows = frame(self._session(), target, self._settings, streaming=False, properties={})
        found = rows.select(key_text(self._target.key_columns).alias(_KEY), _text(self._target)).toArrow()
        return {
            key: hash(text)
            for key, text in zip(found[_KEY].to_pylist(), found[_TEXT].to_pylist(), strict=True)
            if key is not None
        }

    def _write(self, changed: pa.Table, gone: list[str]) -> None:
        from pyspark.sql import functions as F

        session = self._session()
        name = app_id(self._definition)
        version = self._versions.next(name)
        rows: Any = changed.drop_columns([_TEXT])
        frame_ = session.createDataFrame(rows, schema=_schema(self._target))
        if self._target.topic is None:
            self._to_delta(frame_, gone, name, version)
            return
        value = value_column(self._target, value_names(self._target))
        records = frame_.select(F.col(_KEY).alias("key"), value.alias("value"))
        if gone:
            kind = records.schema["value"].dataType
            lost = session.createDataFrame([(key,) for key in gone], "key string")
            records = records.unionByName(lost.withColumn("value", F.lit(None).cast(kind)))
        (
            records.coalesce(1)
            .write.format("penstock")
            .options(**sink_options(self._target, self._settings))
            .options(delivery="exactly_once", txnAppId=name, txnVersion=str(version))
            .mode("append")
            .save()
        )

    def _to_delta(self, rows: DataFrame, gone: list[str], name: str, version: int) -> None:
        from pyspark.sql import functions as F

        from penstock.spark import delta

        assert self._target.path is not None
        columns = [F.col(quoted(each.name)).alias(each.name) for each in self._target.columns]
        all_rows = rows.select(*columns, F.lit(False).alias(GONE))
        if gone:
            there = delta.read(self._session(), self._target.path)
            keys = self._session().createDataFrame([(key,) for key in gone], f"{_KEY} string")
            lost = there.withColumn(_KEY, key_text(self._target.key_columns)).join(keys, _KEY, "leftsemi")
            all_rows = all_rows.unionByName(lost.select(*columns, F.lit(True).alias(GONE)))
        writer = delta.writer(
            self._target.path,
            mode="upsert",
            key=self._target.key_columns,
            delete=f"s.`{GONE}`",
            flags=(GONE,),
            app_id=name,
        )
        writer(all_rows, version)


def _text(target: Relation) -> Column:
    """A row as one text, for comparison."""
    from pyspark.sql import functions as F

    fields = F.struct(*(F.col(quoted(each.name)).alias(each.name) for each in target.columns))
    return F.to_json(fields, json_options()).alias(_TEXT)


def _schema(target: Relation) -> StructType:
    from pyspark.sql.types import StringType, StructField, StructType

    fields = [StructField(each.name, from_words(each.type)) for each in target.columns]
    return StructType([StructField(_KEY, StringType()), *fields])


def emptied(
    session: SparkSession, definition: QueryDef, settings: EngineSettings, versions: Versions
) -> None:
    """Deletes all rows of a table whose query starts over."""
    kind = session.createDataFrame([], _schema(definition.target))
    ChangelogWriter(emptying(definition), settings, lambda: session, versions).apply(kind)


def emptying(definition: QueryDef) -> QueryDef:
    """The writer that deletes the rows of a query."""
    return replace(definition, uid=f"{definition.uid}-empty")
