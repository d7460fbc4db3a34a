"""What a statement gives: rows with typed columns, or a sentence. Values are ready to be written as JSON."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ColumnType = tuple[str, str]
"""Name, and type in Spark's words in capitals: `BIGINT`, `STRUCT<a: INT>`."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows, one by one as they come. Whoever does not want the rest calls `close`."""

    columns: tuple[ColumnType, ...]
    rows: Iterator[list[Any]]
    live: bool = False
    """They come as records do, and need not end."""
    close: Callable[[], None] = field(default=lambda: None)


@dataclass(frozen=True, slots=True)
class Done:
    """It is done; `details` has what a program may want to know of it."""

    message: str
    details: Mapping[str, Any] = field(default_factory=dict)


Result = Rows | Done


def rows_of(columns: Sequence[ColumnType], rows: Sequence[Sequence[Any]]) -> Rows:
    """Rows that are there already."""
    return Rows(tuple(columns), iter([list(row) for row in rows]))


def json_ready(value: Any) -> Any:
    """A value of Spark in JSON's terms.

    Times are ISO 8601 (UTC has a Z), decimals text that keeps all digits, bytes base64, not-a-number and the
    infinities text.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return (
            value
            if math.isfinite(value)
            else ("NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity")
        )
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            return value.isoformat()
        return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat() + "Z"
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, Mapping):
        return {_name(key): json_ready(each) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "__fields__"):  # a Row of Spark
        return {name: json_ready(each) for name, each in zip(value.__fields__, value, strict=False)}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_ready(each) for each in value]
    return str(value)


def _name(key: Any) -> str:
    ready = json_ready(key)
    return ready if isinstance(ready, str) else str(ready)


def arrow_rows(batches: Iterable[Any]) -> Iterator[list[Any]]:
    """The rows of Arrow's batches, ready for JSON."""
    for batch in batches:
        columns = [
            column.to_pylist(maps_as_pydicts="lossy") if _is_nested(column.type) else column.to_pylist()
            for column in batch.columns
        ]
        for row in zip(*columns, strict=True) if columns else [()] * batch.num_rows:
            yield [json_ready(value) for value in row]


def _is_nested(kind: Any) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_nested(kind))
