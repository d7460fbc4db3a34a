"""Converts SQL values: a row's JSON to Python, and parameters to literals."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from penstock.sql.dbapi.errors import ProgrammingError
from penstock.sqltext.types import TypeName, type_of

Read = Callable[[Any], Any]


class TypeGroup:
    """Types that PEP 249 has one name for: `cursor.description[0][1] == dbapi.NUMBER`."""

    def __init__(self, *names: str) -> None:
        self._names = frozenset(names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and re.split(r"[<( ]", other, maxsplit=1)[0] in self._names

    def __hash__(self) -> int:
        return hash(self._names)


STRING = TypeGroup("STRING", "VARCHAR", "CHAR")
BINARY = TypeGroup("BINARY")
NUMBER = TypeGroup("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")
DATETIME = TypeGroup("TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "DATE", "TIME")
ROWID = TypeGroup()

# PEP 249's names for making values.
Date, Time, Timestamp, Binary = dt.date, dt.time, dt.datetime, bytes


def DateFromTicks(ticks: float) -> dt.date:
    return dt.date.fromtimestamp(ticks)


def TimeFromTicks(ticks: float) -> dt.time:
    return dt.datetime.fromtimestamp(ticks).time()


def TimestampFromTicks(ticks: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(ticks, dt.UTC)


# From JSON


def reader(kind: str) -> Read:
    """The conversion of the JSON of this type to Python: `ARRAY<TIMESTAMP>` → a list of datetimes. A type
    that is not known stays as JSON has it.
    """
    try:
        return _reader(type_of(kind))
    except ValueError:
        return _same


def _reader(kind: TypeName) -> Read:
    inside = [_reader(each) for each in kind.inside]
    if kind.word == "ARRAY":
        (item,) = inside
        return _absent(lambda value: [item(each) for each in value])
    if kind.word == "MAP":
        key, item = inside
        return _absent(lambda value: {key(name): item(each) for name, each in value.items()})
    if kind.word == "STRUCT":
        fields = dict(zip(kind.fields, inside, strict=True))
        return _absent(lambda value: {name: fields.get(name, _same)(each) for name, each in value.items()})
    return _absent(_READ.get(kind.word, _same))


def _absent(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def _same(value: Any) -> Any:
    return value


def _time(parse: Callable[[str], Any]) -> Read:
    def read(text: Any) -> Any:
        try:
            return parse(text)
        except ValueError:  # a year that Python does not have stays text
            return text

    return read


_READ: dict[str, Read] = {
    "DECIMAL": decimal.Decimal,
    "BINARY": base64.b64decode,
    "FLOAT": float,
    "DOUBLE": float,
    "DATE": _time(dt.date.fromisoformat),
    "TIME": _time(dt.time.fromisoformat),
    "TIMESTAMP": _time(dt.datetime.fromisoformat),
    "TIMESTAMP_LTZ": _time(dt.datetime.fromisoformat),
    "TIMESTAMP_NTZ": _time(dt.datetime.fromisoformat),
    # Keys of maps are text in JSON.
    "TINYINT": int,
    "SMALLINT": int,
    "INT": int,
    "BIGINT": int,
}


# To SQL


def bound(operation: str, parameters: Mapping[str, Any] | None) -> str:
    """The statement with literals in place of `%(name)s`. In it, `%%` is a percent sign; a statement without
    parameters is unchanged.
    """
    if parameters is None:
        return operation
    if not isinstance(parameters, Mapping):
        raise ProgrammingError(
            "parameters are a mapping: write %(name)s in the statement, and {'name': value}"
        )
    try:
        return operation % {name: literal(value) for name, value in parameters.items()}
    except KeyError as error:
        raise ProgrammingError(f"no value for the parameter {error.args[0]}") from None
    except (TypeError, ValueError) as error:
        raise ProgrammingError(
            f"{error}: write %(name)s for a parameter, and %% for a percent sign"
        ) from None


def literal(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case float():
            return f"{value!r}D" if math.isfinite(value) else f"CAST('{value}' AS DOUBLE)"
        case decimal.Decimal():
            return format(value, "f")
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        case bytes() | bytearray() | memoryview():
            return f"X'{bytes(value).hex()}'"
        case dt.datetime():
            if value.tzinfo is None:
                return f"TIMESTAMP_NTZ '{value.isoformat(' ')}'"
            return f"TIMESTAMP '{value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(' ')}Z'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case dt.time():
            return f"TIME '{value.isoformat()}'"
        case tuple():
            return f"({', '.join(map(literal, value))})"
        case list():
            return f"ARRAY({', '.join(map(literal, value))})"
    raise ProgrammingError(f"a parameter of type {type(value).__name__} has no literal in SQL")
