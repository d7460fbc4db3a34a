"""Converts values of records to rows of a table whose columns can be extended.

A new column is added, and is null in earlier rows. An existing column keeps its type, or is widened if the
format allows that; a value that does not fit is an error of its record.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as types

from penstock.connect.api import DataError, Schema, Type
from penstock.connect.connectors.lake.encoding import arrow_type

VALUE = "value"
"""The column for values that are not structs."""
RECORD_COLUMNS: Mapping[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "key": pa.string(),
}


class TypeRules:
    """Which types a table format stores, and which of its columns can be widened."""

    def __init__(self, *, small_integers: bool, times: bool, widens: bool) -> None:
        self._small_integers, self._times, self.widens = small_integers, times, widens

    def stored_schema(self, schema: pa.Schema) -> pa.Schema:
        kinds = [(each.name, self.stored(each.type)) for each in schema]
        return pa.schema([pa.field(name, kind) for name, kind in kinds if kind is not None])

    def stored(self, kind: pa.DataType) -> pa.DataType | None:
        """The type in the table; None if values do not show one yet."""
        if types.is_null(kind):
            return None
        if types.is_struct(kind):
            fields = [(each.name, self.stored(each.type)) for each in kind]
            known = [pa.field(name, each) for name, each in fields if each is not None]
            return pa.struct(known) if known else None
        if types.is_list(kind) or types.is_large_list(kind):
            item = self.stored(kind.value_type)
            return None if item is None else pa.list_(item)
        if types.is_map(kind):
            key, item = self.stored(kind.key_type), self.stored(kind.item_type)
            return None if key is None or item is None else pa.map_(key, item)
        if types.is_timestamp(kind):
            return pa.timestamp("us", "UTC" if kind.tz else None)
        if types.is_time(kind):
            return pa.time64("us") if self._times else pa.string()
        if types.is_large_string(kind) or types.is_string_view(kind):
            return pa.string()
        if types.is_large_binary(kind) or types.is_binary_view(kind):
            return pa.binary()
        if not self._small_integers and (types.is_int8(kind) or types.is_int16(kind)):
            return pa.int32()
        return kind


def rows(
    values: Sequence[Any], schema: Schema | None, current: pa.Schema | None, rules: TypeRules
) -> tuple[pa.Table, pa.Schema]:
    """The rows, with all columns of the merged schema, and that schema. Raises DataError if they do not
    fit.
    """
    cells, found = _cells(values, schema, current, rules)
    merged = merge(current, found, rules)
    try:
        columns = []
        for each in merged:
            column = cells.get(each.name, [None] * len(values))
            if types.is_string(each.type):
                column = [cell.isoformat() if isinstance(cell, datetime.time) else cell for cell in column]
            columns.append(pa.array(column, each.type))
        return pa.Table.from_arrays(columns, schema=merged), merged
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"the values do not fit the columns of the table: {error}") from error


def _cells(
    values: Sequence[Any], schema: Schema | None, current: pa.Schema | None, rules: TypeRules
) -> tuple[dict[str, list[Any]], pa.Schema]:
    """The columns by name, and the types that their schema or their values show."""
    if schema is not None and schema.type is not Type.STRUCT:
        return {VALUE: list(values)}, rules.stored_schema(pa.schema([(VALUE, arrow_type(schema))]))
    if not all(isinstance(value, dict) for value in values):
        if schema is not None or any(isinstance(value, dict) for value in values):
            raise DataError("a value that is not a struct or a map among others that are")
        if current is not None and VALUE not in current.names:
            raise DataError(f"the table has columns of structs, and the value is {type(values[0]).__name__}")
        values, schema = [{VALUE: value} for value in values], None
    if schema is not None:
        given = [(each.name, arrow_type(each.schema)) for each in schema.fields]
        defaults = {each.name: each.schema.default for each in schema.fields}
        cells = {
            name: [default if (cell := value.get(name)) is None else cell for value in values]
            for name, default in defaults.items()
        }
    else:
        names = dict.fromkeys(name for value in values for name in value)
        cells = {str(name): [value.get(name) for value in values] for name in names}
        try:
            given = [(name, pa.array(column).type) for name, column in cells.items()]
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"the values of a field do not have one type: {error}") from error
    return cells, rules.stored_schema(pa.schema(given))


def merge(current: pa.Schema | None, new: pa.Schema, rules: TypeRules) -> pa.Schema:
    """The columns of both schemas, those of the table first. DataError names a column with two types."""
    if current is None:
        return new
    return pa.schema(_merged_fields(list(current), list(new), "", rules))


def _merged_fields(
    current: list[pa.Field], new: list[pa.Field], path: str, rules: TypeRules
) -> list[pa.Field]:
    found = {each.name: each.type for each in current}
    for each in new:
        kind = found.get(each.name)
        found[each.name] = (
            each.type if kind is None else _merged(kind, each.type, f"{path}{each.name}", rules)
        )
    return [pa.field(name, kind) for name, kind in found.items()]


def _merged(current: pa.DataType, new: pa.DataType, path: str, rules: TypeRules) -> pa.DataType:
    if current == new:
        return current
    if types.is_struct(current) and types.is_struct(new):
        return pa.struct(_merged_fields(list(current), list(new), f"{path}.", rules))
    if types.is_list(current) and types.is_list(new):
        return pa.list_(_merged(current.value_type, new.value_type, f"{path}[]", rules))
    if types.is_map(current) and types.is_map(new):
        return pa.map_(
            _merged(current.key_type, new.key_type, f"{path} key", rules),
            _merged(current.item_type, new.item_type, f"{path}[]", rules),
        )
    for same_kind in (types.is_signed_integer, types.is_floating):
        if same_kind(current) and same_kind(new):
            return new if rules.widens and new.bit_width > current.bit_width else current
    if types.is_floating(current) and types.is_integer(new):
        return current
    if types.is_decimal(current) and types.is_decimal(new) and current.scale == new.scale:
        return new if rules.widens and new.precision > current.precision else current
    if types.is_timestamp(current) and types.is_timestamp(new):
        return current
    raise DataError(f"the column {path} has type {current} in the table, and {new} in the record")


def with_record_columns(
    table: pa.Table,
    names: Sequence[str],
    topic: str,
    partition: int,
    offsets: Sequence[int],
    times: Sequence[int | None],
    keys: Sequence[Any],
) -> pa.Table:
    """Adds Kafka's metadata of each record, in columns `kafka_NAME`."""
    cells: dict[str, Any] = {
        "topic": lambda: [topic] * len(offsets),
        "partition": lambda: [partition] * len(offsets),
        "offset": lambda: list(offsets),
        "timestamp": lambda: [None if time is None else time * 1000 for time in times],
        "key": lambda: [None if key is None else key if isinstance(key, str) else _text(key) for key in keys],
    }
    for name in names:
        table = table.append_column(column_name(name), pa.array(cells[name](), RECORD_COLUMNS[name]))
    return table


def without_record_columns(schema: pa.Schema | None, names: Sequence[str]) -> pa.Schema | None:
    own = {column_name(name) for name in names}
    return None if schema is None else pa.schema([each for each in schema if each.name not in own])


def column_name(name: str) -> str:
    return f"kafka_{name}"


def _text(key: Any) -> str:
    from penstock.connect.converters.primitive import text_of

    return text_of(key)
