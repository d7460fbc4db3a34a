"""Relations as DataFrames: a stream or table as Spark reads it, and Spark's rows as records of one.

Reading: the columns of the value, those of the key, and `__key`, `__partition`, `__offset`, `__timestamp`
(the event time) and, where they are asked for, `__headers`. A table is the newest record of each key.

Writing: a key, which is text (one column's own, a JSON object of several), and a value in the relation's
format with all columns that are not read from the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.sql.catalog.catalog import Relation
from penstock.sql.catalog.cluster_admin import KEY, VALUE
from penstock.sql.errors import Clash
from penstock.sql.language.properties import OF_THE_SOURCE
from penstock.sql.settings import EngineSettings
from penstock.sqltext.identifiers import quoted
from penstock.sqltext.spark_types import words

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

REGISTRY_FORMATS = {"avro": "avro", "protobuf": "protobuf", "json_schema": "json"}
"""Formats with schemas in the registry, with the names of the source and the sink."""
SCHEMA_TYPES = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json_schema"}
TEXT_FORMATS = {"json": "json-text", "csv": "csv-text"}
FORMATS = (*REGISTRY_FORMATS, *TEXT_FORMATS, "string", "bytes")
KEY_FORMATS = ("string", "bytes", "json", "avro", "protobuf", "json_schema")
OWN_COLUMNS = ("__key", "__partition", "__offset", "__timestamp", "__headers")


# Reading


def frame(
    session: SparkSession,
    relation: Relation,
    settings: EngineSettings,
    *,
    streaming: bool,
    properties: Mapping[str, str],
    starting: str = "earliest",
    headers: bool = False,
    watermark: str | None = None,
    reader: str | None = None,
    commits: bool = True,
) -> DataFrame:
    """The relation's rows: new ones as they arrive (`streaming`), or all current ones.

    `reader` is the id of the continuous query that reads them: its dead letters have it. Without `commits` it
    has no consumer group.
    """
    if relation.topic is None:
        return _files(session, relation)
    options = source_options(
        relation, settings, properties, streaming=streaming, starting=starting, headers=headers
    )
    if reader is not None and "dead.letter.topic" in options:
        options["dead.letter.query"] = reader
    if streaming and not commits:
        options["commitProgress"] = "false"
    source = session.readStream if streaming else session.read
    records = source.format("penstock").options(**options).load()
    if relation.kind == "table" and not streaming:
        from penstock.spark.streams import table

        records = table(records)
    else:
        records = records.where("value IS NOT NULL")
    rows = records.select(*_columns(relation, records, headers))
    if watermark is not None and streaming:
        rows = rows.withWatermark("__timestamp", watermark)
    return rows


def source_options(
    relation: Relation,
    settings: EngineSettings,
    properties: Mapping[str, str],
    *,
    streaming: bool,
    starting: str = "earliest",
    headers: bool = False,
) -> dict[str, str]:
    """Options of `format("penstock")` to read the relation's topic."""
    assert relation.topic is not None
    options = {
        "kafka.isolation.level": "read_committed",
        **settings.spark_options(),
        "subscribe": relation.topic,
        "startingOffsets": starting,
    }
    if streaming:
        options |= {name: properties[name] for name in OF_THE_SOURCE if name in properties}
    if headers:
        options["includeHeaders"] = "true"
    options |= _typed(relation, settings)
    return options


