"""`read_range`: the records of one partition from one offset to another, as Arrow batches for Spark.

While one response is decoded, the next is already requested. A range is read to its end whatever happens to
the brokers, or an error has the reason; nothing is skipped silently.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from penstock.client import EARLIEST, LATEST, READ_UNCOMMITTED, Cluster, FetchedBytes, PendingFetch
from penstock.client.fetched_batches import Batch, scan
from penstock.errors import (
    CorruptMessage,
    InvalidRecord,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from penstock.spark.errors import DataGone, LogCut, NotCommitted, SparkError
from penstock.spark.source.decode import HEADERS, BatchDecoder, Columns, gather

TIMESTAMP = pa.timestamp("us", tz="UTC")
ARROW_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestampType", pa.int32()),
    ]
)
ARROW_SCHEMA_WITH_HEADERS = ARROW_SCHEMA.append(pa.field("headers", HEADERS))

DEFAULT_BATCH_ROWS = 100_000
_LARGEST_FETCH = 2**31 - 1
_LARGEST_MS = (2**63 - 1) // 1000


def read_range(
    cluster: Cluster,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    headers: bool = False,
    isolation: int | None = None,
    batch_rows: int = DEFAULT_BATCH_ROWS,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[pa.RecordBatch]:
    """The records with offsets from `start` to before `end`, in batches of at most `batch_rows`.

    Control records are left out, with read_committed also aborted ones. Raises DataGone if the log starts
    after an offset that is still to be read, LogCut if it keeps ending before `end`.
    """
    level = cluster.settings.isolation if isolation is None else isolation
    patience = cluster.settings.api_timeout_ms / 1000
    name = f"{topic}-{partition}"
    build = _Builder(topic, partition, headers, BatchDecoder(end - start))
    position = start
    max_bytes = cluster.settings.fetch_bytes
    moved = monotonic()
    pending: PendingFetch | None = None
    try:
        while position < end:
            if pending is None:
                pending = cluster.start_fetch(
                    topic, partition, position, max_bytes=max_bytes, isolation=level
                )
            fetched, pending = pending.result(), None
            if fetched.error is not None:
                raise _out_of_range(cluster, topic, partition, position, end)
            with _naming(name):
                found = scan(
                    fetched.data,
                    position,
                    end,
                    isolation=level,
                    aborted=fetched.aborted,
                    check_crcs=cluster.settings.check_crcs,
                )
            first, position = position, found.next_offset
            if position > first:
                moved = monotonic()
            elif fetched.data:
                max_bytes = min(2 * max_bytes, _LARGEST_FETCH)  # not even one complete batch
            elif monotonic() - moved > patience:
                raise _nothing_came(topic, partition, position, end, fetched)
            if position < end:
                pending = cluster.start_fetch(
                    topic, partition, position, max_bytes=max_bytes, isolation=level
                )
            if found.batches:
                with _naming(name):
                    pieces = build.pieces(fetched.data, found.batches, first, end)
                    for piece in pieces:
                        for row in range(0, piece.num_rows, batch_rows):
                            yield piece.slice(row, batch_rows)
    finally:
        if pending is not None:
            pending.drop()


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Adds the partition to errors in its bytes."""
    try:
        yield
    except (CorruptMessage, InvalidRecord, UnsupportedForMessageFormat, UnsupportedCompressionType) as error:
        raise type(error)(f"{name}: {error.message}") from error


def _out_of_range(cluster: Cluster, topic: str, partition: int, position: int, end: int) -> SparkError:
    place = (topic, partition)
    log_start = cluster.list_offsets({place: EARLIEST})[place]
    if log_start is not None and position < log_start:
        return DataGone(topic, partition, position, log_start)
    log_end = cluster.list_offsets({place: LATEST}, READ_UNCOMMITTED)[place]
    return LogCut(
        f"{topic}-{partition} was to be read from offset {position} to {end}, but it ends at {log_end}: "
        "was the topic deleted and created again, or did it lose records in an unclean election?"
    )


def _nothing_came(topic: str, partition: int, position: int, end: int, fetched: FetchedBytes) -> SparkError:
    what = (
        f"{topic}-{partition} was to be read to offset {end}, but nothing came after {position} "
        "for default.api.timeout.ms"
    )
    if fetched.high_watermark < end:
        return LogCut(f"{what}: its high watermark is {fetched.high_watermark}")
    return NotCommitted(
        f"{what}: a transaction is open from offset {fetched.last_stable_offset} on. "
        "`penstock transactions` or Kafka's kafka-transactions.sh find it and end it"
    )


class _Builder:
    """Builds Arrow batches from decoded records."""

    def __init__(self, topic: str, partition: int, headers: bool, decoder: BatchDecoder) -> None:
        self._topic = topic.encode()
        self._partition = partition
        self._headers = headers
        self._schema = ARROW_SCHEMA_WITH_HEADERS if headers else ARROW_SCHEMA
        self._decoder = decoder
        self._constant = 0  # the number of rows of the two columns below
        self._topics: pa.Array = None
        self._partitions: pa.Array = None

    def pieces(
        self, data: memoryview, batches: Sequence[Batch], start: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        for columns in self._decoder.decode(data, batches):
            yield self._arrow(columns, start, end)

    def _arrow(self, columns: Columns, start: int, end: int) -> pa.RecordBatch:
        offsets, times, types = columns.offsets, columns.timestamps, columns.timestamp_types
        rows = None
        if len(offsets) and (offsets[0] < start or offsets[-1] >= end):
            # The first and the last batch may contain more than requested.
            rows = np.flatnonzero((offsets >= start) & (offsets < end))
            offsets, times, types = offsets[rows], times[rows], types[rows]
        count = len(offsets)
        self._grow(count)
        arrays = [
            gather(columns.source, columns.keys, columns.key_nulls, rows),
            gather(columns.source, columns.values, columns.value_nulls, rows),
            self._topics.slice(0, count),
            self._partitions.slice(0, count),
            pa.array(offsets),
            # A producer may send any number as a timestamp: it is limited to the range of microseconds.
            pa.array(np.clip(times, -_LARGEST_MS, _LARGEST_MS) * 1000).view(TIMESTAMP),
            pa.array(types),
        ]
        if self._headers:
            arrays.append(self._decoder.headers(columns, rows))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _grow(self, count: int) -> None:
        """Topic and partition are the same in every row: created once, and sliced."""
        if count <= self._constant and self._topics is not None:
            return
        ends = np.arange(count + 1, dtype=np.int32) * len(self._topic)
        self._topics = pa.Array.from_buffers(
            pa.string(), count, [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(self._topic * count)]
        )
        self._partitions = pa.array(np.full(count, self._partition, np.int32))
        self._constant = count
