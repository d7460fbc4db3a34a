"""The records of batches as columns of numbers, in plain Python: the reference for `decode_compiled.py`.

Also used when the compiled module is not worth loading: for the first records of a short-lived process.
Numbers overflow as in Java and in compiled code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# The columns of `batches` in `walk`.
START, END, COUNT, BASE_OFFSET, BASE_TIMESTAMP, LOG_APPEND_TIME = range(6)

_INT32 = (1 << 32) - 1
_INT64 = (1 << 64) - 1
_SIGN64 = 1 << 63

Ints = np.ndarray[Any, np.dtype[Any]]


class _Malformed(Exception):
    pass


def walk(
    data: Ints,
    batches: Ints,
    offsets: Ints,
    times: Ints,
    keys: Ints,
    key_nulls: Ints,
    values: Ints,
    value_nulls: Ints,
    headers_at: Ints,
    header_counts: Ints,
) -> int:
    """Fill the columns with the records of `batches`, in order; -1, or the row of the first malformed batch.

    `keys` and `values` get two positions in `data` for each record, where it begins and ends; `headers_at`
    the position after the number of headers.
    """
    source = data.tobytes()
    rows: list[tuple[int, ...]] = []
    for index, batch in enumerate(batches.tolist()):
        try:
            _walk_batch(source, batch, rows)
        except (_Malformed, IndexError):
            return index
    columns = (offsets, times, keys[0::2], keys[1::2], key_nulls, values[0::2], values[1::2], value_nulls)
    for column, numbers in zip((*columns, headers_at, header_counts), zip(*rows)):
        column[:] = numbers
    return -1


def _walk_batch(source: bytes, batch: list[int], rows: list[tuple[int, ...]]) -> None:
    pos, end = batch[START], batch[END]
    base_offset, base_timestamp, append_time = (
        batch[BASE_OFFSET],
        batch[BASE_TIMESTAMP],
        batch[LOG_APPEND_TIME],
    )
    for _ in range(batch[COUNT]):
        size, pos = _varint(source, pos)
        record_end = pos + size
        if size < 0 or record_end > end:
            raise _Malformed
        time, pos = _varlong(source, pos + 1)
        offset, pos = _varint(source, pos)
        size, key = _varint(source, pos)
        if size < -1:
            raise _Malformed
        key_end = key + size if size > 0 else key
        value_size, value = _varint(source, key_end)
        if value_size < -1:
            raise _Malformed
        value_end = value + value_size if value_size > 0 else value
        number, headers = _varint(source, value_end)
        if number < 0:
            raise _Malformed
        pos = headers
        for _ in range(number):
            name_size, pos = _varint(source, pos)
            if name_size < 0:
                raise _Malformed
            header_size, pos = _varint(source, pos + name_size)
            if header_size < -1:
                raise _Malformed
            pos += max(header_size, 0)
            if pos > record_end:
                raise _Malformed
        # Positions only increase: one check of the last finds any that went past the end.
        if pos != record_end:
            raise _Malformed
        rows.append(
            (
                _wrap(base_offset + offset),
                base_timestamp if append_time else _wrap(base_timestamp + time),
                key,
                key_end,
                size < 0,
                value,
                value_end,
                value_size < 0,
                headers,
                number,
            )
        )
    if pos != end:
        raise _Malformed


def walk_headers(
    data: Ints, headers_at: Ints, header_counts: Ints, keys: Ints, values: Ints, value_nulls: Ints
) -> None:
    """The positions of the headers' names and values, for records that `walk` has validated."""
    source = data.tobytes()
    row = 0
    for at, number in zip(headers_at.tolist(), header_counts.tolist(), strict=True):
        pos = at
        for _ in range(number):
            size, pos = _varint(source, pos)
            keys[2 * row] = pos
            pos += size
            keys[2 * row + 1] = pos
            size, pos = _varint(source, pos)
            value_nulls[row] = size < 0
            values[2 * row] = pos
            pos += max(size, 0)
            values[2 * row + 1] = pos
            row += 1


def _varint(source: bytes, pos: int) -> tuple[int, int]:
    byte = source[pos]
    pos += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), pos
    raw = byte & 127
    for shift in (7, 14, 21, 28):
        byte = source[pos]
        pos += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            raw &= _INT32
            return (raw >> 1) ^ -(raw & 1), pos
    raise _Malformed


def _varlong(source: bytes, pos: int) -> tuple[int, int]:
    raw = 0
    for shift in range(0, 70, 7):
        byte = source[pos]
        pos += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            raw &= _INT64
            return (raw >> 1) ^ -(raw & 1), pos
    raise _Malformed


def _wrap(number: int) -> int:
    return ((number + _SIGN64) & _INT64) - _SIGN64
