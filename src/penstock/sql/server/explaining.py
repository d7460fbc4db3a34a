"""EXPLAIN: what a statement would do, with Spark's plan. Nothing is started, written or registered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.sql.catalog.catalog import Catalog, QueryDef, Relation, next_query_id
from penstock.sql.continuous import functions as python_functions
from penstock.sql.continuous import replacing
from penstock.sql.continuous.planning import shape
from penstock.sql.continuous.preparing import new_session, prepare
from penstock.sql.errors import Clash, Place
from penstock.sql.language.statements import CreateRelation, Explain, InsertQuery, Query, Select
from penstock.sql.pull import plan as pull
from penstock.sql.results import Rows, rows_of
from penstock.sql.server.showing import Shows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.sql.continuous.define import Maker
    from penstock.sql.continuous.preparing import Analysed

_COLUMNS = (("property", "STRING"), ("value", "STRING"))


def explain(
    statement: Explain, catalog: Catalog, properties: Mapping[str, str], maker: Maker, shows: Shows
) -> Rows:
    inner = statement.statement
    if statement.query_id is not None or inner is None:
        place = Place.of(statement.text, statement.id_span[0])
        query = catalog.query(statement.query_id or "", place)
        details: list[tuple[str, Any]] = [*shows.query(query).items()]
        state = (query.fingerprint or {}).get("state", ())
        details += [("keeps", each) for each in state]
    elif isinstance(inner, Select):
        details = _select(inner, catalog, properties, maker)
    elif isinstance(inner, CreateRelation) and inner.query is not None:
        details = _create(inner, catalog, properties, maker)
    elif isinstance(inner, InsertQuery):
        query_id, _ = next_query_id(catalog, "insert", inner.target)
        found, definition = maker.inserted(inner, catalog, properties, query_id)
        details = _continuous(found, definition)
    else:
        raise Clash("EXPLAIN is for SELECT, CREATE … AS, INSERT … SELECT and the ids of queries")
    return rows_of(_COLUMNS, lines_of(details))


def lines_of(details: Iterable[tuple[str, Any]]) -> list[list[str | None]]:
    """A row for each property, and for each line of a property with several lines, such as a plan."""
    rows: list[list[str | None]] = []
    for name, value in details:
        text = _said(value)
        rows += [[name, line] for line in text.splitlines() or [""]] if text is not None else [[name, None]]
    return rows


def _select(
    statement: Select, catalog: Catalog, properties: Mapping[str, str], maker: Maker
) -> list[tuple[str, Any]]:
    query = statement.query
    sources = maker.sources(query, catalog)
    how = shape(query, sources, None, push=True) if query.emit is not None else None
    session = new_session(
        maker.spark,
        properties,
        maker.shuffle_partitions,
        streaming=how is not None,
        any_setting=maker.settings.python_functions,
    )
    text = query.text[query.span[0] : query.span[1]]
    prepared = prepare(
        session,
        query,
        sources,
        maker.settings,
        functions=python_functions.mentioned(text, catalog.functions),
        known=catalog.function_names(),
        shape=how,
        properties=properties,
        starting={},
    )
    return [
        ("kind", "push" if how is not None else "pull" if _pulls(query, sources) else "batch"),
        *([("mode", how.mode)] if how is not None else []),
        ("reads", [each.name for each in sources.values()]),
        ("Spark's text", prepared.text),
        ("plan", _plan(prepared.rows)),
    ]


def _pulls(query: Query, sources: Mapping[str, Relation]) -> bool:
    """Whether it would be executed from memory."""
    if len(query.sources) != 1 or (relation := sources[query.sources[0].name]).kind != "table":
        return False
    columns = [(column.name, column.type) for column in relation.columns]
    return pull.plan(query, columns, relation.key_columns) is not None


def _create(
    statement: CreateRelation, catalog: Catalog, properties: Mapping[str, str], maker: Maker
) -> list[tuple[str, Any]]:
    kind = "csas" if statement.kind == "stream" else "ctas"
    old = catalog.relation(statement.name)
    there = catalog.queries.get(old.made_by) if old is not None and old.made_by is not None else None
    query_id = there.id if there is not None else next_query_id(catalog, kind, statement.name)[0]
    found, definition, options = maker.created(statement, catalog, properties, query_id)
    details = _continuous(found, definition)
    if there is not None and statement.or_replace:
        replacing.check_format(there, definition, options.place("format"))
        keep = options.given.get("state") == "keep"
        plan: list[tuple[str, Any]]
        change = replacing.plan(there, definition, maker.print_of(there), keep=keep)
        plan = [("action", str(change.action)), *(("reason", each) for each in change.reasons)]
        topic = replacing.appends_again(change, there, definition)
        if topic is not None:
            plan.append(("appends again", topic))
            downstream = [each for each in catalog.downstream(topic) if each != there.id]
            plan += [("downstream", downstream)] if downstream else []
        plan += [("note", each.removeprefix("Note: ")) for each in replacing.notes(change, there, definition)]
        details = [*plan, *details]
    return details


def _continuous(found: Analysed, definition: QueryDef) -> list[tuple[str, Any]]:
    target = definition.target
    return [
        ("query", definition.id),
        ("mode", definition.mode),
        ("reads", [each.name for each in definition.sources.values()]),
        ("writes", target.topic or target.path),
        ("format", target.format),
        ("columns", [f"{each.name} {each.type}" for each in target.columns]),
        ("key", list(target.key_columns) or None),
        ("watermarks", dict(found.shape.watermarks)),
        *(("keeps", each) for each in (definition.fingerprint or {}).get("state", ())),
        ("Spark's text", found.prepared.text),
        ("plan", _plan(found.rows)),
    ]


def _plan(rows: DataFrame) -> str:
    execution: Any = rows._jdf.queryExecution()
    return str(
        execution.optimizedPlan().toString() if not rows.isStreaming else execution.analyzed().toString()
    )


def _said(value: Any) -> str | None:
    if isinstance(value, list):
        return ", ".join(str(each) for each in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {each}" for name, each in value.items()) or None
    return None if value is None else str(value)
