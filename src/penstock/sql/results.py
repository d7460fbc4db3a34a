"""Results of statements: rows with typed columns, or a message. Values are ready to be written as JSON."""

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
    """Rows, one by one as they arrive. Call `close` to end it early."""

    columns: tuple[ColumnType, ...]
    rows: Iterator[list[Any]]
    live: bool = False
    """The rows of a push query: they arrive with new records, possibly without end."""
    close: Callable[[], None] = field(default=lambda: None)


@dataclass(frozen=True, slots=True)
class Done:
    """The statement was executed; `details` are for programs."""

    message: str
    details: Mapping[str, Any] = field(default_factory=dict)


Result = Rows | Done


def rows_of(columns: Sequence[ColumnType], rows: Sequence[Sequence[Any]]) -> Rows:
    """Rows that already exist."""
    return Rows(tuple(columns), iter([list(row) for row in rows]))


def json_ready(value: Any) -> Any:
    """Converts a value of Spark for JSON.

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
    """The rows of Arrow batches, ready for JSON."""
    for batch in batches:
        columns = [_values(column) for column in batch.columns]
        for row in zip(*columns, strict=True) if columns else [()] * batch.num_rows:
            yield [json_ready(value) for value in row]


def _values(column: Any) -> list[Any]:
    import pyarrow.types as kinds

    if _is_variant(column.type):
        return [None if each is None else _variant(each) for each in column.to_pylist()]
    try:
        if kinds.is_nested(column.type):
            return list(column.to_pylist(maps_as_pydicts="lossy"))
        return list(column.to_pylist())
    except (OverflowError, ValueError):  # a year that Python does not support
        return [_value(each) for each in column]


def _value(scalar: Any) -> Any:
    """Converts single Arrow scalars: values outside of Python's range become text."""
    import pyarrow as pa

    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.StructScalar):
        return {name: _value(scalar[name]) for name in scalar}
    if isinstance(scalar, pa.MapScalar):
        return {_name(_value(pair["key"])): _value(pair["value"]) for pair in scalar.values}
    if isinstance(scalar, pa.ListScalar):
        return [_value(each) for each in scalar.values]
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return _far(scalar)


_CYCLE = dt.timedelta(days=146_097)
"""400 years, after which the calendar starts over."""


def _far(scalar: Any) -> str:
    """A date or time outside of Python's range in ISO 8601: `+56971-01-01`."""
    import pyarrow as pa

    ticks = scalar.value
    per_day = 1 if pa.types.is_date32(scalar.type) else 86_400_000_000
    cycles, rest = divmod(ticks, per_day * _CYCLE.days)
    near = dt.datetime(1970, 1, 1) + dt.timedelta(days=rest // per_day)
    near += dt.timedelta(microseconds=0 if per_day == 1 else rest % per_day)
    year = near.year + 400 * cycles
    shown = f"{year:05d}" if year < 0 else f"+{year}" if year > 9999 else f"{year:04d}"
    if pa.types.is_date(scalar.type):
        return f"{shown}-{near:%m-%d}"
    return f"{shown}{near.isoformat()[4:]}{'Z' if scalar.type.tz is not None else ''}"


def _is_variant(kind: Any) -> bool:
    """With Spark's markers."""
    import pyarrow.types as kinds

    if not kinds.is_struct(kind) or [each.name for each in kind] != ["value", "metadata"]:
        return False
    return any((each.metadata or {}).get(b"variant") == b"true" for each in kind)


def _variant(parts: Mapping[str, bytes]) -> Any:
    """VARIANT is JSON in Spark's binary format."""
    from pyspark.sql.types import VariantVal

    return VariantVal(parts["value"], parts["metadata"]).toPython()
