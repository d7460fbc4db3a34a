"""CREATE STREAM and CREATE TABLE: validates a statement and returns the relation that it declares.

If the statement has columns, a missing topic is created; without columns they come from the registry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.sql.catalog.catalog import Kind, Relation
from penstock.sql.catalog.cluster_admin import KEY, VALUE, ClusterAdmin
from penstock.sql.catalog.naming import registered_columns
from penstock.sql.catalog.relations import FORMATS, KEY_FORMATS, REGISTRY_FORMATS, SCHEMA_TYPES
from penstock.sql.catalog.target_topic import topic_config
from penstock.sql.errors import BadSyntax, Clash, Place, Unknown, did_you_mean
from penstock.sql.language.durations import duration
from penstock.sql.language.lexer.cursor import Cursor
from penstock.sql.language.lexer.keywords import OPTIONS
from penstock.sql.language.lexer.tokens import tokenize
from penstock.sql.language.statements import Column, CreateRelation
from penstock.sqltext.spark_types import from_words, words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType

_ERRORS = ("dead-letter", "fail", "skip")
_STORAGES = ("topic", "delta", "parquet")
_OWN_TOPICS = (
    "__penstock_sql", "__penstock_queries", "__penstock_marks", "__penstock_marks_once", "_schemas",
    "__consumer_offsets", "__transaction_state", "__share_group_state",
)  # fmt: skip
"""Topics of the cluster, the registry and SQL servers."""
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NOT_KEPT = ("topic", "format", "key_format", "partitions", "replicas", "path", "state", "existing")


class Options:
    """The validated options of a WITH."""

    def __init__(self, statement: CreateRelation) -> None:
        self._statement = statement
        self.given = dict(statement.options)
        if "value_format" in self.given:  # ksqlDB's name
            self.given["format"] = self.given.pop("value_format")
        if "kafka_topic" in self.given:
            self.given["topic"] = self.given.pop("kafka_topic")
        for name in self.given:
            if name not in OPTIONS:
                raise Unknown(f"no option `{name}`{did_you_mean(name, tuple(OPTIONS))}", self.place(name))
        self.format = self.choice("format", FORMATS)
        self.key_format = self.choice("key_format", KEY_FORMATS)
        self.choice("errors", _ERRORS)
        self.storage = self.choice("storage", _STORAGES) or "topic"
        self.choice("state", ("keep", "rebuild"))
        self.choice("existing", ("append",))
        if "dead_letter_topic" in self.given:
            letters, at = self.given["dead_letter_topic"], self.place("dead_letter_topic")
            check_topic_name(letters, at, "dead_letter_topic")
            check_target(letters, at)
        self.partitions = self.number("partitions")
        self.replicas = self.number("replicas")
        self.retention_ms = self._retention()
        if self.storage != "topic" and "path" not in self.given and statement.query is None:
            raise Clash(f"storage='{self.storage}' needs a path", self.place("storage"))
        if self.storage == "topic" and "path" in self.given:
            raise Clash("path requires storage='delta' or storage='parquet'", self.place("path"))

    def place(self, name: str) -> Place | None:
        span = self._statement.option_spans.get(name)
        return None if span is None else Place.of(self._statement.text, span[0])

    def choice(self, name: str, allowed: Sequence[str]) -> str | None:
        value = self.given.get(name)
        if value is None:
            return None
        value = value.lower()
        if value not in allowed:
            near = did_you_mean(value, allowed)
            raise Clash(f"{name}='{value}' must be one of {', '.join(allowed)}{near}", self.place(name))
        self.given[name] = value
        return value

    def number(self, name: str) -> int | None:
        value = self.given.get(name)
        if value is None:
            return None
        if not value.isdecimal() or int(value) < 1:
            raise Clash(f"{name}={value} must be a number from 1 on", self.place(name))
        return int(value)

    def time(self, name: str, *, positive: bool) -> int | None:
        """In milliseconds."""
        value = self.given.get(name)
        if value is None:
            return None
        try:
            cursor = Cursor(value, tokenize(value))
            found = duration(cursor, positive=positive)
        except BadSyntax:
            found = None
        if found is None or not cursor.done:
            raise Clash(f"{name}='{value}' is not a length of time: write '10 seconds'", self.place(name))
        return found.microseconds // 1000

    def _retention(self) -> int | None:
        value = self.given.get("retention", "")
        if value == "-1" or value.isdecimal():
            return int(value)
        return self.time("retention", positive=True)

    def kept(self) -> dict[str, str]:
        """The options that are stored with the relation."""
        return {name: value for name, value in self.given.items() if name not in _NOT_KEPT}


def parsed_types(columns: Iterable[Column], text: str) -> dict[str, DataType]:
    """The columns' types in Spark; Clash for an unknown type."""
    found: dict[str, Any] = {}
    for column in columns:
        try:
            found[column.name] = from_words(column.type)
        except ValueError:
            place = Place.of(text, column.span[0]) if column.span[1] else None
            raise Clash(f"`{column.type}` is not a type", place) from None
    return found


