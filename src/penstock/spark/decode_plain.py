"""The records of batches as columns of numbers, in plain Python: the reference of `decode_compiled.py`.

Also what reads where the compiled twin is not worth loading: the first records of a short-lived process.
Numbers wrap as those of Java and of compiled code do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# The columns of `batches` in `walk`.
START, END, COUNT, BASE_OFFSET, BASE_TIMESTAMP, LOG_APPEND_TIME = range(6)

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
    row = 0
    for index, batch in enumerate(batches.tolist()):
        try:
            pos, end = batch[START], batch[END]
            for _ in range(batch[COUNT]):
                size, pos = _varint(source, pos, end)
                record_end = pos + size
                if size < 0 or record_end > end:
                    raise _Malformed
                delta, pos = _varlong(source, pos + 1, record_end)
                if batch[LOG_APPEND_TIME]:
                    delta = 0
                times[row] = _wrap(batch[BASE_TIMESTAMP] + delta)
                delta, pos = _varint(source, pos, record_end)
                offsets[row] = _wrap(batch[BASE_OFFSET] + delta)
                key_nulls[row], keys[2 * row], pos = _field(source, pos, record_end)
                keys[2 * row + 1] = pos
                value_nulls[row], values[2 * row], pos = _field(source, pos, record_end)
                values[2 * row + 1] = pos
                number, pos = _varint(source, pos, record_end)
                if number < 0:
                    raise _Malformed
                headers_at[row] = pos
                header_counts[row] = number
                for _ in range(number):
                    null, _, pos = _field(source, pos, record_end)
                    if null:
                        raise _Malformed
                    _, _, pos = _field(source, pos, record_end)
                if pos != record_end:
                    raise _Malformed
                row += 1
            if pos != end:
                raise _Malformed
        except _Malformed:
            return index
    return -1


def walk_headers(
    data: Ints, headers_at: Ints, header_counts: Ints, keys: Ints, values: Ints, value_nulls: Ints
) -> None:
    """The positions of the headers' names and values, for records that `walk` found sound."""
    source = data.tobytes()
    end = len(source)
    row = 0
    for at, number in zip(headers_at.tolist(), header_counts.tolist(), strict=True):
        pos = at
        for _ in range(number):
            _, keys[2 * row], pos = _field(source, pos, end)
            keys[2 * row + 1] = pos
            value_nulls[row], values[2 * row], pos = _field(source, pos, end)
            values[2 * row + 1] = pos
            row += 1


def _field(source: bytes, pos: int, end: int) -> tuple[bool, int, int]:
    """Whether it is null, where it begins, where it ends."""
    size, pos = _varint(source, pos, end)
    if size < 0:
        if size != -1:
            raise _Malformed
        return True, pos, pos
    if size > end - pos:
        raise _Malformed
    return False, pos, pos + size


def _varint(source: bytes, pos: int, end: int) -> tuple[int, int]:
    raw = 0
    for shift in (0, 7, 14, 21, 28):
        if pos >= end:
            raise _Malformed
        byte = source[pos]
        pos += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), pos
    raise _Malformed


def _varlong(source: bytes, pos: int, end: int) -> tuple[int, int]:
    raw = 0
    for shift in range(0, 70, 7):
        if pos >= end:
            raise _Malformed
        byte = source[pos]
        pos += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            raw &= _INT64
            return (raw >> 1) ^ -(raw & 1), pos
    raise _Malformed


def _wrap(number: int) -> int:
    return ((number + _SIGN64) & _INT64) - _SIGN64
