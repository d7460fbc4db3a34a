"""Reads partitions as Arrow columns: no Python object for a record until somebody asks for one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.admin.cluster import Cluster
from penstock.admin.failure import CommandFailed, UnknownTopic
from penstock.admin.reader import StopRequest
from penstock.admin.wire_client import client_settings
from penstock.client import ClientError
from penstock.client import Cluster as Client
from penstock.errors import PenstockError, UnknownTopicOrPartition
from penstock.spark.errors import DataGone
from penstock.spark.source.reading import read_range

_AT_ONCE = 4
"""How many partitions are read at the same time: each has a response in flight and one in memory."""
_ROWS = 32_768


@dataclass(frozen=True, slots=True)
class Record:
    """One record, with the methods of confluent-kafka's Message that this program uses."""

    topic_name: str
    partition_number: int
    offset_number: int
    key_bytes: bytes | None
    value_bytes: bytes | None
    time: tuple[int, int]
    """The type of the timestamp and milliseconds, as `Message.timestamp` returns them."""
    header_list: Sequence[tuple[str, bytes | None]]

    def topic(self) -> str | None:
        return self.topic_name

    def partition(self) -> int | None:
        return self.partition_number

    def offset(self) -> int | None:
        return self.offset_number

    def key(self) -> bytes | None:
        return self.key_bytes

    def value(self) -> bytes | None:
        return self.value_bytes

    def timestamp(self) -> tuple[int, int]:
        return self.time

    def headers(self) -> Any:
        return self.header_list or None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of one partition, in order: the columns of `penstock.spark.source` with headers."""

    topic: str
    partition: int
    columns: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def record(self, row: int) -> Record:
        columns = self.columns
        stamp = columns.column("timestamp")[row].value // 1000
        headers = columns.column("headers")[row].as_py()
        return Record(
            self.topic,
            self.partition,
            columns.column("offset")[row].as_py(),
            columns.column("key")[row].as_py(),
            columns.column("value")[row].as_py(),
            # -1 is no timestamp; Spark's types begin at 0 for the producer's.
            (0, -1) if stamp < 0 else (columns.column("timestampType")[row].as_py() + 1, stamp),
            [(one["key"], one["value"]) for one in headers],
        )


def read_columns(
    cluster: Cluster,
    topic: str,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    stop: StopRequest,
    on_deleted: Callable[[int, int], object] | None = None,
) -> Iterator[Chunk]:
    """Every record in the range, read_uncommitted, in order within each partition.

    What retention deletes before it is read raises CommandFailed, or is reported to `on_deleted` with the
    partition and the number of offsets.
    """
    waiting = deque(p for p in sorted(starts) if starts[p] < ends[p])
    with ExitStack() as stack:
        client = stack.enter_context(Client(client_settings(cluster)))
        reading: deque[tuple[int, Iterator[pa.RecordBatch]]] = deque()
        position = dict(starts)
        try:
            while (waiting or reading) and not stop.requested:
                while waiting and len(reading) < _AT_ONCE:
                    partition = waiting.popleft()
                    reading.append((partition, _read(client, topic, partition, position, ends)))
                partition, batches = reading.popleft()
                try:
                    columns = next(batches, None)
                except DataGone as gone:
                    skipped = min(gone.log_start_offset, ends[partition]) - position[partition]
                    if on_deleted is None:
                        raise CommandFailed(
                            f"{topic}-{partition}: {skipped:,} offsets were deleted (by retention or a user) "
                            "before they were read; start again."
                        ) from gone
                    on_deleted(partition, skipped)
                    position[partition] = gone.log_start_offset
                    if position[partition] < ends[partition]:
                        waiting.appendleft(partition)
                    continue
                if columns is None:
                    continue
                reading.append((partition, batches))
                if columns.num_rows:
                    position[partition] = columns.column("offset")[-1].as_py() + 1
                    yield Chunk(topic, partition, columns)
        except UnknownTopicOrPartition as error:
            raise UnknownTopic(topic, cluster.topics()) from error
        except (ClientError, PenstockError) as error:
            raise CommandFailed(f"cannot read '{topic}': {error}") from error
        finally:
            for _, batches in reading:
                batches.close()  # type: ignore[attr-defined]


def _read(
    client: Client, topic: str, partition: int, position: Mapping[int, int], ends: Mapping[int, int]
) -> Iterator[pa.RecordBatch]:
    return read_range(
        client,
        topic,
        partition,
        position[partition],
        ends[partition],
        headers=True,
        isolation=0,
        batch_rows=_ROWS,
    )
