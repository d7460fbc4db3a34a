"""Finds the rows of a chunk of records that a search wants, without an object for each record where it can.

Text is searched for in whole columns at once; `matching` decides about the rows that this cannot decide:
letters that are equal to ASCII letters in other alphabets, and values decoded with the registry.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.admin.records.columns import Chunk, Record
from penstock.console.reads.decoding import Describe, decode
from penstock.console.reads.matching import BadSearch, Candidate, Matches, matcher
from penstock.errors import PenstockError

if TYPE_CHECKING:
    Rows = np.ndarray[Any, np.dtype[np.int64]]
    Flags = np.ndarray[Any, np.dtype[np.bool_]]

Find = Callable[[Chunk], "Rows"]
"""The rows of a chunk that match, in order."""

_EQUAL_ELSEWHERE = frozenset("iks")
"""Letters that other alphabets have too, if case is ignored: ı, the Kelvin sign, the long s."""
_EQUAL_TO_ASCII = frozenset("\u0130\u0131\u017f\u212a")


def finder(kind: str, text: str, describe: Describe | None) -> Find:
    """Raises BadSearch for an invalid expression. An empty text matches everything."""
    if not text:
        return lambda chunk: np.arange(len(chunk), dtype=np.int64)
    if kind == "sql":
        return _by_condition(text, describe)
    matches = matcher(kind, text)
    if kind == "text":
        return _by_text(text, matches, describe)
    return lambda chunk: _each(chunk, matches, describe, None)


def _by_condition(text: str, describe: Describe | None) -> Find:
    # Imported here, because DuckDB takes long to load.
    from penstock.admin.records.condition import BadCondition, Condition

    try:
        condition = Condition(text)
    except BadCondition as error:
        raise BadSearch(str(error)) from error
    if describe is None:
        return condition.rows

    def find(chunk: Chunk) -> Rows:
        headers = chunk.columns.column("headers")

        def decoded(part: str) -> Callable[[int, bytes], str | None]:
            def text_of(row: int, data: bytes) -> str | None:
                try:
                    found = describe(data, part, _pairs(headers[row].as_py()))
                except PenstockError:
                    return None
                return None if found is None else json.dumps(found[1], ensure_ascii=False, default=str)

            return text_of

        return condition.rows(chunk, decoded("key"), decoded("value"))

    return find


def _by_text(text: str, matches: Matches, describe: Describe | None) -> Find:
    needle = text.lower().encode() if text.isascii() else b""
    ambiguous = bool(_EQUAL_ELSEWHERE & set(text.lower()))

    def find(chunk: Chunk) -> Rows:
        columns = chunk.columns
        # Rows about which the bytes do not decide.
        unsure = _with_schema_id(columns)
        if not needle:
            if _EQUAL_TO_ASCII & set(text):
                return _each(chunk, matches, describe, None)
            for data, rows in _parts(columns):
                unsure[rows[_rows_with(data, _is_not_ascii)]] = True
            return _each(chunk, matches, describe, np.flatnonzero(unsure))
        found = np.zeros(len(chunk), np.bool_)
        for data, rows in _parts(columns):
            found[rows[_holding(data, needle)]] = True
            if ambiguous:
                unsure[rows[_rows_with(data, _is_not_ascii)]] = True
        unsure &= ~found
        if unsure.any():
            found[_each(chunk, matches, describe, np.flatnonzero(unsure))] = True
        return np.flatnonzero(found)

    return find


def _parts(columns: pa.RecordBatch) -> Iterator[tuple[pa.Array, Rows]]:
    """Keys, values, names and values of headers as columns, with the row of each item."""
    rows = np.arange(columns.num_rows, dtype=np.int64)
    for name in ("key", "value"):
        column = columns.column(name)
        if column.null_count < len(column):
            yield column, rows
    headers = columns.column("headers")
    counts = np.diff(headers.offsets.to_numpy())
    if counts.any():
        owners = np.repeat(rows, counts)
        pairs = headers.flatten()
        yield pairs.field(0).cast(pa.binary()), owners
        yield pairs.field(1), owners


def _bytes_of(column: pa.Array) -> tuple[memoryview, Rows]:
    """The bytes of a binary column, and where its items begin in them; the last number is the end."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * 4).astype(np.int64)
    if data is None:
        return memoryview(b""), ends - ends[0]
    return memoryview(data)[int(ends[0]) : int(ends[-1])], ends - ends[0]


def _holding(column: pa.Array, needle: bytes) -> list[int]:
    """The items with these letters, whose case is ignored; `needle` is in lower case."""
    data, bounds = _bytes_of(column)
    text = bytes(data).lower()
    ends: list[int] = bounds.tolist()
    found: list[int] = []
    at = text.find(needle)
    while at >= 0:
        row = int(np.searchsorted(bounds, at, "right")) - 1
        if at + len(needle) <= ends[row + 1]:
            found.append(row)
            at = text.find(needle, ends[row + 1])
        else:
            at = text.find(needle, at + 1)  # it reaches into the next item
    return found


def _rows_with(column: pa.Array, which: Callable[[Any], Flags]) -> Rows:
    data, bounds = _bytes_of(column)
    places = np.flatnonzero(which(np.frombuffer(data, np.uint8)))
    return np.unique(np.searchsorted(bounds, places, "right") - 1)


def _is_not_ascii(data: Any) -> Flags:
    flags: Flags = data >= 128
    return flags


def _with_schema_id(columns: pa.RecordBatch) -> Flags:
    """The rows whose key or value begins as one with a schema id does."""
    unsure = np.zeros(columns.num_rows, np.bool_)
    for name in ("key", "value"):
        column = columns.column(name)
        if column.null_count == len(column):
            continue
        data, bounds = _bytes_of(column)
        held = np.flatnonzero(np.diff(bounds))
        unsure[held] |= np.frombuffer(data, np.uint8)[bounds[held]] < 2
    return unsure


def _each(chunk: Chunk, matches: Matches, describe: Describe | None, rows: Rows | None) -> Rows:
    """Asks for each of these rows, or for all."""
    columns = chunk.columns
    if rows is not None:
        columns = columns.take(pa.array(rows))
    keys, values = columns.column("key").to_pylist(), columns.column("value").to_pylist()
    all_headers = columns.column("headers")
    plain = not len(all_headers.flatten())
    headers: Sequence[Any] = () if plain else all_headers.to_pylist()
    found = [
        row
        for row, (key, value) in enumerate(zip(keys, values, strict=True))
        if matches(_candidate(key, value, () if plain else _pairs(headers[row]), describe))
    ]
    return np.array(found, np.int64) if rows is None else rows[found]


def _candidate(
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
    describe: Describe | None,
) -> Candidate:
    raw: list[bytes | None] = [key, value]
    for name, each in headers:
        raw += [name.encode(errors="replace"), each]
    return Candidate(
        lambda: decode(key, describe, "key", headers), lambda: decode(value, describe, "value", headers), raw
    )


def _pairs(headers: Any) -> list[tuple[str, bytes | None]]:
    return [(one["key"], one["value"]) for one in headers or ()]


def newest(chunk: Chunk, rows: Rows, count: int) -> list[Record]:
    """At most `count` records of these rows: the newest."""
    if len(rows) > count:
        times = chunk.columns.column("timestamp").view(pa.int64()).to_numpy()[rows]
        # The last of equal times is the newest: within a partition, offsets grow.
        rows = np.sort(rows[np.argsort(times, kind="stable")[-count:]])
    return [chunk.record(int(row)) for row in rows]
