"""Patterns over several records, as SQL's MATCH_RECOGNIZE finds them, in a stream or in a batch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.spark.errors import BadOption

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SKIPS = {"past last row": "past last row", "to next row": "next row"}
_UNITS = {"millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000,
          "day": 86_400_000_000, "week": 604_800_000_000}  # fmt: skip
_DELAY = "spark.watermarkDelayMs"


def match_recognize(
    records: DataFrame,
    *,
    partition_by: str | Sequence[str] = (),
    order_by: str | Sequence[str],
    pattern: str,
    define: Mapping[str, str],
    measures: Mapping[str, str],
    within: str | None = None,
    after_match: str = "past last row",
    all_rows: bool = False,
    subset: Mapping[str, Sequence[str]] = {},
) -> DataFrame:
    """The matches of `pattern`, as one row each: the columns of `partition_by`, and the measures.

    Clauses are texts as in SQL: `pattern="FAIL{3,} OK"`, `define={"FAIL": "NOT ok"}`,
    `measures={"failures": "COUNT(FAIL.*)"}`. Records are matched in the order of `order_by`, whose first
    column is the event time with a watermark: they wait until the watermark has passed them, and later ones
    are dropped. `within` is the longest time that a match may take, such as "1 hour"; a stream must have one.

    after_match   "past last row", "to next row", "to first A" or "to last A"
    all_rows      a row for each record of a match, with all its columns, in place of one for the match
    subset        names for several variables together
    """
    from penstock.spark.patterns.clauses import Clauses
    from penstock.spark.patterns.errors import Fragment
    from penstock.spark.patterns.frames import find_matches

    keys = [partition_by] if isinstance(partition_by, str) else list(partition_by)
    orders = [order_by] if isinstance(order_by, str) else list(order_by)
    if not orders:
        raise BadOption("match_recognize: order_by needs a column, the event time")
    for name in (*keys, *orders):
        if name not in records.columns:
            raise BadOption(f"match_recognize: there is no column {name} among {', '.join(records.columns)}")
    _check_time(records, orders[0], within)
    orders += [name for name in ("partition", "offset") if name in records.columns and name not in orders]
    skip, target = _skip(after_match)
    clauses = Clauses(
        Fragment(pattern),
        tuple((name, Fragment(text)) for name, text in define.items()),
        tuple((name, Fragment(text)) for name, text in measures.items()),
        tuple((name, tuple(each)) for name, each in subset.items()),
        None if within is None else _microseconds(within),
        skip,
        None if target is None else Fragment(target),
        all_rows,
    )
    return find_matches(records, clauses, keys, orders)


def _check_time(records: DataFrame, name: str, within: str | None) -> None:
    field = records.schema[name]
    if field.dataType.typeName() not in ("timestamp", "timestamp_ntz"):
        raise BadOption(f"match_recognize: {name} is {field.dataType.simpleString()}, and not a timestamp")
    if not records.isStreaming:
        return
    if _DELAY not in (field.metadata or {}):
        raise BadOption(
            f"match_recognize: {name} has no watermark: records.withWatermark('{name}', '10 seconds')"
        )
    if within is None:
        raise BadOption(
            "match_recognize: without within='1 hour' or the like, a stream's state grows forever"
        )


def _microseconds(within: str) -> int:
    found = re.fullmatch(r"\s*(\d{1,9})\s+([a-z]+?)s?\s*", within.lower())
    if found is None or found[2] not in _UNITS:
        raise BadOption(f"match_recognize: within={within!r} is not a time such as '10 minutes'")
    return int(found[1]) * _UNITS[found[2]]


def _skip(after_match: str) -> tuple[str, str | None]:
    text = " ".join(after_match.split()).removeprefix("skip ")
    if text.lower() in _SKIPS:
        return _SKIPS[text.lower()], None
    found = re.fullmatch(r"to (first|last) (\w+)", text, re.IGNORECASE)
    if found is None:
        known = "'past last row', 'to next row', 'to first A' or 'to last A'"
        raise BadOption(f"match_recognize: after_match={after_match!r} is not {known}")
    return found[1].lower(), found[2]
