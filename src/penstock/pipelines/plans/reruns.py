"""Whether a repeated batch of a query has the same rows, according to its plan, and so what the sink can
compare (`rerunCheck`).

Spark passes rows to an aggregation in any order. Counts, sums of integers and maxima do not depend on it;
sums of floating-point numbers differ in their last digits, and `collect_list` or `max_by` may differ
completely.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WHATEVER_THE_ORDER = frozenset((
    "Count", "Min", "Max", "BitAndAgg", "BitOrAgg", "BitXorAgg", "BoolAnd", "BoolOr", "CountIf",
    "HyperLogLogPlusPlus",
))  # fmt: skip
_SUMS = frozenset(("Sum", "Average"))
_ROW_BY_ROW = frozenset((
    "Project", "Filter", "SubqueryAlias", "View", "EventTimeWatermark", "UpdateEventTimeWatermarkColumn",
    "Generate", "Expand", "Union", "Join", "AsOfJoin", "WithCTE", "CTERelationDef", "CTERelationRef",
    "UnresolvedHint", "ResolvedHint", "MapInPandas", "PythonMapInArrow", "MapInArrow", "SerializeFromObject",
    "DeserializeToObject", "MapElements", "MapPartitions", "TypedFilter", "ArrowEvalPython",
    "BatchEvalPython", "Distinct", "Repartition", "RepartitionByExpression", "Sort", "Aggregate",
))  # fmt: skip
"""Operators whose rows do not depend on the order in which theirs come. Of an aggregate its functions say."""


def rerun_check(frame: DataFrame) -> Literal["on", "keys", "off"]:
    """`keys` if values may differ, or if that is unknown; `off` if rows may differ."""
    plan: Any = frame
    plan = plan._jdf.queryExecution().analyzed()
    if not plan.deterministic():
        return "off"
    return "on" if all(_whatever_the_order(node) for node in _nodes(plan)) else "keys"


def _whatever_the_order(node: Any) -> bool:
    name = str(node.getClass().getSimpleName())
    if name == "Aggregate":
        return all(_exact(each) for each in _functions(node.aggregateExpressions()))
    if name.startswith("Deduplicate"):  # it keeps the first row of a key
        return bool(node.keys().size() == node.output().size())
    return name in _ROW_BY_ROW or not node.children().size()


def _exact(function: Any) -> bool:
    name = str(function.getClass().getSimpleName())
    if name not in _SUMS:
        return name in _WHATEVER_THE_ORDER
    kind = str(function.children().apply(0).dataType().simpleString())
    # An average of whole numbers is computed as a sum of doubles.
    return kind.startswith("decimal") or (name == "Sum" and kind in ("tinyint", "smallint", "int", "bigint"))


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _items(plan.children()):
        yield from _nodes(child)


def _functions(expressions: Any) -> Iterator[Any]:
    """The aggregate functions in expressions, recursively."""
    for each in _items(expressions):
        if str(each.getClass().getSimpleName()) == "AggregateExpression":
            yield each.aggregateFunction()
        else:
            yield from _functions(each.children())


def _items(sequence: Any) -> Iterator[Any]:
    for at in range(sequence.size()):
        yield sequence.apply(at)
