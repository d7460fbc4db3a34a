"""Delta tables that a streaming query keeps, exactly once, without a jar: `deltalake` writes them.

    orders.writeStream.foreachBatch(delta.writer("tables/orders")).option("checkpointLocation", ...).start()
    prices.writeStream.foreachBatch(delta.writer("tables/prices", mode="upsert", key=["sku"]))...

The commit that adds a batch to the table contains the query's id and the batch's number as an application
transaction of the Delta protocol: a batch that is run again finds its number and changes nothing, and of two
concurrent runs only one can commit. For appends each task writes a file into the table's directory, and the
driver commits the files. Files that are not committed are not read, and VACUUM deletes them. A batch that is
upserted, or goes to a partitioned table, is collected on the driver as Arrow, and must fit in its memory.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake import Field as DeltaField
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction

from penstock.spark.errors import BadOption, BadRow, BatchChanged, SparkError
from penstock.sqltext.identifiers import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_QUERY_ID = "sql.streaming.queryId"
_TRIES = 20
_ADDED = "path string, size bigint, rows bigint"
_POSITION = "__penstock_position"


def writer(
    path: str,
    mode: Literal["append", "upsert"] = "append",
    key: Sequence[str] = (),
    *,
    order_by: Sequence[str] = (),
    delete: str | None = None,
    flags: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    merge_schema: bool = False,
    app_id: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DeltaWriter:
    """What to give to `foreachBatch`; the table is made by the first batch.

    mode            append: all rows are added. upsert: a row replaces that with the same `key`, or is added
    key             the columns that distinguish rows, for upsert; none of them may be null
    order_by        of several rows of one key in a batch the last by these columns counts; by default, the
                    last that came, which is the last in its Kafka partition
    delete          an SQL condition on the new row `s`, such as "s.op = 'd'": the row of that key is deleted
    flags           columns that are there for `delete` only, and are not kept
    partition_by    the columns that a new table is partitioned by
    merge_schema    columns that the table does not have are added to it
    app_id          the name in the table's log, by default the query's id; two writers of one query into one
                    table need one each
    storage_options of object stores, as `deltalake` takes them
    """
    return DeltaWriter(
        path,
        mode,
        tuple(key),
        order_by=tuple(order_by),
        delete=delete,
        flags=tuple(flags),
        partition_by=tuple(partition_by),
        merge_schema=merge_schema,
        app_id=app_id,
        storage_options=dict(storage_options or {}),
    )


def read(
    spark: SparkSession,
    path: str,
    version: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The table as a DataFrame: Spark reads the files of its latest version, or of `version`."""
    from pyspark.sql.types import StructType

    table = _open(str(path), dict(storage_options or {}), version)
    if table is None:
        raise SparkError(f"{path} is not a Delta table")
    if table.metadata().configuration.get(
        "delta.columnMapping.mode", "none"
    ) != "none" or "deletionVectors" in (table.protocol().reader_features or []):
        raise SparkError(
            f"{path} has deletion vectors or mapped columns, which its files do not show:"
            " read it with `deltalake`"
        )
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    files = table.file_uris()
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("basePath", table.table_uri).parquet(*files)