def _typed(relation: Relation, settings: EngineSettings) -> dict[str, str]:
    """The options that set the type of `value`, and of `key` if the registry knows it."""
    options: dict[str, str] = {}
    parts = []
    if relation.format in REGISTRY_FORMATS:
        parts.append("value")
        options |= {
            "value.format": REGISTRY_FORMATS[relation.format],
            "value.subject": relation.options.get("value_subject", f"{relation.topic}{VALUE}"),
            **settings.registry_options(),
        }
        if "value" in relation.schemas:
            options["value.schema.version"] = str(relation.schemas["value"])
        if "message" in relation.options:
            options["value.message"] = relation.options["message"]
    elif relation.format in TEXT_FORMATS:
        parts.append("value")
        options |= {"value.format": TEXT_FORMATS[relation.format], "value.schema": value_ddl(relation)}
        if relation.format == "csv":
            options["value.delimiter"] = relation.options.get("delimiter", ",")
    if relation.key_format in REGISTRY_FORMATS:
        parts.append("key")
        options |= {
            "key.format": REGISTRY_FORMATS[relation.key_format],
            "key.subject": f"{relation.topic}{KEY}",
            **settings.registry_options(),
        }
        if "key" in relation.schemas:
            options["key.schema.version"] = str(relation.schemas["key"])
    errors = relation.options.get("errors", "dead-letter")
    for part in parts:
        options[f"{part}.decode.errors"] = errors
    if parts and errors == "dead-letter":
        options["dead.letter.topic"] = dead_letter_topic(relation)
    return options


def dead_letter_topic(relation: Relation) -> str:
    return relation.options.get("dead_letter_topic", f"{relation.topic}-dead-letters")


def only_looked_at(relation: Relation) -> Relation:
    """For ad-hoc reads, which write no dead letters: records that cannot be decoded are skipped."""
    if relation.options.get("errors", "dead-letter") != "dead-letter":
        return relation
    return replace(relation, options={**relation.options, "errors": "skip"})


def value_ddl(relation: Relation) -> str:
    """The value's columns as a Spark schema string."""
    return ", ".join(f"{quoted(each.name)} {each.type}" for each in relation.columns if not each.key)


def _columns(relation: Relation, records: DataFrame, headers: bool) -> list[Column]:
    from pyspark.sql import functions as F

    value_type = records.schema["value"].dataType
    keys = _key_columns(relation, records.schema["key"].dataType)
    chosen = []
    for column in relation.columns:
        if column.key:
            chosen.append(keys[column.name].alias(column.name))
        else:
            chosen.append(_value_column(column.name, column.type, value_type).alias(column.name))
    own = [
        _own_key(relation, records.schema["key"].dataType).alias("__key"),
        F.col("partition").alias("__partition"),
        F.col("offset").alias("__offset"),
        _event_time(relation, chosen).alias("__timestamp"),
    ]
    if headers:
        own.append(F.col("headers").alias("__headers"))
    return [*chosen, *own]


def _value_column(name: str, wanted: str, value_type: DataType) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    if isinstance(value_type, StructType):
        by_name = {each.name: each for each in value_type.fields}
        folded = {each.name.casefold(): each for each in reversed(value_type.fields)}
        found = by_name.get(name) or folded[name.casefold()]
        column = F.col("value").getField(found.name)
        return column if words(found.dataType) == wanted.upper() else column.cast(wanted)
    column = F.col("value")
    return column if words(value_type) == wanted.upper() else column.cast(wanted)


def _own_key(relation: Relation, key_type: DataType) -> Column:
    from pyspark.sql import functions as F

    if relation.key_format == "bytes" or relation.key_format in REGISTRY_FORMATS:
        return F.col("key")
    return F.col("key").cast("string")


