"""CREATE … AS SELECT and INSERT INTO … SELECT: creates a query from a statement, analysed by Spark.

Nothing is changed before all checks have passed: `analyse` validates, `settle` creates the topic and
registers the schema.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.pipelines.plans.fingerprint import FlowPrint, plan_hash
from penstock.pipelines.plans.spark_plans import read_plan, read_query
from penstock.pipelines.project.graph import Kind as FlowKind
from penstock.sql.catalog.catalog import Catalog, QueryDef, Relation
from penstock.sql.catalog.cluster_admin import ClusterAdmin
from penstock.sql.catalog.declare import (
    Options,
    check_column_types,
    check_one_column,
    check_target,
    check_times,
    check_topic_name,
    make_topic,
    register_columns,
    target_format,
)
from penstock.sql.catalog.naming import Names
from penstock.sql.catalog.relations import REGISTRY_FORMATS, file_versions
from penstock.sql.catalog.target_topic import ignored, kept_for_ever, output_retention
from penstock.sql.continuous import functions as python_functions
from penstock.sql.continuous.planning import TIME, Shape, key_columns, shape
from penstock.sql.continuous.preparing import Analysed, Prepared, new_session, prepare, spark_errors
from penstock.sql.continuous.running import query_of, shape_of
from penstock.sql.continuous.writing import named
from penstock.sql.errors import Clash, Exists, Place, SqlError, did_you_mean
from penstock.sql.language.properties import RESET
from penstock.sql.language.statements import Column, CreateRelation, InsertQuery, Query, Source
from penstock.sql.settings import EngineSettings
from penstock.sqltext.spark_types import fits, from_words, words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Maker:
    def __init__(self, spark: SparkSession, settings: EngineSettings, admin: ClusterAdmin) -> None:
        self.spark = spark
        self.settings = settings
        self._admin = admin
        self.shuffle_partitions = settings.shuffle_partitions or max(1, spark.sparkContext.defaultParallelism)

    def sources(self, query: Query, catalog: Catalog) -> dict[str, Relation]:
        """The relations that a query reads, by the names that it uses."""
        names = Names(catalog, self._admin)
        return {each.name: names.relation(each.name, place_of(query, each)) for each in query.sources}

    def analyse(
        self,
        query: Query,
        catalog: Catalog,
        properties: Mapping[str, str],
        kind: Any,
        query_id: str,
    ) -> Analysed:
        """With all that the running query will have, so that it can be started as it is."""
        sources = self.sources(query, catalog)
        how = shape(query, sources, kind)
        for name in how.streams:
            if sources[name].topic is None:
                raise Clash(f"`{name}` is kept in files, and cannot be read as a stream")
        session = new_session(
            self.spark,
            properties,
            self.shuffle_partitions,
            streaming=how.mode != "refresh",
            any_setting=self.settings.python_functions,
        )
        functions = python_functions.mentioned(_text(query), catalog.functions)
        topics = [each.topic for name in how.streams if (each := sources[name]).topic is not None]
        starting = self._admin.starting(topics, properties.get(RESET, "earliest"))
        versions = file_versions(sources)
        prepared = prepare(
            session,
            query,
            sources,
            self.settings,
            functions=functions,
            known=catalog.function_names(),
            shape=None if how.mode == "refresh" else how,
            properties=properties,
            starting=starting,
            reader=query_id,
        )
        rows, columns = named(prepared, query)
        if not columns:
            raise Clash("an output needs a column whose name does not begin with `__`")
        for name in columns:
            if words(rows.schema[name].dataType) == "VOID":
                raise Clash(f"The column `{name}` has no type. Use CAST(NULL AS type).")
        if how.mode != "refresh":
            check_streaming(query, rows, how, prepared, sources)
        return Analysed(query, sources, how, prepared, rows, tuple(columns), functions, starting, versions)

    # CREATE … AS

    def created(
        self, statement: CreateRelation, catalog: Catalog, properties: Mapping[str, str], query_id: str
    ) -> tuple[Analysed, QueryDef, Options]:
        """The new query, with a target that does not exist yet: `settle` creates it."""
        assert statement.query is not None
        options = Options(statement)
        place = Place.of(statement.text, statement.name_span[0])
        if statement.columns:
            raise Clash(
                "Column types come from the query. Cast columns in the SELECT: CAST(x AS type) AS x.",
                place,
            )
        if options.storage == "parquet" or (options.storage == "delta" and statement.kind == "stream"):
            raise Clash(
                f"storage='{options.storage}' is for tables, and of them 'delta'", options.place("storage")
            )
        topic = None if options.storage == "delta" else options.given.get("topic", statement.name)
        if topic is not None:
            check_topic_name(topic, options.place("topic") or place)
            check_target(topic, options.place("topic") or place)
        found = self.analyse(statement.query, catalog, properties, statement.kind, query_id)
        keys: tuple[str, ...] = ()
        if statement.kind == "table":
            keys = key_columns(statement.query, found.sources, list(found.columns))
        form = options.storage if topic is None else target_format(options, found.sources, found.columns)
        check_one_column(form, found.columns, options.place("format") or place)
        columns = tuple(Column(each, words(found.rows.schema[each].dataType)) for each in found.columns)
        check_column_types(form, columns, options.place("format") or place)
        text = statement.text[statement.span[0] : statement.span[1]]
        target = Relation(
            name=statement.name,
            kind=statement.kind,
            topic=topic,
            columns=columns,
            key_columns=keys,
            format=form,
            key_format=_key_format(found, keys),
            options=options.kept(),
            statement=str(text),
            made_by=query_id,
            path=None if topic is not None else options.given.get("path") or self.path(query_id),
        )
        if topic is not None and topic in {each.topic for each in found.sources.values()}:
            raise Clash(
                f"it reads the topic `{topic}`, and would write to it: name another with topic='…'", place
            )
        check_times(target, options, place)
        if found.shape.mode in ("refresh", "complete") and options.retention_ms not in (None, -1):
            raise Clash(
                "retention would delete rows that the query does not write again: a table of session "
                "windows, or of tables, is compared as a whole. Leave it out",
                options.place("retention") or place,
            )
        kind = "csas" if statement.kind == "stream" else "ctas"
        return found, self._definition(query_id, kind, str(text), target, found, properties), options

    def path(self, query_id: str) -> str:
        """The default path of a table in files."""
        return f"{self.settings.storage.rstrip('/')}/tables/{query_id}"

    def check_topic(self, definition: QueryDef, options: Options, place: Place) -> None:
        """Raises Exists if its topic has records, which would be mixed with those of the query.

        A query that compares its rows with the previous ones takes over existing records.
        """
        topic = definition.target.topic
        if topic is None or definition.mode in ("refresh", "complete") or "existing" in options.given:
            return
        if self._admin.has_records(topic):
            kind = definition.target.kind.upper()
            raise Exists(
                f"the topic `{topic}` has records already, and the query would write its own after them: "
                f"delete it (DROP {kind} … DELETE TOPIC), name another with topic='…', or add to it with "
                "WITH (existing = 'append')",
                options.place("topic") or place,
            )

    def settle(self, found: Analysed, definition: QueryDef, options: Options) -> tuple[QueryDef, list[str]]:
        """Creates the topic and registers the schema. Returns the updated definition and messages."""
        target = definition.target
        if target.topic is None:
            return definition, []
        version: dict[str, int] = {}
        if target.format in REGISTRY_FORMATS:
            version["value"] = register_columns(self._admin, target.topic, target.format, target.columns)
        notes = self._make_topic(found, definition, options, target.topic)
        # The columns keep the query's types, which not all formats have: values are cast to them when read.
        return replace(definition, target=replace(target, schemas=version)), notes

    def _make_topic(self, found: Analysed, definition: QueryDef, options: Options, topic: str) -> list[str]:
        kind, retention, notes = definition.target.kind, options.retention_ms, []
        if retention is None and kind == "stream" and any(name == TIME for name, _ in found.shape.extra):
            streams = [found.sources[name] for name in found.shape.streams]
            columns = sorted({each.options["timestamp"] for each in streams if "timestamp" in each.options})
            read = self._admin.retentions({each.topic for each in streams if each.topic is not None})
            retention = output_retention(read, event_time=bool(columns))
            if retention == -1 and columns:
                notes.append(kept_for_ever(topic, columns))
        made = make_topic(
            self._admin, topic, kind, options, partitions=self._partitions(definition), retention=retention
        )
        note = None if made else ignored(topic, options.given)
        return notes if made else [note] if note is not None else []

    def _partitions(self, definition: QueryDef) -> int:
        first = next((each for each in definition.sources.values() if each.topic is not None), None)
        return 1 if first is None or first.topic is None else self._admin.partitions(first.topic) or 1

    # INSERT

    def inserted(
        self, statement: InsertQuery, catalog: Catalog, properties: Mapping[str, str], query_id: str
    ) -> tuple[Analysed, QueryDef]:
        place = Place.of(statement.text, statement.target_span[0])
        target = Names(catalog, self._admin).relation(statement.target, place)
        if target.topic is None:
            raise Clash(f"`{target.name}` is kept in files, which INSERT does not write", place)
        check_target(target.topic, place)
        if target.made_by is not None and target.kind == "table":
            raise Clash(
                f"`{target.name}` is written by query {target.made_by}. Other writes are not allowed.",
                place,
            )
        found = self.analyse(statement.query, catalog, properties, None, query_id)
        if target.topic in {each.topic for each in found.sources.values()}:
            raise Clash(f"it reads the topic `{target.topic}`, and would write to it", place)
        self._check_fits(found, target, statement)
        text = str(statement.text[statement.span[0] : statement.span[1]])
        return found, self._definition(query_id, "insert", text, target, found, properties)

    def _check_fits(self, found: Analysed, target: Relation, statement: InsertQuery) -> None:
        for at, name in enumerate(found.columns):
            column = target.column(name)
            place = _item(found.query, at) or Place.of(statement.text, statement.target_span[0])
            if column is None:
                near = did_you_mean(name, (each.name for each in target.columns))
                raise Clash(f"`{target.name}` has no column `{name}`{near}", place)
            wanted = from_words(column.type)
            given = found.rows.schema[name].dataType
            if not fits(given, wanted):
                raise Clash(
                    f"`{name}` is {words(given)} in the query and {column.type} in `{target.name}`: "
                    f"CAST({name} AS {column.type})",
                    place,
                )
        there = {name.casefold() for name in found.columns}
        for key in target.key_columns:
            if key.casefold() not in there:
                raise Clash(f"the key of `{target.name}`, `{key}`, is not selected", _item(found.query, 0))

    # Definitions

    def _definition(
        self,
        query_id: str,
        kind: Any,
        text: str,
        target: Relation,
        found: Analysed,
        properties: Mapping[str, str],
    ) -> QueryDef:
        definition = QueryDef(
            id=query_id,
            kind=kind,
            statement=text,
            target=target,
            sources=found.sources,
            functions=found.functions,
            mode=found.shape.mode,
            uid=uuid.uuid4().hex[:12],
            properties={name: value for name, value in properties.items() if name != RESET},
            starting=found.starting,
            shuffle_partitions=self.shuffle_partitions,
        )
        found_print = fingerprint(definition, found.prepared, found.rows)
        return replace(definition, fingerprint=found_print.to_json())

    def print_of(self, definition: QueryDef) -> FlowPrint | None:
        """The print of an existing query, computed again from its definition: one recorded by an earlier
        Penstock or Spark may have less in it, or differ in form. None if the query can no longer be analysed.

        If a module that its functions use has changed, it is the recorded print: the state is older.
        """
        try:
            if python_functions.changed(definition.functions, definition.fingerprint):
                assert definition.fingerprint is not None
                return FlowPrint.from_json(definition.fingerprint)
            return self._print(definition)
        except SqlError:
            return None

    def _print(self, definition: QueryDef) -> FlowPrint:
        query = query_of(definition)
        how = shape_of(definition, query)
        streaming = definition.mode != "refresh"
        prepared = prepare(
            new_session(
                self.spark,
                definition.properties,
                definition.shuffle_partitions,
                streaming=streaming,
                any_setting=self.settings.python_functions,
            ),
            query,
            definition.sources,
            self.settings,
            functions=definition.functions,
            shape=how if streaming else None,
            properties=definition.properties,
            starting={},
        )
        rows, _ = named(prepared, query)
        return fingerprint(definition, prepared, rows)


def place_of(query: Query, source: Source) -> Place:
    return Place.of(query.text, source.span[0])


def _text(query: Query) -> str:
    return query.text[query.span[0] : query.span[1]]


def _item(query: Query, at: int) -> Place | None:
    """The position of the SELECT item that returns a column, if it can be determined."""
    if any(name == "*" for name, _ in query.first.projections) or at >= len(query.first.projections):
        return None
    return Place.of(query.text, query.first.projections[at][1][0])


def _key_format(found: Analysed, keys: tuple[str, ...]) -> str:
    from pyspark.sql.types import BinaryType

    if len(keys) > 1 or len(found.shape.key) > 1:
        return "json"
    one = len(found.shape.key) == 1 and isinstance(found.rows.schema[found.shape.key[0]].dataType, BinaryType)
    return "bytes" if one else "string"


def check_streaming(
    query: Query, rows: DataFrame, how: Shape, prepared: Prepared, sources: Mapping[str, Relation]
) -> None:
    """Rejects operations that streams do not support, before the query starts."""
    plan, _ = read_plan(prepared.session, rows)
    for node in plan.walk():
        if node.name == "Join" and len([each for each in node.children if each.streaming]) == 2:
            if not query.withins:
                streams = [each for each in query.sources if each.name in how.streams]
                raise Clash(
                    "how far apart in time may joined records be? Say it before ON: WITHIN 10 MINUTES",
                    place_of(query, streams[-1]),
                )
    session: Any = prepared.session
    jvm: Any = session._jvm
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[how.mode]()
    analysed = rows._jdf.queryExecution().analyzed()
    start = Place.of(query.text, query.span[0])
    with spark_errors(prepared.text, lambda offset: start, sources, prepared.session):
        jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(
            analysed, mode
        )


_NOT_OF_THE_QUERY: Mapping[str, str | None] = {"startingOffsets": "earliest", "dead.letter.query": None}
"""Options of sources that say who reads and from where on, with the values that prints have had for them."""


def fingerprint(definition: QueryDef, prepared: Prepared, rows: DataFrame) -> FlowPrint:
    """What decides whether another version of the query can continue from its checkpoint."""
    target = definition.target
    # Rows of a table in files are given by Python code: which table it is says what they are.
    files = sorted((each.name, each.path, each.columns) for each in definition.sources.values() if each.path)
    code = "".join(each.body for each in definition.functions)
    read = read_query(
        prepared.session,
        rows,
        opaque=lambda: f"{files} {code}",
        more={"output mode": definition.mode},
        options=_NOT_OF_THE_QUERY,
    )
    plan, state = read.plan, read.state
    kinds = {"refresh": FlowKind.MATERIALIZED_VIEW}
    kind = kinds.get(definition.mode, FlowKind.STREAMING_TABLE if target.kind == "table" else FlowKind.SINK)
    topics = [
        f"topic {node.source[1].get('subscribe', '')}" for node in plan.walk() if node.source is not None
    ]
    keyed = f" by {', '.join(target.key_columns)}" if target.kind == "table" else ""
    return FlowPrint(
        target=f"{target.topic or target.path}{keyed}",
        kind=str(kind),
        sources=tuple(topics),
        state=(*state, f"{definition.mode} mode") if state else (),
        columns=tuple(f"{each.name} {each.type}" for each in target.columns),
        plan=plan_hash(plan),
        query=read.query,
        gives=read.gives,
        lineage=read.lineage,
        code=hashlib.sha256(code.encode()).hexdigest()[:16] if code else "",
        conf=tuple(sorted(definition.properties.items())),
        functions=python_functions.digests(definition.functions),
    )
