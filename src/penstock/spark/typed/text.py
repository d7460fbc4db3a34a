"""Plain JSON and CSV in typed columns: `value.format=json-text` and `csv-text`, without a registry.

Arrow's readers parse a block of records at once. If they reject a block, it is divided, and the rest is
parsed record by record (`text_values.py`, the reference); both give the same result
(`tests/unit/spark/test_typed_text.py`). Text that could change the record boundaries for Arrow is detected
before, so that an invalid record never shifts or hides another.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pc_csv
import pyarrow.json as pc_json
from pyspark.sql import types as T

from penstock.spark.typed.options import CSV_TEXT
from penstock.spark.typed.text_values import (
    FIRST_MICROS,
    LAST_MICROS,
    Misfit,
    base64_bytes,
    from_json,
    from_text,
    read_json,
)

if TYPE_CHECKING:
    from penstock.spark.typed.options import PartOptions

_BLOCK_ROWS = (4096, 512, 64)
_LOOK_ROWS = 16
_LINE_END = pa.scalar(b"\n", pa.binary())
_NOTHING = pa.scalar(b"", pa.binary())
# Only RapidJSON accepts it as a number.
_INF = re.compile(rb"[:\[,\s-]Inf[\s,\]}]")
_FLOATS = (T.FloatType, T.DoubleType)
_TIMES = (T.TimestampType, T.TimestampNTZType)


class Unfit(Exception):
    """A block that the fast path cannot handle."""


class Reader(Protocol):
    def block(self, texts: pa.Array) -> pa.Array:
        """The values of a block without nulls. Raises Unfit or an Arrow error if they cannot be parsed
        at once.
        """

    def one(self, data: bytes) -> Any:
        """The value of one record, for Arrow. Misfit has the reason if there is none."""


class Decoded(NamedTuple):
    values: pa.Array
    reasons: dict[int, str]
    """The reasons why rows that are not null have no value."""


class TextColumn:
    """The key or the value as a struct."""

    def __init__(self, options: PartOptions, struct: T.StructType) -> None:
        from pyspark.sql.pandas.types import to_arrow_type

        self.arrow: pa.DataType = to_arrow_type(struct, timezone="UTC")
        self._reader: Reader = (
            CsvReader(struct, self.arrow, options.delimiter)
            if options.schema_type == CSV_TEXT
            else JsonReader(struct, self.arrow)
        )

    def decode(self, column: pa.Array) -> Decoded:
        texts = column.drop_null() if column.null_count else column
        reasons: dict[int, str] = {}
        pieces = list(self._pieces(texts, reasons))
        if not pieces:
            return Decoded(pa.nulls(len(column), self.arrow), reasons)
        values = pa.concat_arrays(pieces) if len(pieces) > 1 else pieces[0]
        if column.null_count:
            there = column.is_valid()
            rows = pc.subtract(pc.cumulative_sum(there.cast(pa.int64())), 1)
            values = values.take(pc.if_else(there, rows, None))
            places = pc.indices_nonzero(there)
            reasons = {places[row].as_py(): reason for row, reason in reasons.items()}
        return Decoded(values, reasons)

    def _pieces(
        self, texts: pa.Array, reasons: dict[int, str], first: int = 0, sizes: tuple[int, ...] = _BLOCK_ROWS
    ) -> Iterator[pa.Array]:
        """Parses blocks; smaller ones if one is rejected; and single records if the smallest are."""
        size, *smaller = sizes
        for start in range(0, len(texts), size):
            block = texts.slice(start, size)
            values = self._at_once(block)
            if values is not None:
                yield values
            elif smaller and len(block) > smaller[-1]:
                yield from self._pieces(block, reasons, first + start, tuple(smaller))
            else:
                yield self._one_by_one(block, first + start, reasons)

    def _at_once(self, block: pa.Array) -> pa.Array | None:
        try:
            return self._reader.block(block)
        except (Unfit, pa.ArrowException):
            return None

    def _one_by_one(self, texts: pa.Array, first: int, reasons: dict[int, str]) -> pa.Array:
        values = []
        for row, data in enumerate(texts.to_pylist()):
            try:
                values.append(self._reader.one(data))
            except Misfit as error:
                reasons[first + row] = str(error)
                values.append(None)
        return pa.array(values, type=self.arrow)


def _joined(texts: pa.Array) -> pa.Buffer:
    """The texts, each with a line end."""
    lines = pc.binary_join_element_wise(texts, _LINE_END, _NOTHING)
    ends = lines.offset + len(lines)
    _, offsets, data = lines.buffers()
    last = int.from_bytes(offsets[4 * ends : 4 * ends + 4].to_pybytes(), "little")
    first = int.from_bytes(offsets[4 * lines.offset : 4 * lines.offset + 4].to_pybytes(), "little")
    return data.slice(first, last - first)


# JSON


class JsonReader:
    def __init__(self, struct: T.StructType, arrow: pa.DataType) -> None:
        self._struct = struct
        self._arrow = arrow
        self._convert = from_json(struct)
        self._possible = not _has_map(struct)
        self._numbers: frozenset[str] = frozenset()
        """Places of times that are numbers; Arrow must know beforehand."""
        self._options = self._parse_options()

    def one(self, data: bytes) -> Any:
        value = read_json(data)
        return None if value is None else self._convert(value)

    def block(self, texts: pa.Array) -> pa.Array:
        if not self._possible:
            raise Unfit
        data = self._checked(texts)
        try:
            return self._read(data, len(texts))
        except (Unfit, pa.ArrowException):
            numbers = self._look(texts)
            if numbers == self._numbers:
                raise
        self._numbers = numbers
        self._options = self._parse_options()
        return self._read(data, len(texts))

    def _checked(self, texts: pa.Array) -> pa.Buffer:
        """Each record starts with { and ends with }. So if all text is parsed, each has at least one object
        and no partial one: inside an object the next character cannot be {.
        """
        strings = texts.cast(pa.string())  # or an error: not UTF-8
        if not _all_in_braces(strings):
            strings = pc.ascii_trim(strings, " \t\r\n")
            if not _all_in_braces(strings):
                raise Unfit
        data = _joined(strings.view(pa.binary()))
        view = data.to_pybytes()
        if b"\0" in view or (b"Inf" in view and _INF.search(view)):
            raise Unfit
        return data

    def _read(self, data: pa.Buffer, rows: int) -> pa.Array:
        table = pc_json.read_json(
            pa.BufferReader(data),
            read_options=pc_json.ReadOptions(use_threads=False, block_size=data.size + 1),
            parse_options=self._options,
        )
        if table.num_rows != rows:
            raise Unfit
        columns = [
            _finished(_single(column), field.dataType, self._arrow.field(index).type)
            for index, (column, field) in enumerate(zip(table.columns, self._struct.fields))
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self._arrow))

    def _parse_options(self) -> pc_json.ParseOptions:
        fields = [
            pa.field(field.name, _read_type(field.dataType, arrow.type, field.name, self._numbers))
            for field, arrow in zip(self._struct.fields, self._arrow)
        ]
        return pc_json.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore")

    def _look(self, texts: pa.Array) -> frozenset[str]:
        """Which timestamps are numbers, in the first records that have them."""
        found: dict[str, bool] = {}
        for data in texts.slice(0, _LOOK_ROWS).to_pylist():
            try:
                _find_times(read_json(data), self._struct, "", found)
            except Misfit:
                continue
        return frozenset(place for place, number in found.items() if number)


def _all_in_braces(strings: pa.Array) -> bool:
    return bool(
        pc.all(pc.starts_with(strings, "{"), min_count=0).as_py()
        and pc.all(pc.ends_with(strings, "}"), min_count=0).as_py()
    )


def _single(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _has_map(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return any(_has_map(field.dataType) for field in kind.fields)
    return isinstance(kind, T.MapType) or (isinstance(kind, T.ArrayType) and _has_map(kind.elementType))


def _find_times(value: Any, kind: T.DataType, place: str, found: dict[str, bool]) -> None:
    if isinstance(kind, T.StructType) and isinstance(value, dict):
        for field in kind.fields:
            _find_times(value.get(field.name), field.dataType, f"{place}.{field.name}".lstrip("."), found)
    elif isinstance(kind, T.ArrayType) and isinstance(value, list):
        for each in value:
            _find_times(each, kind.elementType, f"{place}[]", found)
    elif isinstance(kind, _TIMES) and value is not None:
        found.setdefault(place, not isinstance(value, str))


def _read_type(kind: T.DataType, arrow: pa.DataType, place: str, numbers: frozenset[str]) -> pa.DataType:
    """The types that Arrow parses, which `_finished` converts to the column's type."""
    if isinstance(kind, T.StructType):
        inside = [
            (each.name, _read_type(each.dataType, arrow.field(index).type, f"{place}.{each.name}", numbers))
            for index, each in enumerate(kind.fields)
        ]
        return pa.struct(inside)
    if isinstance(kind, T.ArrayType):
        return pa.list_(_read_type(kind.elementType, arrow.value_type, f"{place}[]", numbers))
    if isinstance(kind, T.FloatType):
        return pa.float64()  # rounded as Python does it
    if isinstance(kind, (T.DateType, T.BinaryType)):
        return pa.string()
    if isinstance(kind, _TIMES) and place in numbers:
        return pa.int64()
    return arrow


def _finished(array: pa.Array, kind: T.DataType, arrow: pa.DataType) -> pa.Array:
    if isinstance(kind, T.StructType):
        inside = [
            _finished(array.field(index), field.dataType, arrow.field(index).type)
            for index, field in enumerate(kind.fields)
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(inside, fields=list(arrow), mask=mask)
    if isinstance(kind, T.ArrayType):
        values = _finished(array.values, kind.elementType, arrow.value_type)
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(array.offsets, values, type=arrow, mask=mask)
    if isinstance(kind, _FLOATS):
        return _finite(array if array.type == arrow else array.cast(arrow))
    if isinstance(kind, _TIMES):
        return _times(array, arrow)
    if isinstance(kind, T.DateType):
        return _dates(array)
    if isinstance(kind, T.BinaryType):
        return _from_base64(array)
    if isinstance(kind, T.DecimalType):
        array.validate(full=True)  # Arrow reads 1e9 as a decimal(9,2)
    return array


def _finite(array: pa.Array) -> pa.Array:
    if not pc.all(pc.is_finite(array), min_count=0).as_py():
        raise Unfit  # indistinguishable from a value that is too large
    return array


def _times(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    micros = pc.multiply_checked(array, 1000) if pa.types.is_integer(array.type) else array.view(pa.int64())
    least, most = pc.min_max(micros).as_py().values()
    if least is not None and not FIRST_MICROS <= least <= most <= LAST_MICROS:
        raise Unfit
    return micros.view(arrow)


def _dates(array: pa.Array) -> pa.Array:
    days = array.cast(pa.date32())
    least = pc.min(days.view(pa.int32())).as_py()
    if least is not None and least * 86_400_000_000 < FIRST_MICROS:
        raise Unfit
    return days


def _from_base64(array: pa.Array) -> pa.Array:
    try:
        return pa.array(
            [None if each is None else base64_bytes(each) for each in array.to_pylist()], pa.binary()
        )
    except Misfit:
        raise Unfit from None


# CSV


class CsvReader:
    """One record of CSV in each value; what is empty is null."""

    def __init__(self, struct: T.StructType, arrow: pa.DataType, delimiter: str) -> None:
        self._struct = struct
        self._arrow = arrow
        self._delimiter = delimiter
        self._converts = [(field.name, from_text(field.dataType, field.name)) for field in struct.fields]
        self._hexadecimal = any(isinstance(field.dataType, T.IntegralType) for field in struct.fields)
        names = [str(index) for index in range(len(struct.fields))]
        self._read_options = pc_csv.ReadOptions(use_threads=False, column_names=names)
        self._parse_options = pc_csv.ParseOptions(
            delimiter=delimiter, quote_char=False, double_quote=False, ignore_empty_lines=False
        )
        self._convert_options = pc_csv.ConvertOptions(
            column_types={
                name: _csv_type(f.dataType, a.type) for name, f, a in zip(names, struct.fields, arrow)
            },
            null_values=[""],
            true_values=["true", "True", "TRUE"],
            false_values=["false", "False", "FALSE"],
            strings_can_be_null=True,
        )

    def one(self, data: bytes) -> Any:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise Misfit("it is not CSV: its bytes are not UTF-8") from None
        columns = self._columns(text)
        if len(columns) != len(self._converts):
            raise Misfit(f"it has {len(columns)} columns, not {len(self._converts)}")
        return {name: convert(text) for (name, convert), text in zip(self._converts, columns) if text != ""}

    def _columns(self, text: str) -> list[str]:
        line = text[: -2 if text.endswith("\r\n") else -1] if text.endswith("\n") else text
        if '"' not in line:
            if "\n" in line or "\r" in line:
                raise Misfit("it has several lines")
            return line.split(self._delimiter)
        try:
            lines = list(csv.reader([line], delimiter=self._delimiter, strict=True))
        except csv.Error as error:
            raise Misfit(f"it is not CSV: {error}") from None
        if len(lines) != 1:
            raise Misfit("it has several lines")
        return lines[0]

    def block(self, texts: pa.Array) -> pa.Array:
        texts.cast(pa.string())  # or an error: not UTF-8
        data = _joined(texts)
        view = data.to_pybytes()
        # Records with quotes are parsed one by one; only Arrow accepts hexadecimal numbers.
        if any(bad in view for bad in (b'"', b"\r", b"\0")) or view.count(b"\n") != len(texts):
            raise Unfit
        if self._hexadecimal and (b"0x" in view or b"0X" in view):
            raise Unfit
        if len(self._converts) > 1 and pc.min(pc.binary_length(texts)).as_py() == 0:
            raise Unfit  # Arrow reads an empty line as empty columns
        self._read_options.block_size = data.size + 1
        table = pc_csv.read_csv(
            pa.BufferReader(data), self._read_options, self._parse_options, self._convert_options
        )
        if table.num_rows != len(texts):
            raise Unfit
        columns = [
            _csv_finished(_single(column), field.dataType, self._arrow.field(index).type)
            for index, (column, field) in enumerate(zip(table.columns, self._struct.fields))
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self._arrow))


def _csv_type(kind: T.DataType, arrow: pa.DataType) -> pa.DataType:
    if isinstance(kind, T.FloatType):
        return pa.float64()
    if isinstance(kind, (T.DateType, T.BinaryType, *_TIMES)):
        return pa.string()
    return arrow


def _csv_finished(array: pa.Array, kind: T.DataType, arrow: pa.DataType) -> pa.Array:
    if isinstance(kind, _TIMES):
        try:
            array = array.cast(pa.int64())
        except pa.ArrowInvalid:
            try:
                array = array.cast(pa.timestamp("us", "UTC"))
            except pa.ArrowInvalid:
                array = array.cast(pa.timestamp("us"))  # no zone: UTC
    return _finished(array, kind, arrow)
