"""A chart of the rows of a query: which columns it shows, and its lines. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")
_TIMES = ("TIMESTAMP", "TIMESTAMP_NTZ", "DATE")
ARRIVAL = "(time of arrival)"
"""In place of a column: when a row came."""
MOST_LINES = 12


@dataclass(frozen=True, slots=True)
class Plan:
    """`x` is a column or ARRIVAL; each of `ys` is a line, or one for each value of `by`."""

    x: str
    ys: tuple[str, ...]
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Lines:
    kind: str
    """`time`: x is milliseconds since 1970. `category`: x is text, and each has one bar."""
    series: dict[str, list[tuple[Any, float | None]]]
    left_out: int = 0
    """Lines beyond MOST_LINES."""


def is_number(type_: str) -> bool:
    return type_.upper().partition("(")[0].strip() in _NUMBERS


def is_time(type_: str) -> bool:
    return type_.upper().partition("(")[0].strip() in _TIMES


def suggest(columns: Sequence[tuple[str, str]], *, live: bool) -> Plan | None:
    """What most people want to see: numbers over time, or by the first text. None without numbers."""
    numbers = [name for name, type_ in columns if is_number(type_)]
    if not numbers:
        return None
    times = [name for name, type_ in columns if is_time(type_)]
    texts = [name for name, type_ in columns if not is_number(type_) and not is_time(type_)]
    if times:
        return Plan(times[0], tuple(numbers[:4]), texts[0] if texts else None)
    if texts:
        return Plan(texts[0], tuple(numbers[:4]))
    if live:
        return Plan(ARRIVAL, tuple(numbers[:4]))
    return Plan(numbers[0], tuple(numbers[1:5])) if len(numbers) > 1 else None


def lines_of(
    plan: Plan,
    columns: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[Any]],
    arrived: Sequence[float],
) -> Lines:
    """The lines of these rows. Where several rows have one place, the newest counts."""
    at = {name: index for index, (name, _) in enumerate(columns)}
    types = dict(columns)
    time_like = plan.x == ARRIVAL or is_time(types.get(plan.x, ""))
    found: dict[str, dict[Any, float | None]] = {}
    for row, when in zip(rows, arrived, strict=True):
        x: Any = round(when * 1000) if plan.x == ARRIVAL else row[at[plan.x]]
        if time_like and plan.x != ARRIVAL:
            x = _milliseconds(x)
            if x is None:
                continue
        elif not time_like:
            x = "null" if x is None else str(x)
        for y in plan.ys:
            name = y
            if plan.by is not None:
                value = row[at[plan.by]]
                name = str(value) if len(plan.ys) == 1 else f"{value}: {y}"
            found.setdefault(name, {})[x] = _number(row[at[y]])
    shown = dict(list(found.items())[:MOST_LINES])
    series: dict[str, list[tuple[Any, float | None]]] = {
        name: sorted(points.items()) if time_like else list(points.items()) for name, points in shown.items()
    }
    return Lines("time" if time_like else "category", series, len(found) - len(shown))


def options_of(lines: Lines, colours: Sequence[str]) -> Mapping[str, Any]:
    """`series` and `categories` for a chart. Names are values, never keys: they may be anything."""
    if lines.kind == "time":
        return {
            "series": [
                {
                    "name": name,
                    "type": "line",
                    "showSymbol": len(points) < 30,
                    "data": [[x, y] for x, y in points],
                    "color": colours[index % len(colours)],
                }
                for index, (name, points) in enumerate(lines.series.items())
            ],
            "categories": None,
        }
    categories = list(dict.fromkeys(x for points in lines.series.values() for x, _ in points))
    return {
        "series": [
            {
                "name": name,
                "type": "bar",
                "barMaxWidth": 80,
                "data": [dict(points).get(x) for x in categories],
                "color": colours[index % len(colours)],
            }
            for index, (name, points) in enumerate(lines.series.items())
        ],
        "categories": categories,
    }


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if number == number and abs(number) != float("inf") else None


def _milliseconds(value: Any) -> int | None:
    try:
        found = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        return None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
