"""Infers the schema of a value without one, for converters that need it."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

from penstock.connect.errors import DataError
from penstock.connect.schemas import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    DATE_SCHEMA,
    FLOAT64_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    Schema,
    array_schema,
    decimal_schema,
    struct_schema,
)


def infer(value: Any) -> Schema:
    """All parts are optional, because the next record may lack them. DataError for an unknown type."""
    return _infer(value)


def _infer(value: Any) -> Schema:
    if isinstance(value, bool):
        schema = BOOLEAN_SCHEMA
    elif isinstance(value, int):
        schema = INT64_SCHEMA
    elif isinstance(value, float):
        schema = FLOAT64_SCHEMA
    elif value is None or isinstance(value, str):
        schema = STRING_SCHEMA
    elif isinstance(value, (bytes, bytearray, memoryview)):
        schema = BYTES_SCHEMA
    elif isinstance(value, decimal.Decimal):
        exponent = value.as_tuple().exponent
        schema = decimal_schema(max(0, -exponent) if isinstance(exponent, int) else 0)
    elif isinstance(value, datetime.datetime):
        schema = TIMESTAMP_SCHEMA
    elif isinstance(value, datetime.date):
        schema = DATE_SCHEMA
    elif isinstance(value, datetime.time):
        schema = TIME_SCHEMA
    elif isinstance(value, dict):
        schema = struct_schema({str(name): _infer(item) for name, item in value.items()})
    elif isinstance(value, (list, tuple)):
        schema = array_schema(_infer(value[0]) if value else STRING_SCHEMA.as_optional())
    else:
        raise DataError(f"a value of type {type(value).__name__} has no schema")
    return schema.as_optional()