def _key_columns(relation: Relation, key_type: DataType) -> dict[str, Column]:
    """The columns that are read from the key: from its text, or from fields of its JSON or schema."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    wanted = [each for each in relation.columns if each.key]
    if not wanted:
        return {}
    if isinstance(key_type, StructType):
        names = {each.name.casefold(): each.name for each in key_type.fields}
        return {
            each.name: F.col("key").getField(names.get(each.name.casefold(), each.name)).cast(each.type)
            for each in wanted
        }
    if relation.key_format in REGISTRY_FORMATS or relation.key_format == "bytes":
        return {each.name: F.col("key").cast(each.type) for each in wanted}
    text = F.col("key").cast("string")
    if len(wanted) == 1 and relation.key_format == "string":
        return {wanted[0].name: text.cast(wanted[0].type)}
    ddl = ", ".join(f"{quoted(each.name)} {each.type}" for each in wanted)
    parsed = F.from_json(text, ddl)
    return {each.name: parsed.getField(each.name) for each in wanted}


def _event_time(relation: Relation, columns: Sequence[Column]) -> Column:
    from pyspark.sql import functions as F

    name = relation.options.get("timestamp")
    if name is None:
        return F.col("timestamp")
    at = next(i for i, each in enumerate(relation.columns) if each.name.casefold() == name.casefold())
    column, kind = columns[at], relation.columns[at].type.upper()
    if kind in ("BIGINT", "INT", "LONG", "INTEGER"):
        return F.timestamp_millis(column.cast("bigint"))
    if kind == "STRING" and "timestamp_format" in relation.options:
        return F.to_timestamp(column, relation.options["timestamp_format"])
    return column.cast("timestamp")


def _files(session: SparkSession, relation: Relation) -> DataFrame:
    """A table in files, as of now."""
    from pyspark.sql import functions as F

    assert relation.path is not None
    if relation.options.get("storage", "delta") == "parquet":
        rows = session.read.parquet(relation.path)
    else:
        from deltalake import DeltaTable

        from penstock.spark import delta

        if not DeltaTable.is_deltatable(relation.path):  # no micro-batch has been written yet
            ddl = ", ".join(f"{quoted(each.name)} {each.type}" for each in relation.columns)
            return session.createDataFrame([], ddl)
        rows = delta.read(session, relation.path)
    return rows.select(*(F.col(quoted(each.name)) for each in relation.columns))


def file_versions(sources: Mapping[str, Relation]) -> tuple[int, ...]:
    """Of the tables in files among these relations: others mean that one has changed."""
    return tuple(_version(each.path, each) for each in sources.values() if each.path is not None)


def _version(path: str, relation: Relation) -> int:
    from deltalake import DeltaTable

    if relation.options.get("storage", "delta") != "delta" or not DeltaTable.is_deltatable(path):
        return -1
    return DeltaTable(path).version()


# Writing


def json_options() -> dict[str, str]:
    """How `to_json` writes keys and values: with nulls, and with microseconds, as in columns. With less
    precision, two keys could become equal, and two rows the same.
    """
    return {
        "ignoreNullFields": "false",
        "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
        "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    }


def key_text(columns: Sequence[str]) -> Column:
    """The key of a record: the text of one column, a JSON object of several."""
    from pyspark.sql import functions as F

    if not columns:
        return F.lit("{}")
    if len(columns) == 1:
        return F.col(quoted(columns[0])).cast("string")
    fields = F.struct(*(F.col(quoted(each)).alias(each) for each in columns))
    return F.to_json(fields, json_options())


def value_column(relation: Relation, columns: Sequence[str]) -> Column:
    """The value of a record for the sink: text, bytes, or a struct that the sink encodes."""
    from pyspark.sql import functions as F

    chosen = [F.col(quoted(each)).alias(each) for each in columns]
    if relation.format in REGISTRY_FORMATS:
        return F.struct(*chosen)
    if relation.format == "json":
        return F.to_json(F.struct(*chosen), json_options())
    if relation.format == "csv":
        return F.to_csv(
            F.struct(*chosen),
            {
                "sep": relation.options.get("delimiter", ","),
                "emptyValue": '""',
            },
        )
    if len(columns) != 1:
        raise Clash(
            f"format='{relation.format}' supports exactly one value column; "
            f"got {len(columns)}: {', '.join(columns)}"
        )
    return chosen[0].cast("string" if relation.format == "string" else "binary")


def sink_options(relation: Relation, settings: EngineSettings) -> dict[str, str]:
    """Options of `format("penstock")` to write to the relation's topic."""
    assert relation.topic is not None
    options = {**settings.spark_options(), "topic": relation.topic}
    if relation.format in REGISTRY_FORMATS:
        options |= {
            "value.format": REGISTRY_FORMATS[relation.format],
            "value.subject": relation.options.get("value_subject", f"{relation.topic}{VALUE}"),
            **settings.registry_options(),
        }
        if "value" in relation.schemas:
            options["value.schema.version"] = str(relation.schemas["value"])
    return options


def value_names(relation: Relation) -> list[str]:
    """The columns of the value."""
    return [each.name for each in relation.columns if not each.key]
