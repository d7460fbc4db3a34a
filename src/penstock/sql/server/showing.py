"""SHOW, DESCRIBE and EXPLAIN: the objects and their state. Read-only."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from penstock.spark.progress import QueryProgress
from penstock.sql.catalog.catalog import Catalog, Function, QueryDef, Relation
from penstock.sql.catalog.cluster_admin import VALUE, ClusterAdmin
from penstock.sql.catalog.naming import Names
from penstock.sql.continuous.queries import DISCONNECTED, QuerySupervisor, Status
from penstock.sql.continuous.running import group_of
from penstock.sql.errors import Place, Unknown, did_you_mean
from penstock.sql.language.statements import Describe, Show
from penstock.sql.results import ColumnType, Rows, rows_of

_TEXT: tuple[ColumnType, ...] = (("name", "STRING"),)
_TWO: tuple[ColumnType, ...] = (("property", "STRING"), ("value", "STRING"))


class Shows:
    """Reads the catalog, the cluster and the running queries."""

    def __init__(
        self,
        admin: ClusterAdmin,
        queries: QuerySupervisor,
        progress: Mapping[str, QueryProgress],
        away: Callable[[Collection[str]], str | None],
    ) -> None:
        self._admin = admin
        self._queries = queries
        self._progress = progress
        self._away = away
        """Why the cluster, or one of these topics, does not answer."""

    def show(self, statement: Show, catalog: Catalog, visible: frozenset[str] | None = None) -> Rows:
        """`visible` are the topics that may be shown; None: all."""
        if statement.what == "topics":
            return self._topics(catalog, visible)
        if statement.what in ("streams", "tables"):
            return self._relations(statement, catalog, visible)
        if statement.what == "queries":
            return self._all_queries(catalog)
        columns = (
            ("name", "STRING"),
            ("parameters", "STRING"),
            ("returns", "STRING"),
            ("language", "STRING"),
        )
        rows = [[each.name, _parameters(each), each.returns, "PYTHON"] for each in catalog.functions.values()]
        return rows_of(columns, sorted(rows))

    def _topics(self, catalog: Catalog, visible: frozenset[str] | None) -> Rows:
        subjects = set(self._admin.subjects())
        readers: dict[str, list[str]] = {}
        for relation in catalog.relations.values():
            if relation.topic is not None:
                readers.setdefault(relation.topic, []).append(relation.name)
        rows = []
        for topic in sorted(self._admin.topics() if visible is None else visible):
            if topic.startswith("__"):
                continue
            known = ", ".join(sorted(readers.get(topic, ())))
            schema = self._admin.schema(f"{topic}{VALUE}") if f"{topic}{VALUE}" in subjects else None
            has = None if schema is None else schema.schema_type
            rows.append([topic, self._admin.partitions(topic), has, known or None])
        columns = (("topic", "STRING"), ("partitions", "INT"), ("schema", "STRING"), ("relations", "STRING"))
        return rows_of(columns, rows)

    def _relations(self, statement: Show, catalog: Catalog, visible: frozenset[str] | None) -> Rows:
        kind = statement.what.removesuffix("s")
        found = [each for each in catalog.relations.values() if each.kind == kind]
        rows = [[each.name, each.topic or each.path, each.format, each.made_by] for each in found]
        if kind == "stream":
            names = Names(catalog, self._admin)
            rows += [[topic, topic, "by its schema", None] for topic in names.implicit_topics(visible)]
        where = "topic" if kind == "stream" else "kept_in"
        columns = (("name", "STRING"), (where, "STRING"), ("format", "STRING"), ("query", "STRING"))
        return rows_of(columns, sorted(rows, key=lambda row: str(row[0])))

    def _all_queries(self, catalog: Catalog) -> Rows:
        rows = []
        for each in sorted(catalog.queries.values(), key=lambda one: one.id):
            status = self._status(each)
            reads = ", ".join(sorted({source.name for source in each.sources.values()}))
            lag = self._lag(each, status)
            rows.append([each.id, status.state, reads, each.target.name, lag, status.error])
        columns = (
            ("id", "STRING"), ("state", "STRING"), ("reads", "STRING"), ("writes", "STRING"),
            ("lag", "BIGINT"), ("error", "STRING"),
        )  # fmt: skip
        return rows_of(columns, rows)

    def _status(self, query: QueryDef) -> Status:
        """The real state: Spark reports a query that waits for a broker as running."""
        status = self._queries.status(query)
        why = self._away(query.topics) if query.state == "RUNNING" else None
        return status if why is None else Status(DISCONNECTED, why, status.failures)

    def _lag(self, query: QueryDef, status: Status) -> int | None:
        progress = self._progress.get(query.id)
        return None if progress is None or status.state == DISCONNECTED else progress.lag

    # DESCRIBE

    def describe(self, statement: Describe, catalog: Catalog) -> Rows:
        place = Place.of(statement.text, statement.name_span[0])
        if statement.function:
            return self._function(statement.name, catalog, place)
        query = catalog.queries.get(statement.name) or catalog.queries.get(statement.name.casefold())
        if query is not None:
            details = self.query(query)
            offsets = details.pop("offsets", [])
            rows = [[name, _said(value)] for name, value in details.items()]
            rows += [[f"offsets of {each['source']}", _offsets_said(each)] for each in offsets]
            return rows_of(_TWO, rows)
        names = Names(catalog, self._admin)
        relation = names.find(statement.name, place)
        if relation is None:
            known = [*names.known(), *catalog.queries]
            near = did_you_mean(statement.name, known)
            raise Unknown(f"no stream, table, topic or query `{statement.name}`{near}", place)
        if statement.extended:
            return rows_of(_TWO, [[name, _said(value)] for name, value in self._extended(relation, catalog)])
        columns = (("name", "STRING"), ("type", "STRING"), ("key", "STRING"))
        keys = {each.casefold() for each in relation.key_columns}
        mark = "PRIMARY KEY" if relation.kind == "table" else "KEY"
        return rows_of(
            columns,
            [
                [each.name, each.type, mark if each.key or each.name.casefold() in keys else ""]
                for each in relation.columns
            ],
        )

    def _function(self, name: str, catalog: Catalog, place: Place) -> Rows:
        function = catalog.function(name)
        if function is None:
            known = [each.name for each in catalog.functions.values()]
            raise Unknown(f"no function `{name}`{did_you_mean(name, known)}", place)
        return rows_of(
            _TWO,
            [
                ["name", function.name],
                ["parameters", _parameters(function)],
                ["returns", function.returns],
                ["language", "PYTHON"],
                ["body", function.body],
            ],
        )

    def _extended(self, relation: Relation, catalog: Catalog) -> list[tuple[str, Any]]:
        details: list[tuple[str, Any]] = [
            ("name", relation.name),
            ("kind", relation.kind),
            ("columns", ", ".join(f"{each.name} {each.type}" for each in relation.columns)),
            ("key", ", ".join(relation.key_columns) or None),
        ]
        if relation.topic is not None:
            ends = self._admin.offsets([relation.topic])
            begins = self._admin.offsets([relation.topic], first=True)
            details += [
                ("topic", relation.topic),
                ("partitions", len(ends)),
                ("offsets", sum(ends.values()) - sum(begins.values())),
                ("format", relation.format),
                ("key format", relation.key_format),
            ]
        else:
            details += [("path", relation.path), ("format", relation.format)]
        details += [
            (f"schema of the {part}", f"version {number}") for part, number in relation.schemas.items()
        ]
        details += sorted(relation.options.items())
        details += [
            ("read by", ", ".join(catalog.readers(relation.name)) or None),
            ("written by", ", ".join(catalog.writers(relation.name)) or None),
            ("statement", relation.statement or None),
        ]
        return details

    def query(self, query: QueryDef) -> dict[str, Any]:
        """Everything about a query, for people and programs."""
        status = self._status(query)
        progress = self._progress.get(query.id)
        details: dict[str, Any] = {
            "id": query.id,
            "state": status.state,
            "error": status.error,
            "failures": status.failures,
            "statement": query.statement,
            "reads": sorted({each.name for each in query.sources.values()}),
            "writes": query.target.name,
            "group": None if query.mode == "refresh" else group_of(query),
            "mode": query.mode,
            "generation": query.generation,
            "functions": sorted(each.name for each in query.functions),
            "properties": dict(query.properties),
        }
        if progress is not None:
            details |= {
                "batch": progress.batch_id,
                "at": progress.timestamp,
                "input rows per second": round(progress.input_rows_per_second, 1),
                "rows per second": round(progress.processed_rows_per_second, 1),
                "seconds of a batch": progress.batch_seconds,
                "lag": self._lag(query, status),
                "watermark": progress.watermark,
                "rows of state": progress.state_rows,
                "bytes of state": progress.state_bytes,
                "late rows": progress.late_rows,
                "offsets": [
                    {"source": each.description, "end": each.end_offset, "latest": each.latest_offset}
                    for each in progress.sources
                ],
            }
        return details

    def relation(self, relation: Relation) -> dict[str, Any]:
        return {
            "name": relation.name,
            "kind": relation.kind,
            "topic": relation.topic,
            "path": relation.path,
            "format": relation.format,
            "key": list(relation.key_columns),
            "columns": [[each.name, each.type] for each in relation.columns],
            "query": relation.made_by,
            "implicit": relation.implicit,
        }


def _parameters(function: Function) -> str:
    return ", ".join(f"{each.name} {each.type}" for each in function.parameters)


def _offsets_said(source: Mapping[str, Any]) -> str:
    end, latest = (json.dumps(source[name], ensure_ascii=False) for name in ("end", "latest"))
    return f"{end} of {latest}"


def _said(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, list):
        return ", ".join(str(each) for each in value) or None
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={each}" for name, each in value.items()) or None
    return str(value)
