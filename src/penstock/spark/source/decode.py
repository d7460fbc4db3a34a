"""Decodes record batches to Arrow columns: one copy of the bytes, and no Python object per record.

Two equivalent modules, `decode_plain` and `decode_compiled`, find the positions of keys, values and headers;
Arrow gathers them. Loading compiled code is only worthwhile for many records, so a process loads it when it
has decoded or expects enough.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.client.fetched_batches import Batch
from penstock.errors import InvalidRecord
from penstock.spark.source import decode_plain
from penstock.spark.source.decode_plain import Ints
from penstock.wire.batches import compression
from penstock.wire.batches.batch import MAX_UNPACKED_BYTES

# Loading the compiled module takes as long as the plain one needs for about this many records.
COMPILE_FROM = 150_000
_SMALLEST_RECORD = 7  # length, attributes, two deltas, key, value and header count: a byte each
_LARGEST_SOURCE = 2**31 - 1  # positions are Arrow's int32 offsets
_UNPACKED_AT_ONCE = 32 << 20  # compressed batches of one response may be much larger uncompressed

# The names and nullability that Spark gives to array<struct<key: string, value: binary>>: it compares them.
HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))


class Columns(NamedTuple):
    """Records, one per row. `keys` and `values` are start and end positions in `source`, two for each row."""

    source: Any
    offsets: Ints
    timestamps: Ints
    """Milliseconds."""
    timestamp_types: Ints
    keys: Ints
    key_nulls: Ints
    values: Ints
    value_nulls: Ints
    headers_at: Ints
    header_counts: Ints


class BatchDecoder:
    """Decodes batches with the plain or the compiled module, depending on the number of records."""

    def __init__(self, expected: int = 0) -> None:
        """`expected` is the number of records that the caller will decode."""
        self._walker: Any = _choose(expected)

    def decode(self, data: memoryview, batches: Sequence[Batch]) -> Iterator[Columns]:
        """The records of `batches`, which are in `data`; in several pieces if they are large when
        uncompressed.

        InvalidRecord names a malformed batch.
        """
        for source, some in _unpacked(data, batches):
            yield self._columns(source, some)

    def _columns(self, source: Any, batches: Sequence[Batch]) -> Columns:
        table = np.array(
            [
                (b.start, b.end, b.records, b.base_offset, b.base_timestamp, b.log_append_time)
                for b in batches
            ],
            np.int64,
        )
        counts = table[:, decode_plain.COUNT]
        rows = int(counts.sum())
        numbers = np.frombuffer(source, np.uint8)
        columns = Columns(
            source=source,
            offsets=np.empty(rows, np.int64),
            timestamps=np.empty(rows, np.int64),
            timestamp_types=np.repeat(table[:, decode_plain.LOG_APPEND_TIME].astype(np.int32), counts),
            keys=np.empty(2 * rows, np.int32),
            key_nulls=np.empty(rows, np.bool_),
            values=np.empty(2 * rows, np.int32),
            value_nulls=np.empty(rows, np.bool_),
            headers_at=np.empty(rows, np.int32),
            header_counts=np.empty(rows, np.int32),
        )
        failed = self._walker.walk(
            numbers,
            table,
            columns.offsets,
            columns.timestamps,
            columns.keys,
            columns.key_nulls,
            columns.values,
            columns.value_nulls,
            columns.headers_at,
            columns.header_counts,
        )
        if failed >= 0:
            raise InvalidRecord(
                f"a record of the batch at offset {batches[failed].base_offset} is malformed: "
                "its lengths and its bytes do not fit together"
            )
        return columns

    def headers(self, columns: Columns, rows: Ints | None) -> pa.Array:
        """The headers of these rows, or of all, as `HEADERS`: an empty list where a record has none."""
        at, counts = columns.headers_at, columns.header_counts
        if rows is not None:
            at, counts = at[rows], counts[rows]
        bounds = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=bounds[1:])
        total = int(bounds[-1])
        names, values = np.empty(2 * total, np.int32), np.empty(2 * total, np.int32)
        nulls = np.empty(total, np.bool_)
        self._walker.walk_headers(np.frombuffer(columns.source, np.uint8), at, counts, names, values, nulls)
        fields = [
            _text(gather(columns.source, names, None, None)),
            gather(columns.source, values, nulls, None),
        ]
        pairs = pa.StructArray.from_arrays(fields, fields=list(HEADERS.value_type))
        return pa.Array.from_buffers(HEADERS, len(counts), [None, pa.py_buffer(bounds)], children=[pairs])


def gather(source: Any, bounds: Ints, nulls: Ints | None, rows: Ints | None) -> pa.Array:
    """A binary column of ranges of `source`; `bounds` has two positions for each row."""
    count = len(bounds) // 2
    if nulls is not None and nulls.all():
        return pa.nulls(count if rows is None else len(rows), pa.binary())
    # One array of the ranges and the gaps between them; Arrow copies every second item.
    ends = np.empty(2 * count + 1, np.int32)
    ends[:-1] = bounds
    ends[-1] = bounds[-1] if count else 0
    everything = pa.Array.from_buffers(
        pa.binary(), 2 * count, [None, pa.py_buffer(ends), pa.py_buffer(source)]
    )
    places = np.arange(0, 2 * count, 2, dtype=np.int32) if rows is None else (2 * rows).astype(np.int32)
    mask = None
    if nulls is not None and nulls.any():
        mask = nulls if rows is None else nulls[rows]
    return everything.take(pa.array(places, mask=mask))


def _text(names: pa.Array) -> pa.Array:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        # Kafka accepts any bytes as a header's name; Java readers see replacement characters.
        return pa.array([name.as_py().decode("utf-8", "replace") for name in names], pa.string())


def _unpacked(data: memoryview, batches: Sequence[Batch]) -> Iterator[tuple[Any, list[Batch]]]:
    """Bytes with uncompressed records, and their batches with positions in them."""
    if not any(batch.codec for batch in batches):
        yield data, [_checked(batch) for batch in batches]
        return
    parts: list[Any] = []
    placed: list[Batch] = []
    size = 0
    for batch in batches:
        part: Any = data[batch.start : batch.end]
        if batch.codec:
            part = compression.decompress(batch.codec, part, MAX_UNPACKED_BYTES)
        if size and size + len(part) > _UNPACKED_AT_ONCE:
            yield b"".join(parts), placed
            parts, placed, size = [], [], 0
        placed.append(_checked(batch._replace(start=size, end=size + len(part), codec=compression.NONE)))
        parts.append(part)
        size += len(part)
    yield b"".join(parts), placed


def _checked(batch: Batch) -> Batch:
    """Validates that the number of records is possible for the batch's size, because columns are allocated
    for them.
    """
    if batch.records * _SMALLEST_RECORD > batch.end - batch.start:
        raise InvalidRecord(
            f"the batch at offset {batch.base_offset} has {batch.end - batch.start} bytes "
            f"for {batch.records} records"
        )
    if batch.end > _LARGEST_SOURCE:
        raise InvalidRecord(f"the batch at offset {batch.base_offset} ends {batch.end} bytes into an answer")
    return batch


_compiled: Any = None
_met = 0


def _choose(expected: int) -> Any:
    global _compiled, _met
    _met += expected
    if _compiled is None and _met >= COMPILE_FROM:
        try:
            from penstock.spark.source import decode_compiled

            _compiled = decode_compiled
        except ImportError as error:
            warnings.warn(f"records are decoded without numba, slowly: {error}", stacklevel=3)
            _compiled = decode_plain
    return decode_plain if _compiled is None else _compiled