def declared(
    statement: CreateRelation, options: Options, admin: ClusterAdmin, spark: SparkSession, text: str
) -> Relation:
    """The relation of a CREATE without AS; creates its topic if necessary."""
    name_place = Place.of(statement.text, statement.name_span[0])
    if options.storage != "topic":
        return _of_files(statement, options, spark, text, name_place)
    topic = options.given.get("topic", statement.name)
    check_topic_name(topic, options.place("topic") or name_place)
    types = parsed_types(statement.columns, statement.text)
    columns = tuple(Column(each.name, words(types[each.name]), each.key) for each in statement.columns)
    keys = tuple(each.name for each in columns if each.key)
    if statement.kind == "table" and columns and not keys:
        raise Clash(f"the table `{statement.name}` needs a column that is PRIMARY KEY", name_place)
    there = admin.partitions(topic) is not None
    schema = admin.schema(f"{topic}{VALUE}")
    form = options.format
    if form is None:
        form = SCHEMA_TYPES[schema.schema_type] if schema is not None else "json"
    if not there and not columns:
        near = did_you_mean(topic, admin.topics())
        raise Unknown(
            f"Topic `{topic}` does not exist{near}. Add columns to create it.",
            options.place("topic") or name_place,
        )
    schemas: dict[str, int] = {}
    if form in REGISTRY_FORMATS:
        if schema is None and not columns:
            raise Unknown(
                f"the registry has no subject {topic}{VALUE}: give columns, or register a schema",
                options.place("format") or name_place,
            )
        if schema is not None:
            if SCHEMA_TYPES[schema.schema_type] != form:
                raise Clash(
                    f"{topic}{VALUE} is of type {SCHEMA_TYPES[schema.schema_type]}, not {form}",
                    options.place("format") or name_place,
                )
            schemas["value"] = schema.version
            has = registered_columns(schema, admin, name_place, options.given.get("message"))
            columns = _chosen(statement, columns, has, topic) if columns else has
        else:
            schemas["value"] = register_columns(admin, topic, form, columns)
    elif not columns:
        if form not in ("string", "bytes"):
            raise Clash(f"format='{form}' has no schema: declare the columns with their types", name_place)
        columns = (Column("value", "STRING" if form == "string" else "BINARY"),)
    values = [each for each in columns if not each.key]
    check_one_column(form, [each.name for each in values], options.place("format") or name_place)
    check_column_types(form, values, options.place("format") or name_place)
    if not values:
        raise Clash(f"`{statement.name}` has no column outside of its key", name_place)
    key_format, key_version = _key_format(options, topic, admin)
    if key_version is not None:
        schemas["key"] = key_version
    if len(keys) > 1 and key_format == "string":
        key_format = "json"
    relation = Relation(
        name=statement.name,
        kind=statement.kind,
        topic=topic,
        columns=columns,
        key_columns=keys,
        format=form,
        key_format=key_format,
        options=options.kept(),
        schemas=schemas,
        statement=text,
    )
    check_times(relation, options, name_place)
    if not there:
        make_topic(admin, topic, statement.kind, options, partitions=1, retention=options.retention_ms)
    return relation


def check_target(topic: str, place: Place | None) -> None:
    """Rejects topics that the cluster, the registry or this server rely on."""
    if topic in _OWN_TOPICS:
        raise Clash(f"The topic `{topic}` is reserved for internal use. Choose another name.", place)


def check_one_column(form: str, columns: Sequence[str], place: Place | None) -> None:
    if form in ("string", "bytes") and len(columns) != 1:
        names = ", ".join(columns)
        raise Clash(f"format='{form}' supports exactly one value column; got {len(columns)}: {names}", place)


def check_plain_columns(form: str, columns: Iterable[Column], place: Place | None) -> None:
    """Values that a CSV line cannot hold would be written and could never be read."""
    for column in columns if form == "csv" else ():
        if column.type.upper().startswith(("ARRAY", "MAP", "STRUCT")):
            raise Clash(
                f"CSV does not support the nested column `{column.name}` ({column.type}). "
                f"Use to_json({column.name}) or another format.",
                place,
            )


def check_column_types(form: str, columns: Iterable[Column], place: Place | None) -> None:
    """Raises Clash for a type that the format cannot represent. For formats of the registry, the schema
    decides.
    """
    from penstock.spark.errors import NotTyped
    from penstock.spark.typed.text_values import check_types

    check_plain_columns(form, columns := tuple(columns), place)
    for column in columns:
        missing = re.search(r"\b(VARIANT|TIME(?!STAMP)|INTERVAL)\b", column.type) if form == "delta" else None
        if missing is not None:
            raise Clash(f"format='delta' has no type {missing[0]}, which `{column.name}` has", place)
        if form in ("json", "csv") and not column.key:
            try:
                check_types(from_words(column.type), nested=form == "json", place=f"`{column.name}`")
            except NotTyped as error:
                raise Clash(f"format='{form}' has no such type: {error}", place) from error


def check_topic_name(topic: str, place: Place | None, option: str = "topic") -> None:
    if not _TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
        raise Clash(
            f"`{topic}` cannot be the name of a topic, which has 1 to 249 letters, digits, dots, _ and -; "
            f"name it with {option}='…'",
            place,
        )


