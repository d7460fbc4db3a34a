"""The tables of a pipeline in Spark's catalog: made when first needed, given new columns, emptied, replaced.

With a catalog that lasts (Hive's, which `penstock pipeline run` sets up in the storage) they are ordinary
managed tables, the same that `spark-pipelines` uses. With an in-memory catalog each has its place in the
storage, and is found there again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.pipelines.errors import BadDefinition
from penstock.pipelines.failures import cause
from penstock.pipelines.project.graph import Dataset, Graph, Kind
from penstock.pipelines.project.project import Project
from penstock.pipelines.run.storage import Storage
from penstock.sqltext.identifiers import quoted
from penstock.sqltext.spark_types import words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

DEFAULT_FORMAT = "parquet"


class PipelineTables:
    """The catalog's side of a project's datasets."""

    def __init__(self, project: Project, spark: SparkSession, storage: Storage) -> None:
        self.project = project
        self.spark = spark
        self.storage = storage
        self.lasts = spark.conf.get("spark.sql.catalogImplementation", "in-memory") == "hive"

    def settle(self, graph: Graph, dataset: Dataset, schemas: list[StructType]) -> str | None:
        """Makes the table ready for flows of these schemas. A reason when its columns cannot hold them: it
        must then be replaced, and is left as it is."""
        wanted = wanted_schema(graph, dataset, schemas)
        if not self.spark.catalog.tableExists(dataset.sql_name):
            wanted = self._with_files_found(dataset, wanted)
            if dataset.kind is Kind.MATERIALIZED_VIEW and not self.lasts:
                self.storage.delete(self._default_location(dataset))
            self._create(dataset, wanted)
        existing = self.spark.table(dataset.sql_name).schema
        missing, reason = compare(existing, wanted)
        if dataset.kind is Kind.MATERIALIZED_VIEW:
            if missing or reason or len(existing.fields) != len(wanted.fields):
                self.replace(dataset, wanted)  # it is recomputed in any case
            return None
        if reason is None and missing:
            columns = ", ".join(f"{quoted(name)} {words(kind)}" for name, kind in missing)
            self._do(dataset, f"ALTER TABLE {dataset.sql_name} ADD COLUMNS ({columns})")
        return reason

    def start_again(self, dataset: Dataset, schema: StructType) -> bool:
        """Removes all rows; gives whether the table has other columns now."""
        existing = self.spark.table(dataset.sql_name).schema
        columns = [(field.name.lower(), field.dataType.simpleString()) for field in existing.fields]
        if columns != [(field.name.lower(), field.dataType.simpleString()) for field in schema.fields]:
            self.replace(dataset, schema)
            return True
        self._empty(dataset)
        return False

    def _empty(self, dataset: Dataset) -> None:
        """With the rows goes the log of the batches that wrote them."""
        location = self.location(dataset)
        self.storage.delete(location)
        self.storage.make_directory(location)
        self.spark.catalog.refreshTable(dataset.sql_name)

    def replace(self, dataset: Dataset, schema: StructType) -> None:
        """Drops the table with its rows and makes it again with other columns."""
        root, _ = self._version(dataset)
        self._do(dataset, f"DROP TABLE IF EXISTS {dataset.sql_name}")
        self.storage.delete(root)
        self._create(dataset, schema)

    def location(self, dataset: Dataset) -> str:
        rows = self.spark.sql(f"DESCRIBE TABLE EXTENDED {dataset.sql_name}").collect()
        return next(str(row.data_type) for row in rows if row.col_name == "Location")

    def put(self, dataset: Dataset, frame: DataFrame) -> None:
        """Puts the rows of a DataFrame in the place of those that a materialized view has.

        They go to a new directory, to which the table is then pointed, so that a reader sees the old rows or
        the new ones. The directory before is kept for those who are reading, until the next time.
        """
        root, number = self._version(dataset)
        columns = [quoted(field.name) for field in self.spark.table(dataset.sql_name).schema.fields]
        writer = frame.select(*columns).write.format(dataset.format or DEFAULT_FORMAT).mode("overwrite")
        if dataset.partition_by:
            writer = writer.partitionBy(*dataset.partition_by)
        writer.save(f"{root}/v{number + 1}")
        self._do(dataset, f"ALTER TABLE {dataset.sql_name} SET LOCATION {_quoted(f'{root}/v{number + 1}')}")
        self.spark.catalog.refreshTable(dataset.sql_name)
        for name in self.storage.names(root):
            if name not in (f"v{number}", f"v{number + 1}"):
                self.storage.delete(f"{root}/{name}")

    def _version(self, dataset: Dataset) -> tuple[str, int]:
        """The directory of a table without the version that `put` added, and the number of that."""
        location = self.location(dataset).rstrip("/")
        found = re.fullmatch(r"(.*)/v(\d+)", location)
        if dataset.kind is Kind.MATERIALIZED_VIEW and found:
            return found[1], int(found[2])
        return location, 0

    def _default_location(self, dataset: Dataset) -> str:
        _, database, table = dataset.name
        return self.project.under_storage(
            *["tables", *([] if database == "default" else [f"{database}.db"]), table]
        )

    def _with_files_found(self, dataset: Dataset, wanted: StructType) -> StructType:
        """The columns that files of an earlier run have, first: an in-memory catalog has forgotten them."""
        from pyspark.errors import PySparkException
        from pyspark.sql.types import StructField, StructType

        location = self._default_location(dataset)
        if self.lasts or dataset.kind is not Kind.STREAMING_TABLE or not self.storage.exists(location):
            return wanted
        try:
            found = self.spark.read.format(dataset.format or DEFAULT_FORMAT).load(location).schema
        except PySparkException:
            return wanted  # a directory without data files
        names = {field.name.lower() for field in found.fields}
        more = [field for field in wanted.fields if field.name.lower() not in names]
        return StructType([StructField(field.name, field.dataType) for field in [*found.fields, *more]])

    def _create(self, dataset: Dataset, schema: StructType) -> None:
        columns = ", ".join(
            f"{quoted(field.name)} {field.dataType.simpleString()}" for field in schema.fields
        )
        statement = f"CREATE TABLE {dataset.sql_name} ({columns}) USING {dataset.format or DEFAULT_FORMAT}"
        if dataset.partition_by:
            statement += " PARTITIONED BY (" + ", ".join(map(quoted, dataset.partition_by)) + ")"
        if dataset.cluster_by:
            statement += " CLUSTER BY (" + ", ".join(map(quoted, dataset.cluster_by)) + ")"
        if not self.lasts:
            self.storage.make_directory(self._default_location(dataset))  # a stream wants it to be there
            statement += f" LOCATION {_quoted(self._default_location(dataset))}"
        if dataset.comment:
            statement += f" COMMENT {_quoted(dataset.comment)}"
        if dataset.properties:
            pairs = ", ".join(
                f"{_quoted(key)} = {_quoted(value)}" for key, value in dataset.properties.items()
            )
            statement += f" TBLPROPERTIES ({pairs})"
        self._do(dataset, statement)

    def _do(self, dataset: Dataset, statement: str) -> None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            self.spark.sql(statement)
        except (PySparkException, Py4JJavaError) as error:
            text = cause(error)
            if (dataset.format or "").lower() == "delta" and "DATA_SOURCE_NOT_FOUND" in text:
                text = (
                    "a table of format delta needs Delta's jar; without it, use create_sink(format='delta')"
                )
            raise BadDefinition(f"{dataset.kind} '{dataset.name[-1]}': {text}", dataset.where) from error


def wanted_schema(graph: Graph, dataset: Dataset, schemas: list[StructType]) -> StructType:
    """The declared columns, or those of the flows taken together; every one may be null."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructField, StructType

    declared: Any = dataset.schema
    if isinstance(declared, str):
        try:
            declared = StructType.fromDDL(declared)
        except (PySparkException, ValueError) as error:
            raise BadDefinition(
                f"the columns of '{graph.short(dataset.name)}': {cause(error)}", dataset.where
            ) from error
    if declared is not None:
        names = {field.name.lower() for field in declared.fields}
        for schema in schemas:
            for field in schema.fields:
                if field.name.lower() not in names:
                    raise BadDefinition(
                        f"a flow writes column '{field.name}', which '{graph.short(dataset.name)}' lacks",
                        dataset.where,
                    )
        return StructType([StructField(field.name, field.dataType) for field in declared.fields])
    merged: dict[str, Any] = {}
    for schema in schemas:
        for field in schema.fields:
            earlier = merged.setdefault(field.name.lower(), StructField(field.name, field.dataType))
            if earlier.dataType.simpleString() != field.dataType.simpleString():
                raise BadDefinition(
                    f"the flows into '{graph.short(dataset.name)}' disagree on column '{field.name}': "
                    f"{earlier.dataType.simpleString()} and {field.dataType.simpleString()}",
                    dataset.where,
                )
    return StructType(list(merged.values()))


def compare(existing: StructType, wanted: StructType) -> tuple[list[tuple[str, Any]], str | None]:
    """The columns that `existing` lacks, and why it cannot hold `wanted` if it cannot. Columns that nobody
    wants any more stay, and are null in new rows, as with Spark's own runner."""
    there = {field.name.lower(): field.dataType for field in existing.fields}
    missing = []
    for field in wanted.fields:
        kind = there.get(field.name.lower())
        if kind is None:
            missing.append((field.name, field.dataType))
        elif kind.simpleString() != field.dataType.simpleString():
            reason = (
                f"its column '{field.name}' is {kind.simpleString()} in the table and "
                f"{field.dataType.simpleString()} in the query"
            )
            return [], reason
    return missing, None


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
