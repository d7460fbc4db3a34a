"""The type of a column: its Connect schema, and the conversion of database values to it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from penstock.connect.api import BYTES_SCHEMA, STRING_SCHEMA, Schema, Type, decimal_schema

Convert = Callable[[Any], Any]


class Unchanged(Enum):
    UNCHANGED = "a value that an update did not change"


UNCHANGED: Final = Unchanged.UNCHANGED
"""A large value that an update did not change, so that the server does not send it."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """`convert` converts a database value to `schema`; DataError if it cannot.

    `zero` replaces a required column that the server did not send, as in `before` of a delete that has only
    the key; `unavailable` replaces UNCHANGED, None if the type has no such value.
    """

    schema: Schema
    convert: Convert
    zero: Any
    unavailable: Any = None


def named(schema: Schema, name: str, *parameters: tuple[str, str]) -> Schema:
    """A schema of the same type with the name of one of Debezium's semantic types."""
    return Schema(schema.type, name=name, version=1, parameters=parameters)


def sized_decimal_schema(precision: int, scale: int) -> Schema:
    """Connect's Decimal with Debezium's parameter for the precision."""
    plain = decimal_schema(scale)
    parameters = (*plain.parameters, ("connect.decimal.precision", str(precision)))
    return Schema(Type.BYTES, name=plain.name, version=1, parameters=parameters)


def binary_type(mode: str, to_bytes: Callable[[Any], bytes], unavailable: str) -> ColumnType:
    """Bytes, or their text encoding, according to `binary.handling.mode`."""
    match mode:
        case "base64":
            return _encoded(lambda data: base64.b64encode(data).decode(), to_bytes, unavailable)
        case "base64-url-safe":
            return _encoded(lambda data: base64.urlsafe_b64encode(data).decode(), to_bytes, unavailable)
        case "hex":
            return _encoded(bytes.hex, to_bytes, unavailable)
        case _:
            return ColumnType(BYTES_SCHEMA, to_bytes, b"", unavailable.encode())


def _encoded(
    encode: Callable[[bytes], str], to_bytes: Callable[[Any], bytes], unavailable: str
) -> ColumnType:
    return ColumnType(STRING_SCHEMA, lambda value: encode(to_bytes(value)), "", encode(unavailable.encode()))
