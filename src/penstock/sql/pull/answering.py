"""Executes pull queries from memory; Spark computes anything that is not plain over the few rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.sql.catalog.catalog import Relation
from penstock.sql.language.statements import Query
from penstock.sql.pull.materialized import Row
from penstock.sql.pull.plan import plan
from penstock.sql.pull.tables import FollowedTables, NotInMemory
from penstock.sql.results import Rows, json_ready

Compute = Callable[[Relation, Sequence[Row], Query], Rows]
"""The query over these rows in place of the relation's: dictionaries by column, as Arrow gives values."""


def answer(
    query: Query, relation: Relation, tables: FollowedTables, compute: Compute, *, timeout: float = 30.0
) -> Rows | None:
    """None if it is not a pull query, or the table cannot be kept in memory."""
    if relation.kind != "table":
        return None
    columns = [(column.name, column.type) for column in relation.columns]
    pull = plan(query, columns, relation.key_columns)
    if pull is None:
        return None
    try:
        found = tables.lookup(relation, pull, timeout)
    except NotInMemory:
        return None
    if not pull.plain:
        return compute(relation, found, query)
    types = dict(columns)
    chosen = [column for _, column in pull.projections]
    rows = [[json_ready(row[column]) for column in chosen] for row in found]
    return Rows(tuple((name, types[column]) for name, column in pull.projections), iter(rows))
