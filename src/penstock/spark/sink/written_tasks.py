"""Marks show which task of which batch of which query has been written. The state of the exactly-once sink.

A mark is a record of the compacted topic `__penstock_marks`, keyed by query and task, and part of the
transaction that writes the task's rows: both are committed or neither. A task first takes over its
transactional id (InitProducerId ends a transaction that an earlier attempt left open, and fences that
attempt), then looks for its mark, then writes.

Why a topic, and not an offset committed in the transaction, which one request would find? A cluster forgets
the offsets of idle groups after `offsets.retention.minutes` (7 days or less): a query that crashed and was
restarted later than that would double its last batch, silently. A compacted topic keeps the last mark of
every task permanently, at about 200 bytes each.

How it stays cheap: all marks of a query are in one of 8 partitions, segments are small and are compacted
early, and a Python worker, which Spark reuses, caches the marks and reads only new ones: usually one fetch.

Why the reader uses no isolation level: `read_committed` ends before the first open transaction in the
partition, of any producer. A task's own committed mark may come after that of another task which is still
writing, or died, and must be seen nevertheless. So the reader takes all batches and applies the commit and
abort markers of each producer.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.client import LATEST, READ_UNCOMMITTED, ClientSettings, Cluster
from penstock.client.brokers import TopicInfo
from penstock.errors import ApiError
from penstock.spark.errors import BadOption, NotDelivered
from penstock.wire.batches.batch import HEADER_SIZE, BatchHeader
from penstock.wire.batches.records import iter_records, parse_control, read_header

DEFAULT_TOPIC = "__penstock_marks"
PARTITIONS = 8
"""A query's partition must never change, so this is a constant, not the number that the topic has."""

TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    # Small segments, compacted as soon as they are full, so that a new worker reads little.
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.01",
    # Most of the topic is transaction markers of replaced marks, which can be deleted soon.
    "delete.retention.ms": "60000",
}

_FETCH_BYTES = 4 << 20

ONCE_SUFFIX = "_once"
"""Of the topic for marks of batch writes that have no name (txnAppId). Nobody looks for them once the write
has ended, but a task that was thought dead may, for a while: they are deleted after a day."""
ONCE_TOPIC_CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": str(86_400_000),
    "segment.ms": str(3_600_000),
    "segment.bytes": str(1 << 20),
}


@dataclass(frozen=True, slots=True)
class Mark:
    """The last write of a task: the batch, the run of the query, and checksums of the rows."""

    batch: int
    run: str
    rows: int
    key_bytes: int
    identity: int | None = None
    """The rows' checksum by key (`Identity.by_key`); None in marks of older versions."""
    whole: int | None = None
    """The rows' checksum over all columns (`Identity.whole`); None in marks of older versions."""
    version: str | None = None
    """The version of the query, if given (`queryVersion`)."""

    def encode(self) -> bytes:
        fields: dict[str, Any] = {
            "batch": self.batch,
            "run": self.run,
            "rows": self.rows,
            "keyBytes": self.key_bytes,
        }
        more = {"identity": self.identity, "whole": self.whole, "version": self.version}
        fields.update((name, value) for name, value in more.items() if value is not None)
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> Mark:
        fields = json.loads(value)
        more = (fields.get(name) for name in ("identity", "whole", "version"))
        return cls(fields["batch"], fields["run"], fields["rows"], fields["keyBytes"], *more)

    def same_rows(self, other: Mark, *, by_key: bool = False) -> bool:
        """Compares the checksums that both have. `by_key`: values of rows with keys may differ."""
        pairs = [(self.identity, other.identity)]
        if not by_key:
            pairs.append((self.whole, other.whole))
        if any(one is not None and another is not None and one != another for one, another in pairs):
            return False
        return (self.batch, self.rows, self.key_bytes) == (other.batch, other.rows, other.key_bytes)


@dataclass(frozen=True, slots=True)
class OpenMark:
    """A mark whose transaction is still open, and its producer."""

    mark: Mark
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class QueryMarks:
    """The marks of one query by task: committed ones, and those whose transactions are still open."""

    settled: Mapping[int, Mark]
    open: Mapping[int, OpenMark]


def mark_key(query: str, task: int) -> bytes:
    return f"{query}/{task}".encode()


def partition_of(query: str) -> int:
    """The partition with the marks of a query."""
    return zlib.crc32(query.encode()) % PARTITIONS


