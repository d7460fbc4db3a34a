"""Prepares a query: a separate session in which the relations that it names are views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.sql.catalog.catalog import Function, Relation
from penstock.sql.catalog.relations import OWN_COLUMNS, frame
from penstock.sql.continuous import functions as python_functions
from penstock.sql.continuous.pattern_views import make_view
from penstock.sql.continuous.planning import KEEP, KEY_PREFIX, TIME, Shape
from penstock.sql.continuous.sender_code import OPTION, check_text
from penstock.sql.continuous.spark_errors import translated
from penstock.sql.continuous.spark_queries import analysed, confine
from penstock.sql.errors import Clash
from penstock.sql.language.properties import OF_SPARK, check_settings
from penstock.sql.language.spark_text import pattern_view, to_spark
from penstock.sql.language.statements import Query
from penstock.sql.settings import EngineSettings
from penstock.sqltext.identifiers import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Prepared:
    """The query as analysed by Spark."""

    session: SparkSession
    rows: DataFrame
    """With the columns that were added (`planning`), and those with `__` that a star has brought."""
    places: tuple[int, ...]
    """Of the columns that the query is about, in their order."""
    text: str
    """As Spark has it."""

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.rows.columns[at] for at in self.places)


@dataclass(frozen=True)
class Analysed:
    """A continuous query that Spark has analysed: it can be checked, and then started once."""

    query: Query
    sources: Mapping[str, Relation]
    shape: Shape
    prepared: Prepared
    rows: DataFrame
    """What the query is about, and what was added (`writing.named`)."""
    columns: tuple[str, ...]
    functions: tuple[Function, ...]
    starting: Mapping[str, str]
    versions: Sequence[int]
    """Of the tables in files that it reads, from before it was analysed."""


def new_session(
    spark: SparkSession,
    properties: Mapping[str, str],
    shuffle_partitions: int,
    *,
    streaming: bool,
    any_setting: bool,
) -> SparkSession:
    """A session for one query; `properties` that begin with `spark.` are its settings.

    Some of them make Spark load classes and open connections, so they are equivalent to code: without
    `any_setting` all that are not known to be harmless raise NotAllowed.
    """
    if not any_setting:
        check_settings(
            properties, f"this server takes it only if it is started with `penstock sql serve {OPTION}`"
        )
    session = spark.newSession()
    activate(session)
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        # Values that cannot be cast become null: one bad record must not stop a continuous query.
        "spark.sql.ansi.enabled": "false",
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.streaming.stopTimeout": "60s",
        # How long a query without new records waits before it asks again; each query has its own process for
        # that.
        "spark.sql.streaming.pollingDelay": "100ms",
        # A micro-batch that runs again must be split into the same tasks.
        "spark.sql.adaptive.enabled": str(not streaming).lower(),
    }
    if streaming:
        chosen |= {
            "spark.sql.streaming.stateStore.providerClass": (
                "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
            ),
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        }
    chosen |= {name: value for name, value in properties.items() if name.startswith(OF_SPARK)}
    from pyspark.errors import PySparkException

    for name, value in chosen.items():
        try:
            session.conf.set(name, value)
        except PySparkException as error:
            from penstock.pipelines.failures import cause

            raise Clash(f"SET '{name}' = '{value}': {cause(error)}") from error
    confine(spark, session)
    return session


def activate(session: SparkSession) -> None:
    """Spark looks data sources up in the thread's session, and a thread of ours may have none yet."""
    jvm: Any = session._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)


def prepare(
    session: SparkSession,
    query: Query,
    sources: Mapping[str, Relation],
    settings: EngineSettings,
    *,
    functions: Iterable[Function] = (),
    known: Iterable[str] = (),
    shape: Shape | None = None,
    properties: Mapping[str, str],
    starting: Mapping[str, str],
    reader: str | None = None,
    commits: bool = True,
) -> Prepared:
    """Analyses a query; SqlError at the place in its text that is wrong. Without a shape it is a batch.

    `functions` are those that it names; `known` are the names of all, one of which may have been meant.
    `reader` is the id that its dead letters have. Without `commits` it has no consumer group.
    """
    check_text(query.text, *query.span)
    python_functions.register(session, functions, allowed=settings.python_functions)
    headers = "__headers" in query.columns
    for name, relation in sources.items():
        streaming = shape is not None and name in shape.streams
        view = frame(
            session,
            relation,
            settings,
            streaming=streaming,
            properties=properties,
            starting=starting.get(relation.topic or "", "earliest") if streaming else "earliest",
            headers=headers and relation.topic is not None,
            watermark=shape.watermarks.get(name) if shape is not None else None,
            reader=reader,
            commits=commits,
        )
        view.createOrReplaceTempView(quoted(name))
        for number, pattern in enumerate(query.patterns):
            if pattern.source == name:
                make_view(query, number, view, relation)
    rewritten = to_spark(
        query,
        window_columns=shape is not None and shape.window_columns,
        extra=shape.extra if shape is not None else (),
        drop_having=shape.drop_having if shape is not None else False,
    )
    with spark_errors(rewritten.text, rewritten.place, sources, session, known):
        matched = (pattern_view(number) for number in range(len(query.patterns)))
        rows = analysed(session, rewritten.text, {*sources, *matched})
        found = tuple(rows.columns)
    return Prepared(session, rows, visible(query, found), rewritten.text)


class spark_errors:
    """Converts Spark's errors to SqlError."""

    def __init__(
        self,
        text: str,
        place: Callable[[int], Any],
        sources: Mapping[str, Relation],
        session: SparkSession,
        functions: Iterable[str] = (),
    ) -> None:
        self._text = text
        self._place = place
        self._sources = sources
        self._session = session
        self._functions = list(functions)

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        if isinstance(error, PySparkException | Py4JError):
            columns = [each.name for relation in self._sources.values() for each in relation.columns]
            raise translated(
                error, self._text, self._place, [*columns, *OWN_COLUMNS], self._known_functions
            ) from error

    def _known_functions(self) -> list[str]:
        try:
            found = self._session.sql("SHOW FUNCTIONS").collect()
        except Exception:  # noqa: BLE001 - only a hint is lost
            return self._functions
        return [*self._functions, *(str(row[0]) for row in found)]


def visible(query: Query, columns: Sequence[str]) -> tuple[int, ...]:
    """The places of the columns that the query is about.

    Without what was added, and without the `__` columns that a star has brought: only one that is an item of
    the SELECT list itself is shown. It may be there twice then; an item behind the star is the last of them.
    """
    items = [(name or "").casefold() for name, _ in query.first.projections]
    star = items.index("*") if "*" in items else None
    shown = []
    for at, name in enumerate(columns):
        if name in (KEEP, TIME) or name.startswith(KEY_PREFIX):
            continue
        if name in OWN_COLUMNS and star is not None:
            if name not in items:
                continue
            behind = items.index(name) > star
            others = columns[at + 1 :] if behind else columns[:at]
            if name in others:
                continue
        shown.append(at)
    return tuple(shown)
