"""Columns of bytes, the building blocks of all encoders. They process whole columns, never single rows in
Python.

An encoder takes an Arrow array without nulls and returns pieces: arrays of bytes, or one value for all rows.
A record is the concatenation of its pieces. `nullable` wraps an encoder to handle nulls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.errors import BadRow

Piece: TypeAlias = Any
"""An array of Arrow's, or a scalar for all rows (pyarrow has no types of its own)."""
Encode = Callable[[pa.Array], list[Piece]]
Numbers = np.ndarray[Any, Any]

_EMPTY = pa.scalar(b"", pa.binary())
_MOST_BYTES = 2**31 - 1


def always(data: bytes) -> pa.Scalar:
    return pa.scalar(data, pa.binary())


def from_sizes(sizes: Numbers, data: Any) -> pa.Array:
    """Rows of these sizes, concatenated in `data`."""
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    return _from_ends(ends, data)


def _from_ends(ends: Numbers, data: Any) -> pa.Array:
    if ends[-1] > _MOST_BYTES:
        raise BadRow(
            "a batch of rows takes more than 2 GiB: lower spark.sql.execution.arrow.maxRecordsPerBatch"
        )
    offsets = pa.py_buffer(ends.astype(np.int32))
    buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(np.ascontiguousarray(data))
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, offsets, buffer])


def _ends(column: pa.Array) -> tuple[Numbers, pa.Buffer]:
    """Offsets and data of a column of bytes without nulls."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return ends, data if data is not None else pa.py_buffer(b"")


def joined(pieces: Sequence[Piece], rows: int) -> pa.Array:
    """One column of the pieces of each row."""
    if len(pieces) == 1 and isinstance(pieces[0], pa.Array):
        return pieces[0]
    if not any(isinstance(piece, pa.Array) for piece in pieces):
        whole = b"".join(piece.as_py() for piece in pieces)
        return from_sizes(np.full(rows, len(whole)), np.frombuffer(whole * rows, np.uint8))
    return pc.binary_join_element_wise(*pieces, _EMPTY)


def spread(dense: pa.Array, valid: Numbers) -> pa.Array:
    """As many rows as `valid`: those of `dense` where it is true, empty ones elsewhere. Copies no bytes."""
    ends, data = _ends(dense)
    sizes = np.zeros(len(valid), np.int64)
    sizes[valid] = np.diff(ends)
    wide = np.full(len(valid) + 1, ends[0], np.int64)
    wide[1:] += np.cumsum(sizes)
    return _from_ends(wide, data)


def grouped(items: pa.Array, lengths: Numbers) -> pa.Array:
    """Rows with these numbers of items, concatenated. Copies no bytes."""
    ends, data = _ends(items)
    places = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=places[1:])
    return _from_ends(ends[places].astype(np.int64), data)


def nullable(encode: Encode, before: bytes, otherwise: bytes) -> Encode:
    """Prefixes each value with `before`, and writes `otherwise` for null."""
    first, instead = always(before), always(otherwise)

    def pieces(array: pa.Array) -> list[Piece]:
        if not array.null_count:
            return [first, *encode(array)] if before else encode(array)
        there = array.is_valid()
        values = array.drop_null()
        dense = joined(encode(values), len(values))
        found: list[Piece] = [pc.if_else(there, first, instead)] if before or otherwise else []
        return [*found, spread(dense, flags(there))]

    return pieces


def required(encode: Encode, place: str, why: str) -> Encode:
    def pieces(array: pa.Array) -> list[Piece]:
        if array.null_count:
            raise BadRow(f"'{place}' is null in the data, {why}")
        return encode(array)

    return pieces


def flags(array: pa.Array) -> Numbers:
    found: Numbers = array.to_numpy(zero_copy_only=False)
    return found


def lists(array: pa.Array) -> tuple[Numbers, pa.Array]:
    """How many items each row has, and all items. Maps are lists of entries."""
    if pa.types.is_map(array.type):
        entry = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
        array = array.cast(pa.list_(entry))
    lengths = pc.list_value_length(array).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths, array.flatten()


def whole_numbers(array: pa.Array) -> Numbers:
    """Integers, days and microseconds."""
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    elif pa.types.is_date32(array.type):
        array = array.view(pa.int32())
    found: Numbers = array.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def zigzag(numbers: Numbers) -> Numbers:
    found: Numbers = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    return found


def varints(numbers: Numbers) -> pa.Array:
    """Unsigned varints: seven bits per byte, the lowest first."""
    numbers = numbers.astype(np.uint64, copy=False)
    most = int(numbers.max()) if len(numbers) else 0
    if most < 0x80:
        return from_sizes(np.ones(len(numbers), np.int64), numbers.astype(np.uint8))
    sizes = np.ones(len(numbers), np.int64)
    widest = 1
    while most >> (7 * widest):
        sizes += numbers >= np.uint64(1 << (7 * widest))
        widest += 1
    grid = np.empty((len(numbers), widest), np.uint8)
    for place in range(widest):
        septet = (numbers >> np.uint64(7 * place)).astype(np.uint8) & np.uint8(0x7F)
        grid[:, place] = septet | ((sizes > place + 1).astype(np.uint8) << np.uint8(7))
    return from_sizes(sizes, grid[np.arange(widest) < sizes[:, None]])


def little_endian(array: pa.Array) -> pa.Array:
    """Floats and doubles as they are."""
    values = np.ascontiguousarray(array.to_numpy(zero_copy_only=False))
    return from_sizes(np.full(len(values), values.itemsize), values.view(np.uint8))


def bits(array: pa.Array) -> pa.Array:
    return from_sizes(np.ones(len(array), np.int64), flags(array).astype(np.uint8))


def as_bytes(array: pa.Array) -> pa.Array:
    """Strings as the bytes they are."""
    if pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type):
        array = array.cast(pa.string() if pa.types.is_large_string(array.type) else pa.binary())
    return array.view(pa.binary()) if pa.types.is_string(array.type) else array


def sizes_of(column: pa.Array) -> Numbers:
    found: Numbers = pc.binary_length(column).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def big_endian(array: pa.Array) -> Numbers:
    """The unscaled values of decimals: 16 bytes of two's complement for each."""
    raw = np.frombuffer(array.buffers()[1], np.uint8)
    rows: Numbers = raw[16 * array.offset : 16 * (array.offset + len(array))].reshape(-1, 16)[:, ::-1]
    return rows


def shortest(rows: Numbers) -> pa.Array:
    """The same numbers without redundant sign bytes."""
    sign = rows[:, 0] >> 7
    differs = rows != (sign * np.uint8(255))[:, None]
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), 16)
    at = np.minimum(first, 15)
    top = rows[np.arange(len(rows)), at] >> 7
    first = np.where((first == 16) | (top == sign), at, at - 1)
    return from_sizes(16 - first, rows[np.arange(16) >= first[:, None]])