class MarksView:
    """The marks of the part of a partition that has been read. Pure: takes bytes, returns marks."""

    def __init__(self) -> None:
        self.position = 0
        self._settled: dict[bytes, bytes] = {}
        self._open: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}

    def feed(self, data: memoryview) -> None:
        """Takes the batches of one fetch; an incomplete batch at the end is left for the next fetch."""
        pos = 0
        while len(data) - pos >= HEADER_SIZE:
            header = read_header(data, pos)
            if header.size > len(data) - pos:
                return
            if header.last_offset >= self.position:
                if header.is_control:
                    for record in iter_records(data, pos):
                        self._end(header.producer_id, parse_control(record)[0])
                else:
                    self._take(header, data, pos)
                self.position = header.last_offset + 1
            pos += header.size

    def of_query(self, query: str) -> QueryMarks:
        prefix = f"{query}/".encode()
        settled = {_task(key): Mark.decode(value) for key, value in self._settled.items() if _is(key, prefix)}
        pending = {
            _task(key): OpenMark(Mark.decode(value), producer, epoch)
            for producer, marks in self._open.items()
            for key, (epoch, value) in marks.items()
            if value is not None and _is(key, prefix)
        }
        return QueryMarks(settled, pending)

    def _take(self, header: BatchHeader, data: memoryview, pos: int) -> None:
        for record in iter_records(data, pos):
            if record.key is None:
                continue
            if header.is_transactional:
                marks = self._open.setdefault(header.producer_id, {})
                marks[record.key] = header.producer_epoch, record.value
            else:
                self._set(record.key, record.value)

    def _end(self, producer: int, how: str) -> None:
        marks = self._open.pop(producer, {})
        if how == "commit":
            for key, (_, value) in marks.items():
                self._set(key, value)

    def _set(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._settled.pop(key, None)
        else:
            self._settled[key] = value


def _is(key: bytes, prefix: bytes) -> bool:
    return key.startswith(prefix) and key[len(prefix) :].isdigit()


def _task(key: bytes) -> int:
    return int(key.rpartition(b"/")[2])


class MarksReader:
    """Reads the marks topic of a cluster, which it creates if missing, and caches the marks."""

    def __init__(self, settings: Mapping[str, str], topic: str) -> None:
        # A follower in this rack may not have the newest marks yet: read from the leader only.
        asked = {name: value for name, value in settings.items() if name != "client.rack"}
        self.cluster = Cluster(ClientSettings.from_kafka(asked))
        self._topic = topic
        self._views: dict[tuple[object, int], MarksView] = {}

    def close(self) -> None:
        self.cluster.close()

    def end(self, query: str) -> int:
        """The end of the partition, where the marks of a new query will be."""
        self._info()
        place = self._topic, partition_of(query)
        return self.cluster.list_offsets({place: LATEST}, READ_UNCOMMITTED)[place] or 0

    def _info(self) -> TopicInfo:
        """Describes the topic, which is created if missing."""
        found = self.cluster.partitions([self._topic])
        if self._topic not in found:
            once = self._topic.endswith(ONCE_SUFFIX)
            config = ONCE_TOPIC_CONFIG if once else TOPIC_CONFIG
            self.cluster.create_topic(self._topic, PARTITIONS, config, if_absent=True)
            found = self.cluster.partitions([self._topic])
        info = found[self._topic]
        if info.partition_count < PARTITIONS:
            raise BadOption(
                f"topic {self._topic} has {info.partition_count} partitions and must have {PARTITIONS}: it is"
                " not a marks topic. Name another with the option marksTopic, or delete it"
            )
        return info

    def read(self, query: str, since: int | None = None) -> QueryMarks:
        """The current marks of a query; it has none before the offset `since`."""
        partition = partition_of(query)
        info = self._info()
        if since is not None:
            # No other query needs these marks: they are not cached, and earlier offsets are not read.
            self._views.pop((info.id, partition), None)
        # By the topic's id, because the cache of a deleted and recreated topic is invalid.
        view = self._views.setdefault((info.id, partition), MarksView())
        view.position = max(view.position, since or 0)
        while True:
            fetched = self.cluster.fetch(
                self._topic,
                partition,
                view.position,
                max_bytes=_FETCH_BYTES,
                min_bytes=0,
                max_wait_ms=0,
                isolation=READ_UNCOMMITTED,
            )
            if fetched.error is not None:
                self._start_again(info.id, partition, view, fetched.log_start_offset, fetched.error)
                view = self._views[info.id, partition]
                continue
            before = view.position
            view.feed(fetched.data)
            if view.position >= fetched.high_watermark:
                return view.of_query(query)
            if view.position == before:
                raise NotDelivered(
                    f"{self._topic}-{partition} gives no records at offset {before}, although it ends at"
                    f" {fetched.high_watermark}: the marks of query {query} cannot be read"
                )

    def _start_again(
        self, topic_id: object, partition: int, view: MarksView, log_start: int, error: ApiError
    ) -> None:
        """The log ends before the cached offset, or starts after it: an unclean election or an operator
        truncated it.
        """
        fresh = MarksView()
        fresh.position = max(log_start, 0)
        if fresh.position == view.position:
            raise error
        self._views[topic_id, partition] = fresh


_readers: dict[tuple[tuple[tuple[str, str], ...], str], MarksReader] = {}


def marks_reader(settings: Mapping[str, str], topic: str) -> MarksReader:
    """The reader of this process for a cluster: Spark reuses a Python worker for many tasks."""
    place = (tuple(sorted(settings.items())), topic)
    reader = _readers.get(place)
    if reader is None:
        reader = _readers[place] = MarksReader(settings, topic)
    return reader


def forget_reader(settings: Mapping[str, str], topic: str) -> None:
    """Uses new connections after a failure."""
    reader = _readers.pop((tuple(sorted(settings.items())), topic), None)
    if reader is not None:
        reader.close()
