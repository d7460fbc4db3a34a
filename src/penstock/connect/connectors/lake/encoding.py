"""Encodes records as the content of one file: Parquet with the columns of their schema, or JSON lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.connect.api import DataError, Schema, Type
from penstock.connect.connectors.formats import table_of_rows
from penstock.connect.converters.json import dump
from penstock.connect.schemas import DATE, DECIMAL, TIME, TIMESTAMP

EXTENSIONS = {"parquet": "parquet", "json": "json"}


def encode(values: Sequence[Any], schema: Schema | None, format: str, compression: str) -> Any:
    """Returns a buffer. Raises DataError for values that do not fit into one table."""
    import pyarrow as arrow

    if format == "json":
        return arrow.py_buffer(b"".join([dump(value) + b"\n" for value in values]))
    import pyarrow.parquet as parquet

    out = arrow.BufferOutputStream()
    try:
        parquet.write_table(table_of(values, schema), out, compression=compression)
    except arrow.ArrowException as error:
        raise DataError(f"the values do not form a table: {error}") from error
    return out.getvalue()


def problem_of(values: Sequence[Any], schema: Schema | None) -> DataError | None:
    """Why the values cannot be a Parquet file."""
    try:
        encode(values, schema, "parquet", "none")
    except DataError as error:
        return error
    return None


def table_of(values: Sequence[Any], schema: Schema | None) -> Any:
    """An Arrow table: a column for each field of a struct, else a single column `value`."""
    import pyarrow as arrow

    try:
        if schema is not None and schema.type is Type.STRUCT:
            columns = [
                arrow.array(
                    [_cell(value, each.name, each.schema) for value in values], arrow_type(each.schema)
                )
                for each in schema.fields
            ]
            return arrow.Table.from_arrays(columns, [each.name for each in schema.fields])
        if schema is not None:
            return arrow.table({"value": arrow.array(values, arrow_type(schema))})
        if all(isinstance(value, dict) for value in values):
            return table_of_rows(values)
        return arrow.table({"value": values})
    except (arrow.ArrowException, TypeError, AttributeError, OverflowError) as error:
        raise DataError(f"the values do not form a table: {error}") from error


def _cell(value: Any, name: str, schema: Schema) -> Any:
    found = value.get(name)
    return schema.default if found is None else found


def arrow_type(schema: Schema) -> Any:
    """The Arrow type of a schema. Logical types become dates, times and decimals in Parquet."""
    import pyarrow as arrow

    if schema.name == DECIMAL:
        return arrow.decimal128(38, int(schema.parameter("scale") or 0))
    logical = {DATE: arrow.date32(), TIME: arrow.time32("ms"), TIMESTAMP: arrow.timestamp("ms", "UTC")}
    if schema.name in logical:
        return logical[schema.name]
    match schema.type:
        case Type.STRUCT:
            return arrow.struct([arrow.field(each.name, arrow_type(each.schema)) for each in schema.fields])
        case Type.ARRAY:
            assert schema.value_schema is not None
            return arrow.list_(arrow_type(schema.value_schema))
        case Type.MAP:
            assert schema.key_schema is not None and schema.value_schema is not None
            return arrow.map_(arrow_type(schema.key_schema), arrow_type(schema.value_schema))
    plain = {
        Type.INT8: arrow.int8(),
        Type.INT16: arrow.int16(),
        Type.INT32: arrow.int32(),
        Type.INT64: arrow.int64(),
        Type.FLOAT32: arrow.float32(),
        Type.FLOAT64: arrow.float64(),
        Type.BOOLEAN: arrow.bool_(),
        Type.STRING: arrow.string(),
        Type.BYTES: arrow.binary(),
    }
    return plain[schema.type]