def make_topic(
    admin: ClusterAdmin, topic: str, kind: Kind, options: Options, *, partitions: int, retention: int | None
) -> bool:
    """Returns False if the topic exists. `retention` in milliseconds; None: the cluster's default."""
    config = topic_config(kind, retention)
    return admin.create_topic(topic, options.partitions or partitions, config, options.replicas or -1)


def check_times(relation: Relation, options: Options, place: Place | None) -> None:
    """`timestamp` must name a column that can be a time; `watermark` must be an interval."""
    name = relation.options.get("timestamp")
    if name is not None:
        column = relation.column(name)
        if column is None:
            near = did_you_mean(name, (each.name for each in relation.columns))
            raise Unknown(f"timestamp: no column `{name}`{near}", options.place("timestamp") or place)
        if column.type not in ("BIGINT", "INT", "TIMESTAMP", "TIMESTAMP_NTZ", "DATE", "STRING"):
            raise Clash(
                f"timestamp: `{column.name}` is {column.type}, and must be TIMESTAMP, DATE, STRING or BIGINT "
                "(milliseconds since 1970)",
                options.place("timestamp") or place,
            )
    options.time("watermark", positive=False)


def _key_format(options: Options, topic: str, admin: ClusterAdmin) -> tuple[str, int | None]:
    if options.key_format is not None and options.key_format not in REGISTRY_FORMATS:
        return options.key_format, None
    schema = admin.schema(f"{topic}{KEY}")
    if schema is None:
        if options.key_format is not None:
            raise Unknown(f"the registry has no subject {topic}{KEY}", options.place("key_format"))
        return "string", None
    return SCHEMA_TYPES[schema.schema_type], schema.version


def _chosen(
    statement: CreateRelation, columns: Sequence[Column], has: Sequence[Column], topic: str
) -> tuple[Column, ...]:
    """The declared columns, which the schema must have."""
    known = {each.name.casefold(): each for each in has}
    for column, written in zip(columns, statement.columns, strict=True):
        if not column.key and column.name.casefold() not in known:
            near = did_you_mean(column.name, (each.name for each in has))
            raise Unknown(
                f"the schema of {topic}{VALUE} has no field `{column.name}`{near}",
                Place.of(statement.text, written.span[0]),
            )
    return tuple(columns)


def struct_of(columns: Iterable[Column]) -> StructType:
    """The struct type of a record value with these columns."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(each.name, from_words(each.type)) for each in columns if not each.key])


def register_columns(admin: ClusterAdmin, topic: str, form: str, columns: Iterable[Column]) -> int:
    """Registers a schema with these columns under the topic's name. Returns its version."""
    from penstock.spark.encoders.framed import schema_text
    from penstock.spark.errors import SparkError

    types = {name: kind for kind, name in SCHEMA_TYPES.items()}
    try:
        text = schema_text(types[form], struct_of(columns), f"{topic}{VALUE}")
    except SparkError as error:
        raise Clash(f"the columns have no schema in {form}: {error}") from error
    return admin.register(f"{topic}{VALUE}", types[form], text).version


def _of_files(
    statement: CreateRelation, options: Options, spark: SparkSession, text: str, place: Place
) -> Relation:
    """A table over files: a Delta table, or Parquet."""
    from pyspark.errors import PySparkException

    from penstock.pipelines.failures import cause
    from penstock.spark.errors import SparkError

    if statement.kind != "table":
        raise Clash(f"storage='{options.storage}' is for tables: CREATE TABLE {statement.name}", place)
    path = options.given["path"]
    try:
        if options.storage == "delta":
            from penstock.spark import delta

            found = delta.read(spark, path)
        else:
            found = spark.read.parquet(path)
        schema = found.schema
    except (PySparkException, SparkError) as error:
        raise Unknown(f"nothing to read at {path}: {cause(error)}", options.place("path")) from error
    known = {each.name.casefold(): each for each in schema.fields}
    wanted = statement.columns or tuple(Column(each.name, "") for each in schema.fields)
    columns = []
    for column in wanted:
        there = known.get(column.name.casefold())
        if there is None:
            near = did_you_mean(column.name, (each.name for each in schema.fields))
            raise Unknown(
                f"{path} has no column `{column.name}`{near}", Place.of(statement.text, column.span[0])
            )
        columns.append(Column(there.name, words(there.dataType)))
    return Relation(
        name=statement.name,
        kind="table",
        topic=None,
        columns=tuple(columns),
        key_columns=tuple(each.name for each in statement.columns if each.key),
        format=options.storage,
        options=options.kept(),
        statement=text,
        path=path,
    )


def target_format(options: Options, sources: Mapping[str, Relation], columns: Sequence[str]) -> str:
    """The format of a query's output: as given, or that of its first source if it can represent the
    columns.
    """
    if options.format is not None:
        return options.format
    first = next((each for each in sources.values() if each.topic is not None), None)
    form = "json" if first is None else first.format
    return "json" if form in ("string", "bytes") and len(columns) != 1 else form
