"""The topics that a flow reads and writes, by its plan and by the options of its sink. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from penstock.pipelines.plans.expressions import Expression, of_literal
from penstock.pipelines.plans.fingerprint import PlanNode

_KAFKA = ("penstock", "kafka")
_SUBSCRIPTIONS = ("subscribe", "subscribepattern", "assign")


def topics_read(plan: PlanNode) -> tuple[str, ...]:
    """Of its streaming sources; a pattern as it is written."""
    found: dict[str, None] = {}
    for node in plan.walk():
        if node.source is None or node.source[0].lower() not in _KAFKA:
            continue
        options = {key.lower(): value for key, value in node.source[1].items()}
        for name in _SUBSCRIPTIONS:
            found.update(dict.fromkeys(_subscribed(name, options.get(name, ""))))
    return tuple(found)


def _subscribed(kind: str, value: str) -> Iterator[str]:
    if kind == "assign":
        try:
            named = json.loads(value or "{}")
        except ValueError:
            return
        yield from named if isinstance(named, dict) else ()
    elif kind == "subscribe":
        yield from filter(None, map(str.strip, value.split(",")))
    elif value:
        yield value


def topics_written(plan: PlanNode, format_: str | None, options: Mapping[str, str]) -> tuple[str, ...]:
    """Of a sink of a Kafka cluster: its topic, or those that a column `topic` names as constants."""
    if (format_ or "").lower() not in _KAFKA:
        return ()
    named = next((value for key, value in options.items() if key.lower() == "topic"), None)
    if named is not None:
        return (named,)
    columns = plan.detail.get("projectList")
    for column in columns if isinstance(columns, tuple) else ():
        if isinstance(column, Expression) and column.kind == "Alias" and column.fields.get("name") == "topic":
            return tuple(dict.fromkeys(_results(column.children[0])))
    return ()


def _results(expression: Expression) -> Iterator[str]:
    """The texts that an expression of constants can have: of a CASE, each of its results."""
    if expression.kind == "Literal":
        if "null" not in expression.fields:
            yield of_literal(expression)
    elif expression.kind == "CaseWhen":  # condition, result, condition, result, …, [otherwise]
        children = expression.children
        for at, child in enumerate(children):
            if at % 2 == 1 or at == len(children) - 1:
                yield from _results(child)
    elif expression.kind == "If":
        for child in expression.children[1:]:
            yield from _results(child)
    elif expression.kind in ("Alias", "Cast"):
        yield from _results(expression.children[0])
