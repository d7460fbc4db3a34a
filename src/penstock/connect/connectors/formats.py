"""The formats of files in directories: text, JSON lines, CSV and Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from penstock.connect.api import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    DATE_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    ConnectError,
    DataError,
    Schema,
    array_schema,
    decimal_schema,
    map_schema,
    struct_schema,
)
from penstock.connect.converters.json import dump
from penstock.connect.converters.primitive import text_of

FORMATS = {"text": "txt", "json": "jsonl", "csv": "csv", "parquet": "parquet"}


class Row(NamedTuple):
    value: Any
    schema: Schema | None
    position: int
    """The position of the next row: a byte offset in text, a row number in Parquet."""


def read(file: BinaryIO, path: str, format: str, position: int) -> Iterator[Row]:
    """Read from the position to the last complete line or row. ConnectError if the file does not have the
    format.

    The file is closed at the end.
    """
    with file:
        if format == "parquet":
            yield from _read_parquet(file, path, position)
            return
        if format == "csv":
            yield from _read_csv(file, path, position)
            return
        file.seek(position)
        for line in file:
            if not line.endswith(b"\n"):
                return  # the file is still being written
            position += len(line)
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            if format == "text":
                yield Row(text, STRING_SCHEMA, position)
            elif text:
                yield Row(_json(path, position - len(line), text), None, position)


def _read_csv(file: BinaryIO, path: str, position: int) -> Iterator[Row]:
    header = next(_csv_rows(file, path, 0, "utf-8-sig"), None)
    if header is None:
        return
    names, begin = header
    schema = struct_schema({name: STRING_SCHEMA.as_optional() for name in names})
    position = max(position, begin)
    for cells, end in _csv_rows(file, path, position, "utf-8"):
        if len(cells) != len(names):
            raise ConnectError(f"{path} at byte {position}: {len(cells)} cells, the header has {len(names)}")
        yield Row(dict(zip(names, cells, strict=True)), schema, end)
        position = end


def _csv_rows(file: BinaryIO, path: str, position: int, encoding: str) -> Iterator[tuple[list[str], int]]:
    """The cells of each complete row, and its end: a quoted cell may have several lines."""
    file.seek(position)
    begin, whole = position, True

    def lines() -> Iterator[str]:
        nonlocal position, whole
        for line in file:
            if not line.endswith(b"\n"):
                break
            position += len(line)
            yield line.decode(encoding if position == len(line) else "utf-8", "replace")
        whole = False

    try:
        for cells in csv.reader(lines()):
            if not whole:
                return  # its last cell is still being written
            if cells:
                yield cells, position
            begin = position
    except csv.Error as error:
        raise ConnectError(f"{path} at byte {begin}: {error}") from error


def _json(path: str, position: int, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConnectError(f"{path} at byte {position}: not JSON: {error}") from error


def _read_parquet(source: BinaryIO, path: str, position: int) -> Iterator[Row]:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    try:
        file = parquet.ParquetFile(source)
        schema = _schema_of(file.schema_arrow)
        row = 0
        for group in range(file.num_row_groups):
            if row + file.metadata.row_group(group).num_rows <= position:
                row += file.metadata.row_group(group).num_rows
                continue
            for batch in file.iter_batches(2000, row_groups=[group]):
                if row + batch.num_rows <= position:
                    row += batch.num_rows
                    continue
                for value in batch.to_pylist(maps_as_pydicts="strict"):
                    row += 1
                    if row > position:
                        yield Row(value, schema, row)
    except arrow.ArrowException as error:
        raise ConnectError(f"{path} is not Parquet: {error}") from error


def _schema_of(arrow_schema: Any) -> Schema:
    return struct_schema({field.name: _type_of(field.type).as_optional() for field in arrow_schema})


def _type_of(kind: Any) -> Schema:
    import pyarrow.types as types

    simple = (
        (types.is_boolean, BOOLEAN_SCHEMA),
        (types.is_int8, INT8_SCHEMA),
        (types.is_int16, INT16_SCHEMA),
        (types.is_int32, INT32_SCHEMA),
        (types.is_integer, INT64_SCHEMA),
        (types.is_float32, FLOAT32_SCHEMA),
        (types.is_floating, FLOAT64_SCHEMA),
        (types.is_string, STRING_SCHEMA),
        (types.is_large_string, STRING_SCHEMA),
        (types.is_binary, BYTES_SCHEMA),
        (types.is_large_binary, BYTES_SCHEMA),
        (types.is_date, DATE_SCHEMA),
        (types.is_timestamp, TIMESTAMP_SCHEMA),
    )
    for is_kind, schema in simple:
        if is_kind(kind):
            return schema
    if types.is_decimal(kind):
        return decimal_schema(kind.scale)
    if types.is_list(kind) or types.is_large_list(kind):
        return array_schema(_type_of(kind.value_type).as_optional())
    if types.is_map(kind):
        return map_schema(_type_of(kind.key_type), _type_of(kind.item_type).as_optional())
    if types.is_time32(kind):
        return TIME_SCHEMA
    if types.is_struct(kind):
        return struct_schema({field.name: _type_of(field.type).as_optional() for field in kind})
    raise ConnectError(f"a column of type {kind} has no type in Connect: leave it out of the file")


def write(values: list[Any], format: str) -> bytes:
    """Encode one file. Raises DataError for values that do not fit the format."""
    try:
        return _write(values, format)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataError(f"not {format}: {error}") from error


def _write(values: list[Any], format: str) -> bytes:
    if format == "text":
        return "".join(f"{text_of(value)}\n" for value in values).encode()
    if format == "json":
        return b"".join(dump(value) + b"\n" for value in values)
    rows = [value for value in values if value is not None]
    for value in rows:
        if not isinstance(value, dict):
            raise DataError(f"{format} takes structs and maps, not {type(value).__name__}")
    if format == "csv":
        names = list(dict.fromkeys(name for value in rows for name in value))
        out = io.StringIO()
        texts = [
            {name: "" if cell is None else text_of(cell) for name, cell in value.items()} for value in rows
        ]
        # QUOTE_MINIMAL does not quote a carriage return, which readers take for the end of a line.
        bare = any("\r" in text for cells in texts for text in cells.values())
        writer = csv.DictWriter(
            out, names, lineterminator="\n", quoting=csv.QUOTE_ALL if bare else csv.QUOTE_MINIMAL
        )
        writer.writeheader()
        writer.writerows(texts)
        return out.getvalue().encode()
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    try:
        sink = arrow.BufferOutputStream()
        parquet.write_table(table_of_rows(rows), sink)
        data: bytes = sink.getvalue().to_pybytes()
    except arrow.ArrowException as error:
        raise DataError(f"the values do not form a table: {error}") from error
    return data


def table_of_rows(rows: Sequence[Mapping[str, Any]]) -> Any:
    """An Arrow table with a column for each name in any row; `Table.from_pylist` only uses those of the first
    row.
    """
    import pyarrow as arrow

    names = dict.fromkeys(name for row in rows for name in row)
    return arrow.table({name: [row.get(name) for row in rows] for name in names})