class DeltaWriter:
    """Writes micro-batches to one table. Call it with a DataFrame and its batch id."""

    def __init__(
        self,
        path: str,
        mode: str,
        key: tuple[str, ...],
        *,
        order_by: tuple[str, ...],
        delete: str | None,
        flags: tuple[str, ...],
        partition_by: tuple[str, ...],
        merge_schema: bool,
        app_id: str | None,
        storage_options: dict[str, str],
    ) -> None:
        if mode not in ("append", "upsert"):
            raise BadOption(f"mode={mode}: must be append or upsert")
        if (mode == "upsert") != bool(key):
            raise BadOption("key names the columns of mode='upsert', which needs one, and of that mode only")
        if mode == "append" and (order_by or delete or flags):
            raise BadOption("order_by, delete and flags are for mode='upsert'")
        self._path = str(path)
        self._mode = mode
        self._key = key
        self._order_by = order_by
        self._delete = delete
        self._flags = flags
        self._partition_by = partition_by
        self._merge_schema = merge_schema
        self._app_id = app_id
        self._storage = storage_options

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Add the batch, unless the table already has it."""
        app_id = self._app_id or df.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        if app_id is None:
            raise SparkError("Spark does not provide the query's id: give the writer an app_id")
        given = _arrow_schema(df)
        self._check_columns(given)
        schema = pa.schema([field for field in given if field.name not in self._flags])
        table = self._table(schema)
        if self._has(table, app_id, batch_id):
            return
        self._check_types(table, schema)
        commit = self._prepare(df, given, table)
        if commit is None:
            return
        properties = CommitProperties(app_transactions=[Transaction(app_id, batch_id)])
        for attempt in range(_TRIES):
            try:
                return commit(table, properties)
            except CommitFailedError:
                # Another writer was first. Its commit may be this same batch, from a run that was assumed
                # dead.
                if attempt == _TRIES - 1:
                    raise
            time.sleep(random.uniform(0, 0.05 * 2 ** min(attempt, 5)))
            table = self._table(schema)
            if self._has(table, app_id, batch_id):
                return

    # ---- the table ----

    def _table(self, schema: pa.Schema) -> DeltaTable:
        table = _open(self._path, self._storage)
        while table is None:
            # In a separate commit, so that every commit of rows is checked against a previous version.
            try:
                DeltaTable.create(
                    self._path,
                    schema,
                    mode="ignore",
                    partition_by=list(self._partition_by) or None,
                    storage_options=self._storage or None,
                )
            except CommitFailedError:
                pass  # another writer has created it in the meantime
            table = _open(self._path, self._storage)
        return table

    def _has(self, table: DeltaTable, app_id: str, batch_id: int) -> bool:
        last = table.transaction_version(app_id)
        if last is not None and last > batch_id:
            raise BatchChanged(
                f"{self._path} has batch {last} of {app_id} already, and this is batch {batch_id}: either a"
                " run was left over, or the checkpoint is older than the table. To write those batches again,"
                " begin with a new checkpoint or give another app_id"
            )
        return last == batch_id

    def _check_columns(self, schema: pa.Schema) -> None:
        for name in (*self._key, *self._order_by, *self._flags, *self._partition_by):
            if name not in schema.names:
                raise BadOption(f"{self._path}: no column {name} among {', '.join(schema.names)}")

    def _check_types(self, table: DeltaTable, schema: pa.Schema) -> None:
        """Check that the rows fit the table; adds new columns if that was requested."""
        has = {field.name: field for field in table.schema().fields}
        new: list[DeltaField] = []
        for field in DeltaSchema.from_arrow(schema).fields:
            if field.name not in has:
                new.append(field)
            elif _kind(has[field.name]) != _kind(field):
                raise BadOption(
                    f"{self._path}: column {field.name} is {_kind(has[field.name])} in the table and"
                    f" {_kind(field)} in the query: cast it, or write to a new table"
                )
        if new and not self._merge_schema:
            names = ", ".join(field.name for field in new)
            raise BadOption(f"{self._path} has no column {names}: set merge_schema=True to add what is new")
        if new and self._mode == "append" and not table.metadata().partition_columns:
            table.alter.add_columns(new)

    # ---- the rows ----

    def _prepare(
        self, df: DataFrame, schema: pa.Schema, table: DeltaTable
    ) -> Callable[[DeltaTable, CommitProperties], None] | None:
        """A function that commits the rows, which may be retried; None if there are no rows."""
        if self._mode == "append" and not table.metadata().partition_columns:
            actions = self._write_files(df, schema)
            return (lambda table, how: _add(table, actions, schema, how)) if actions else None
        rows = df.toArrow().cast(schema)
        if not rows.num_rows:
            return None
        if self._mode == "append":
            return lambda table, how: self._append(table, rows, how)
        last = last_of_each_key(rows, self._key, self._order_by)
        return lambda table, how: self._upsert(table, last, how)

    def _write_files(self, df: DataFrame, schema: pa.Schema) -> list[AddAction]:
        now = int(time.time() * 1000)
        written = df.mapInArrow(_file_writer(self._path, self._storage, schema), _ADDED).collect()
        return [
            AddAction(row.path, row.size, {}, now, True, json.dumps({"numRecords": row.rows}))
            for row in written
        ]

    def _append(self, table: DeltaTable, rows: pa.Table, how: CommitProperties) -> None:
        schema_mode: Literal["merge"] | None = "merge" if self._merge_schema else None
        write_deltalake(table, rows, mode="append", schema_mode=schema_mode, commit_properties=how)

    def _upsert(self, table: DeltaTable, rows: pa.Table, how: CommitProperties) -> None:
        merge = table.merge(
            rows,
            " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in self._key),
            source_alias="s",
            target_alias="t",
            merge_schema=self._merge_schema,
            commit_properties=how,
        )
        if self._delete is not None:
            keep = f"({self._delete}) IS NOT TRUE"
            kept = {
                quoted(name): f"s.{quoted(name)}" for name in rows.schema.names if name not in self._flags
            }
            merge = merge.when_matched_delete(self._delete)
            merge = merge.when_matched_update(kept, keep).when_not_matched_insert(kept, keep)
        else:
            merge = merge.when_matched_update_all().when_not_matched_insert_all()
        merge.execute()


def last_of_each_key(rows: pa.Table, key: Sequence[str], order_by: Sequence[str] = ()) -> pa.Table:
    """The last row of each key, by `order_by` and then by position. Raises BadRow for a null key."""
    for name in key:
        if rows[name].null_count:
            raise BadRow(f"column {name} is null in {rows[name].null_count} rows: a key must not be")
    positions = rows.append_column(_POSITION, pa.array(range(rows.num_rows), pa.int64()))
    if order_by:
        order = pc.sort_indices(
            positions, sort_keys=[(name, "ascending", "at_start") for name in (*order_by, _POSITION)]
        )
        rows = rows.take(order)
        positions = rows.append_column(_POSITION, pa.array(range(rows.num_rows), pa.int64()))
    last = positions.select([*key, _POSITION]).group_by(list(key)).aggregate([(_POSITION, "max")])
    return rows.take(last[f"{_POSITION}_max"])


def _file_writer(
    path: str, storage: Mapping[str, str], schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For mapInArrow: writes a task's rows to one file of the table, and returns its name and size."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from deltalake.fs import DeltaStorageHandler

        name, rows = f"part-{uuid.uuid4()}.zstd.parquet", 0
        file = parquet = None
        for batch in batches:
            if batch.num_rows:
                if parquet is None:
                    filesystem = pa_fs.PyFileSystem(DeltaStorageHandler(path, dict(storage) or None))
                    file = filesystem.open_output_stream(name)
                    parquet = pq.ParquetWriter(file, schema, compression="zstd")
                parquet.write_batch(batch.cast(schema))
                rows += batch.num_rows
        if parquet is not None and file is not None:
            parquet.close()
            size = file.tell()
            file.close()
            yield pa.RecordBatch.from_pylist([{"path": name, "size": size, "rows": rows}])

    return write


def _add(table: DeltaTable, actions: list[AddAction], schema: pa.Schema, how: CommitProperties) -> None:
    table.create_write_transaction(list(actions), "append", schema, commit_properties=how)


def _open(path: str, storage: dict[str, str], version: int | None = None) -> DeltaTable | None:
    try:
        return DeltaTable(path, version=version, storage_options=storage or None)
    except TableNotFoundError:
        return None


def _arrow_schema(df: DataFrame) -> pa.Schema:
    """Spark's columns in Arrow, times in UTC; all may be null, as in the Parquet files that Spark writes."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(df.schema, timezone="UTC")
    return pa.schema([field.with_nullable(True).remove_metadata() for field in schema])


def _kind(field: DeltaField) -> str:
    kind = json.loads(field.type.to_json())
    return kind if isinstance(kind, str) else json.dumps(kind)
