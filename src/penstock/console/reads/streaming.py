"""Streaming queries wherever they run: those of a SQL server, flows of pipelines, and others.

Each query of Spark that Penstock watches reports its progress to the topic `__penstock_queries` of its
cluster. So queries on other machines are seen, too. Those of the SQL server and of local pipelines can be
started and stopped.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from penstock.admin.cluster import Cluster, kafka_exception
from penstock.admin.failure import CommandFailed
from penstock.console.reads.pipelines import Pipeline, Pipelines
from penstock.console.reads.repeated import Repeated
from penstock.console.reads.sql import SqlServer
from penstock.errors import PenstockError
from penstock.spark.progress import TOPIC

log = logging.getLogger(__name__)

SQL = "SQL"
_POINTS = 300
_ALIVE_SECONDS = 60.0
"""A query of which only progress is known counts as running for so long after its last progress."""
_MOST_RECORDS = 20_000
"""Records of progress that one sample reads; the next one goes on."""


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    name: str
    end: str
    latest: str


@dataclass(frozen=True, slots=True)
class StreamingQuery:
    """One query and its newest micro-batch. `owner` is SQL, or the pipeline's name."""

    owner: str
    name: str
    state: str
    error: str | None = None
    steered: bool = True
    """Whether the console reaches what runs it."""
    statement: str = ""
    reads: tuple[str, ...] = ()
    """Topics."""
    writes: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    """Tables that it reads: of the pipeline, or in files."""
    target: str = ""
    """Its table or sink where that is no topic."""
    groups: tuple[str, ...] = ()
    restarts: int = 0
    input_rate: float | None = None
    rate: float | None = None
    batch_seconds: float | None = None
    batch: int | None = None
    watermark: str | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    late_rows: int | None = None
    lag: int | None = None
    at: str | None = None
    """Of the last progress."""
    offsets: tuple[SourceOffsets, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return (self.owner, self.name)

    @property
    def failed(self) -> bool:
        return self.state.upper() in ("FAILED", "DIED") or (
            self.error is not None and self.state.upper() != "RUNNING"
        )


@dataclass(frozen=True, slots=True)
class Point:
    at: float
    input_rate: float | None
    rate: float | None
    batch_seconds: float | None
    lag: int | None
    state_rows: int | None


@dataclass(frozen=True, slots=True)
class Streams:
    """All queries at one moment, and what could not be asked."""

    at: float
    queries: dict[tuple[str, str], StreamingQuery] = field(default_factory=dict)
    pipelines: tuple[Pipeline, ...] = ()
    relations: Mapping[str, Any] = field(default_factory=dict)
    """Streams and tables of SQL, as its server describes them."""
    problems: tuple[str, ...] = ()


def of_sql(found: Mapping[str, Any], relations: Mapping[str, Mapping[str, Any]]) -> StreamingQuery:
    """A query as the SQL server describes it; `relations` by name."""
    reads, tables = _places(found.get("reads") or (), relations)
    target = str(found.get("writes") or "")
    written = relations.get(target, {})
    topic = written.get("topic") if written else target
    group = found.get("group") or f"penstock-{found['id']}"
    return StreamingQuery(
        SQL,
        str(found["id"]),
        str(found.get("state") or "UNKNOWN"),
        found.get("error"),
        True,
        str(found.get("statement") or ""),
        reads,
        (str(topic),) if topic else (),
        tables,
        str(written.get("path") or target) if not topic else "",
        (str(group),),
        int(found.get("failures") or 0),
        found.get("input rows per second"),
        found.get("rows per second"),
        found.get("seconds of a batch"),
        found.get("batch"),
        found.get("watermark"),
        found.get("rows of state"),
        found.get("bytes of state"),
        found.get("late rows"),
        found.get("lag"),
        found.get("at"),
        tuple(
            _offsets(each.get("source"), each.get("end"), each.get("latest"))
            for each in found.get("offsets") or ()
        ),
    )


def _places(
    names: Any, relations: Mapping[str, Mapping[str, Any]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The topics, and the tables in files, that these streams and tables are."""
    topics, tables = [], []
    for name in names:
        relation = relations.get(name)
        if relation is None:
            topics.append(str(name))
        elif relation.get("topic"):
            topics.append(str(relation["topic"]))
        else:
            tables.append(str(relation.get("path") or name))
    return tuple(topics), tuple(tables)


def of_flow(pipeline: Pipeline, flow: Mapping[str, Any]) -> StreamingQuery:
    """A flow of a local pipeline."""
    progress = flow.get("progress") or {}
    read = list(dict.fromkeys([*_topics(progress), *(flow.get("reads") or ())]))
    written = tuple(flow.get("writes") or ())
    query = StreamingQuery(
        pipeline.name,
        str(flow["name"]),
        str(flow.get("state") or pipeline.state),
        flow.get("error"),
        True,
        "",
        tuple(read),
        written,
        tuple(flow.get("tables") or ()),
        "" if written else str(flow.get("path") or flow.get("target") or ""),
        tuple(flow.get("groups") or ()) or (f"penstock-{pipeline.name}.{flow['name']}",),
        int(flow.get("restarts") or 0),
    )
    return _with_progress(query, progress)


def of_progress(record: Mapping[str, Any], now: float) -> StreamingQuery:
    """A query of which only the topic of progress tells."""
    owner = str(record.get("pipeline") or "Spark")
    name = str(record.get("name") or record.get("id"))
    query = StreamingQuery(
        SQL if owner == "sql" else owner,
        name.removeprefix(f"{owner}."),
        "running" if now - _seconds(record.get("timestamp")) < _ALIVE_SECONDS else "no progress",
        steered=False,
        reads=tuple(_topics(record)),
        groups=(f"penstock-{name}",),
    )
    return _with_progress(query, record)


def _with_progress(query: StreamingQuery, progress: Mapping[str, Any]) -> StreamingQuery:
    if not progress:
        return query
    return replace(
        query,
        input_rate=progress.get("input_rows_per_second"),
        rate=progress.get("processed_rows_per_second"),
        batch_seconds=progress.get("batch_seconds"),
        batch=progress.get("batch_id"),
        watermark=progress.get("watermark"),
        state_rows=progress.get("state_rows"),
        state_bytes=progress.get("state_bytes"),
        late_rows=progress.get("late_rows"),
        lag=progress.get("lag"),
        at=progress.get("timestamp"),
        offsets=tuple(
            _offsets(each.get("description"), each.get("end_offset"), each.get("latest_offset"))
            for each in progress.get("sources") or ()
        ),
    )


def _topics(progress: Mapping[str, Any]) -> Iterator[str]:
    for source in progress.get("sources") or ():
        end = source.get("end_offset")
        if isinstance(end, dict) and all(isinstance(each, dict) for each in end.values()):
            yield from end


def _offsets(name: Any, end: Any, latest: Any) -> SourceOffsets:
    def said(value: Any) -> str:
        return "-" if value is None else json.dumps(value, ensure_ascii=False)

    return SourceOffsets(str(name or ""), said(end), said(latest))


def _seconds(timestamp: Any) -> float:
    try:
        return datetime.fromisoformat(str(timestamp).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


class ProgressTopic:
    """The newest progress of each query, from the topic. For one thread."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._consumer: Any = None
        self._latest: dict[str, dict[str, Any]] = {}

    def latest(self) -> dict[str, dict[str, Any]]:
        """By query; empty where no query has ever reported."""
        from confluent_kafka import KafkaError, TopicPartition

        if self._consumer is None:
            info = self._cluster.topics().get(TOPIC)
            if info is None:
                return {}
            consumer = self._cluster.consumer({"auto.offset.reset": "earliest", "fetch.wait.max.ms": 50})
            # Compacted: from the beginning it is little.
            consumer.assign([TopicPartition(TOPIC, each.index, 0) for each in info.partitions])
            self._consumer = consumer
        read = 0
        while read < _MOST_RECORDS:
            # The first answer takes a connection.
            messages = self._consumer.consume(500, 0.2 if self._latest else 1.0)
            if not messages:
                break
            for message in messages:
                read += 1
                error = message.error()
                if error is None:
                    self._take(message.key(), message.value())
                elif error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    self.close()
                    return {}
        return dict(self._latest)

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        name = (key or b"").decode(errors="replace")
        if value is None:
            self._latest.pop(name, None)
            return
        try:
            found = json.loads(value)
        except ValueError:
            return
        if isinstance(found, dict):
            self._latest[name] = found

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._latest.clear()
        if consumer is not None:
            consumer.close()


class StreamSampler(Repeated[Streams]):
    """Samples of all streaming queries, with the curves of each."""

    def __init__(
        self,
        cluster: Cluster,
        server: SqlServer | None,
        pipelines: Pipelines | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(clock)
        self._cluster = cluster
        self._own = threading.local()  # a thread may end while the next one begins
        self._server = server
        self._pipelines = pipelines
        self.points: dict[tuple[str, str], deque[Point]] = {}

    def take(self, now: float) -> Streams:
        problems: list[str] = []
        queries: dict[tuple[str, str], StreamingQuery] = {}
        relations: dict[str, Any] = {}
        pipelines: tuple[Pipeline, ...] = ()

        def attempt(read: Callable[[], None]) -> None:
            try:
                read()
            except (CommandFailed, PenstockError, kafka_exception()) as error:
                problems.append(getattr(error, "message", None) or str(error))

        def of_topic() -> None:
            topic = getattr(self._own, "topic", None)
            if topic is None:
                topic = self._own.topic = ProgressTopic(self._cluster)
            for record in topic.latest().values():
                query = of_progress(record, now)
                queries[query.key] = query

        def of_server() -> None:
            nonlocal relations
            assert self._server is not None
            relations = self._server.relations()
            by_name = {str(each["name"]): each for each in relations.get("relations", ())}
            found = [of_sql(each, by_name) for each in self._server.queries()]
            for key in [key for key in queries if key[0] == SQL]:
                del queries[key]  # the server knows better, also that one has ended
            queries.update((each.key, each) for each in found)

        def of_pipelines() -> None:
            nonlocal pipelines
            assert self._pipelines is not None
            pipelines = tuple(self._pipelines.found())
            for pipeline in pipelines:
                for key in [key for key in queries if key[0] == pipeline.name]:
                    del queries[key]
                queries.update((each.key, each) for each in (of_flow(pipeline, f) for f in pipeline.flows))

        attempt(of_topic)
        if self._server is not None:
            attempt(of_server)
        if self._pipelines is not None:
            attempt(of_pipelines)
        self._remember(queries, now)
        return Streams(now, queries, pipelines, relations, tuple(problems))

    def rest(self) -> None:
        topic = getattr(self._own, "topic", None)
        if topic is not None:
            topic.close()  # else it would go on fetching

    def _remember(self, queries: Mapping[tuple[str, str], StreamingQuery], now: float) -> None:
        points = {key: self.points.get(key) or deque(maxlen=_POINTS) for key in queries}
        for key, query in queries.items():
            if query.state.upper() == "RUNNING":
                points[key].append(
                    Point(now, query.input_rate, query.rate, query.batch_seconds, query.lag, query.state_rows)
                )
        self.points = points
