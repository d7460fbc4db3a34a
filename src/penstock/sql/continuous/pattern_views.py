"""The matches of a query's MATCH_RECOGNIZE, as views that Spark finds under their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.patterns.clauses import Clauses
from penstock.spark.patterns.errors import BadPattern, Fragment
from penstock.spark.patterns.frames import find_matches
from penstock.sql.catalog.catalog import Relation
from penstock.sql.errors import Clash, Place, Unknown, did_you_mean
from penstock.sql.language.spark_text import TIME_COLUMN, pattern_view
from penstock.sql.language.statements import Pattern, Query, Span
from penstock.sqltext.identifiers import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_POSITION = ("__partition", "__offset")
"""Rows of one time are in the order of their partition."""


def make_view(query: Query, number: int, rows: DataFrame, relation: Relation) -> None:
    """The view of a query's MATCH_RECOGNIZE, over the rows of the relation that it reads."""
    pattern = query.patterns[number]
    partition_by = [_column(query, rows, relation, each) for each in pattern.partition_by]
    order_by = [_column(query, rows, relation, each) for each in pattern.order_by]
    order_by = _in_time(query, pattern, rows, relation, order_by)
    measures = tuple((name, _fragment(query, span)) for name, span in pattern.measures)
    if TIME_COLUMN in rows.columns and not pattern.all_rows:
        # The time of a match is that of its last row.
        measures = (*measures, (TIME_COLUMN, Fragment(f"LAST({quoted(TIME_COLUMN)})", pattern.pattern[0])))
    clauses = Clauses(
        pattern=_fragment(query, pattern.pattern),
        define=tuple((name, _fragment(query, span)) for name, span in pattern.define),
        measures=measures,
        subsets=pattern.subsets,
        within=pattern.within,
        skip=pattern.skip,
        skip_to=_fragment(query, pattern.skip_to) if pattern.skip_to is not None else None,
        all_rows=pattern.all_rows,
    )
    try:
        found = find_matches(rows, clauses, partition_by, order_by)
    except BadPattern as error:
        kind = Unknown if error.reason.startswith("no column") else Clash
        raise kind(error.reason, Place.of(query.text, error.offset)) from error
    found.createOrReplaceTempView(pattern_view(number))


def _fragment(query: Query, span: Span) -> Fragment:
    return Fragment(str(query.text[span[0] : span[1]]), span[0])


def _column(query: Query, rows: DataFrame, relation: Relation, named: tuple[str, Span]) -> str:
    name, span = named
    plain = name.rpartition(".")[2] if name.casefold().startswith(f"{relation.name.casefold()}.") else name
    for each in rows.columns:
        if each.casefold() == plain.casefold():
            return each
    near = did_you_mean(name, rows.columns)
    raise Unknown(f"no column `{name}`{near}", Place.of(query.text, span[0]))


def _in_time(
    query: Query, pattern: Pattern, rows: DataFrame, relation: Relation, order_by: list[str]
) -> list[str]:
    """The order of rows, by the event time first, which is what Spark's watermark is about."""
    place = Place.of(query.text, pattern.order_by[0][1][0])
    if TIME_COLUMN not in rows.columns:
        if rows.schema[order_by[0]].dataType.typeName() != "timestamp":
            raise Clash(
                f"ORDER BY must start with the event time; `{order_by[0]}` is not a TIMESTAMP.", place
            )
        return order_by
    time = relation.options.get("timestamp", TIME_COLUMN)
    if order_by[0].casefold() not in (time.casefold(), TIME_COLUMN):
        raise Clash(f"ORDER BY must start with the event time of `{relation.name}`, `{time}`.", place)
    return [TIME_COLUMN, *order_by[1:], *(each for each in _POSITION if each in rows.columns)]
