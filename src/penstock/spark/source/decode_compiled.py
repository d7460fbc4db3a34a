"""`decode_plain.py` for numba's compiler: the same columns, some fifty times as fast.

Importing this module takes most of a second in a new process, and compiling it longer, once per machine:
numba stores the code next to this file, or in the user's cache directory if that is not writable. Compiled
code has no bounds checks: every position is compared with the end before it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np

from penstock.spark.source.decode_plain import (
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COUNT,
    END,
    LOG_APPEND_TIME,
    START,
    Ints,
)

F = TypeVar("F", bound=Callable[..., Any])


def _compile(function: F) -> F:
    options: Any = {"nogil": True, "error_model": "numpy", "boundscheck": False}
    try:
        compiled: F = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no directory for the cache can be written
        compiled = numba.njit(**options)(function)
    return compiled


@_compile
def _varint(data: Ints, pos: int, end: int) -> Any:
    """The number, and the position after it; that is -1 if there is no number."""
    raw = np.uint32(0)
    for shift in range(0, 35, 7):
        if pos >= end:
            return 0, -1
        byte = data[pos]
        pos += 1
        raw |= np.uint32(byte & 127) << np.uint32(shift)
        if byte < 128:
            return np.int64(np.int32(raw >> np.uint32(1)) ^ -np.int32(raw & np.uint32(1))), pos
    return 0, -1


@_compile
def _varlong(data: Ints, pos: int, end: int) -> Any:
    raw = np.uint64(0)
    for shift in range(0, 70, 7):
        if pos >= end:
            return 0, -1
        byte = data[pos]
        pos += 1
        raw |= np.uint64(byte & 127) << np.uint64(shift)
        if byte < 128:
            return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1)), pos
    return 0, -1


@_compile
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
    """See `decode_plain.walk`."""
    row = 0
    for index in range(len(batches)):
        pos, end = batches[index, START], batches[index, END]
        base_offset, base_timestamp = batches[index, BASE_OFFSET], batches[index, BASE_TIMESTAMP]
        append_time = batches[index, LOG_APPEND_TIME]
        for _ in range(batches[index, COUNT]):
            size, pos = _varint(data, pos, end)
            if pos < 0 or size < 0 or size > end - pos:
                return index
            record_end = pos + size
            delta, pos = _varlong(data, pos + 1, record_end)
            if pos < 0:
                return index
            times[row] = base_timestamp if append_time else base_timestamp + delta
            delta, pos = _varint(data, pos, record_end)
            if pos < 0:
                return index
            offsets[row] = base_offset + delta
            size, pos = _varint(data, pos, record_end)
            if pos < 0 or size < -1 or size > record_end - pos:
                return index
            key_nulls[row] = size < 0
            keys[2 * row] = pos
            pos += max(size, 0)
            keys[2 * row + 1] = pos
            size, pos = _varint(data, pos, record_end)
            if pos < 0 or size < -1 or size > record_end - pos:
                return index
            value_nulls[row] = size < 0
            values[2 * row] = pos
            pos += max(size, 0)
            values[2 * row + 1] = pos
            number, pos = _varint(data, pos, record_end)
            if pos < 0 or number < 0:
                return index
            headers_at[row] = pos
            header_counts[row] = number
            for _ in range(number):
                size, pos = _varint(data, pos, record_end)
                if pos < 0 or size < 0 or size > record_end - pos:
                    return index
                pos += size
                size, pos = _varint(data, pos, record_end)
                if pos < 0 or size < -1 or size > record_end - pos:
                    return index
                pos += max(size, 0)
            if pos != record_end:
                return index
            row += 1
        if pos != end:
            return index
    return -1


@_compile
def walk_headers(
    data: Ints, headers_at: Ints, header_counts: Ints, keys: Ints, values: Ints, value_nulls: Ints
) -> None:
    """See `decode_plain.walk_headers`."""
    end = len(data)
    row = 0
    for index in range(len(headers_at)):
        pos = headers_at[index]
        for _ in range(header_counts[index]):
            size, pos = _varint(data, pos, end)
            keys[2 * row] = pos
            pos += size
            keys[2 * row + 1] = pos
            size, pos = _varint(data, pos, end)
            value_nulls[row] = size < 0
            values[2 * row] = pos
            pos += max(size, 0)
            values[2 * row + 1] = pos
            row += 1
