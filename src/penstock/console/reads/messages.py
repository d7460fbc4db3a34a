"""Messages of a topic: a page from a position, or the results of a search; producing and exporting.

A search reads a range once, in order within each partition, and reports its progress.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.admin.cluster import Cluster, choose_partitions
from penstock.admin.failure import needs_extra
from penstock.admin.positions import Position, find_range, iso_time, parse_position
from penstock.admin.reader import IncomingRecord, StopRequest, read_records
from penstock.admin.records.encoding import encoded, latest_schema
from penstock.admin.records.outgoing import JsonText, OutgoingRecord
from penstock.admin.records.sending import Sender
from penstock.console.reads.decoding import Describe, Part, decode
from penstock.console.reads.matching import KINDS

if TYPE_CHECKING:
    from penstock.registry.client import RegistryClient

MOST = 1000
"""The maximum number of messages on a page."""
MOST_BYTES = 64 << 20
"""The maximum bytes of keys, values and headers that one read keeps."""
_REPORT_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Query:
    """The user's query. It is also the query string of the page, so it can be shared as a link.

    start      newest, earliest, latest, an offset, @TIME or -N, as in `penstock consume --from`
    kind       of `search`: text, regex, json or sql
    """

    start: str = "newest"
    partition: int | None = None
    limit: int = 50
    search: str = ""
    kind: str = "text"

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Query:
        """From the query string of a link; invalid values are replaced by defaults."""
        partition, limit = given.get("partition", ""), given.get("limit", "")
        return cls(
            given.get("from") or "newest",
            int(partition) if partition.isdecimal() and len(partition) < 10 else None,
            min(MOST, max(1, int(limit))) if limit.isdecimal() and len(limit) < 10 else 50,
            given.get("q", ""),
            given["kind"] if given.get("kind") in KINDS else "text",
        )

    def as_link(self) -> dict[str, str]:
        found = {
            "from": "" if self.start == "newest" else self.start,
            "partition": "" if self.partition is None else str(self.partition),
            "limit": "" if self.limit == 50 else str(self.limit),
            "q": self.search,
            "kind": self.kind if self.search and self.kind != "text" else "",
        }
        return {name: value for name, value in found.items() if value}

    def as_command(self, topic: str) -> list[str]:
        """The arguments of the command that reads the same messages; only a SQL condition is in it."""
        start = self.start
        if start == "newest":
            start = "earliest" if self.kind == "sql" and self.search else f"-{self.limit}"
        words = ["consume", topic, "--from", start, "--max", str(self.limit)]
        words += [] if self.partition is None else ["--partition", str(self.partition)]
        return [*words, "--where", self.search] if self.kind == "sql" and self.search else words


@dataclass(frozen=True, slots=True)
class Message:
    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: Part
    value: Part
    headers: tuple[tuple[str, Part], ...]

    @property
    def time(self) -> str:
        return iso_time(self.timestamp) if self.timestamp is not None else ""

    @property
    def size(self) -> int:
        return self.key.size + self.value.size + sum(len(name) + part.size for name, part in self.headers)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a read; `found` has the messages since the last report."""

    scanned: int
    total: int
    matched: int
    found: tuple[Message, ...] = ()
    done: bool = False
    notes: tuple[str, ...] = ()
    """Why the result is incomplete."""


def read_messages(
    cluster: Cluster,
    topic: str,
    query: Query,
    *,
    describe: Describe | None = None,
    stop: StopRequest | None = None,
    report: Callable[[Progress], object] = lambda progress: None,
    now: Callable[[], float] = time.time,
) -> list[Message]:
    """The messages, newest first where the newest are asked for; `report` is called while it reads.

    At most MOST_BYTES of them: the last report says where it was cut, and what was deleted meanwhile. When
    `stop` is requested, the result is what was found up to then.
    CommandFailed, BadSearch, and click's usage errors for a place that is none.
    """
    stop = stop or StopRequest()
    chosen = choose_partitions(cluster.topic(topic), () if query.partition is None else (query.partition,))
    newest = query.start == "newest"
    # A search of the newest looks at everything; without one, no partition has more than `limit` of them.
    position = parse_position(query.start, int(now() * 1000)) if not newest else Position("earliest")
    if newest and not query.search:
        position = Position("last", query.limit)
    starts, ends = find_range(cluster, topic, chosen, position, read_committed=False)
    total = sum(ends[p] - starts[p] for p in chosen)
    kept = _Kept(query.limit, newest)
    fresh: list[Message] = []
    scanned = matched = skipped = 0
    reported = now()

    def on_deleted(partition: int, count: int) -> None:
        nonlocal skipped
        skipped += count

    if query.search:
        batches = _searched(cluster, topic, query, starts, ends, stop, on_deleted, describe)
    else:
        batches = _all(cluster, topic, starts, ends, stop, on_deleted)
    try:
        for count, found_here, records in batches:
            scanned += count
            matched += found_here
            for record in records:
                message = _message(record, describe)
                if kept.add(message):
                    fresh.append(message)
                if kept.full:
                    break
            if kept.full:
                break
            if now() - reported > _REPORT_SECONDS:
                reported = now()
                report(Progress(scanned, total, matched, tuple(within(fresh, query.limit))))
                fresh = []
    finally:
        batches.close()
    found = kept.messages()
    notes = []
    if kept.cut:
        notes.append(f"Cut at {MOST_BYTES >> 20} MiB: ask for fewer messages to see the others.")
    if skipped:
        notes.append(f"{skipped:,} offsets were deleted before they could be read.")
    report(Progress(scanned, total, matched, done=True, notes=tuple(notes)))
    return found


Batches = Generator[tuple[int, int, Iterable[IncomingRecord]], None, None]
"""For each piece: how many records were read, how many match, and those of them that a read may keep."""


def _all(
    cluster: Cluster,
    topic: str,
    starts: dict[int, int],
    ends: dict[int, int],
    stop: StopRequest,
    on_deleted: Callable[[int, int], object],
) -> Batches:
    settings: dict[str, object] = {"fetch.message.max.bytes": 8 << 20, "queued.max.messages.kbytes": 65536}
    for batch in read_records(cluster, topic, starts, ends, settings, stop, on_deleted=on_deleted):
        yield len(batch), len(batch), batch


def _searched(
    cluster: Cluster,
    topic: str,
    query: Query,
    starts: dict[int, int],
    ends: dict[int, int],
    stop: StopRequest,
    on_deleted: Callable[[int, int], object],
    describe: Describe | None,
) -> Batches:
    # Imported here, because Arrow takes long to load and reading without a search does not need it.
    with needs_extra("a search", "records"):
        from penstock.admin.records.columns import read_columns
        from penstock.console.reads.scanning import finder, newest

    find = finder(query.kind, query.search, describe)
    left = query.limit
    for chunk in read_columns(cluster, topic, starts, ends, stop, on_deleted):
        rows = find(chunk)
        if query.start == "newest":
            yield len(chunk), len(rows), newest(chunk, rows, query.limit)
            continue
        first = rows[:left]
        left -= len(first)
        yield len(chunk), len(first), (chunk.record(int(row)) for row in first)


class _Kept:
    """The messages that a read keeps: the first or the newest ones, within its limit and MOST_BYTES."""

    def __init__(self, limit: int, newest: bool) -> None:
        self._limit = limit
        self._newest = newest
        self._held: list[Message] = []
        self._bytes = 0
        self._left_out: tuple[int, int] | None = None
        """The time and offset of the newest message that did not fit: nothing older is kept."""
        self.full = False
        """Later messages are not kept."""

    @property
    def cut(self) -> bool:
        """Whether messages are missing because of the size limit."""
        return self._left_out is not None and len(self._held) < self._limit

    def add(self, message: Message) -> bool:
        if self._newest:
            if self._left_out is not None and _age(message) < self._left_out:
                return False
        elif self._held and self._bytes + message.size > MOST_BYTES:
            self._left_out, self.full = _age(message), True
            return False
        self._held.append(message)
        self._bytes += message.size
        if not self._newest:
            self.full = len(self._held) >= self._limit
        elif len(self._held) > 4 * self._limit or self._bytes > 2 * MOST_BYTES:
            self._trim()
        return True

    def messages(self) -> list[Message]:
        if self._newest:
            self._trim()
        return self._held

    def _trim(self) -> None:
        self._held.sort(key=_age, reverse=True)
        fit = within(self._held, self._limit)
        if len(fit) < min(len(self._held), self._limit):
            self._left_out = _age(self._held[len(fit)])
        self._held = fit
        self._bytes = sum(each.size for each in fit)


def _age(message: Message) -> tuple[int, int]:
    return message.timestamp or 0, message.offset


def within(messages: Iterable[Message], limit: int) -> list[Message]:
    """The first messages: at most `limit` and MOST_BYTES, but at least one."""
    found: list[Message] = []
    size = 0
    for each in messages:
        size += each.size
        if len(found) == limit or (found and size > MOST_BYTES):
            break
        found.append(each)
    return found


def _headers(record: IncomingRecord) -> list[tuple[str, bytes | None]]:
    found: Any = record.headers() or ()
    return [(name, value) for name, value in found]


def _message(record: IncomingRecord, describe: Describe | None) -> Message:
    kind, stamp = record.timestamp()
    headers = _headers(record)
    key: Any = record.key()
    value: Any = record.value()
    partition, offset = record.partition(), record.offset()
    assert partition is not None and offset is not None
    return Message(
        record.topic() or "",
        partition,
        offset,
        stamp if kind else None,
        decode(key, describe, "key", headers),
        decode(value, describe, "value", headers),
        tuple((name, decode(each)) for name, each in headers),
    )


def tail(
    cluster: Cluster,
    topic: str,
    partition: int | None,
    *,
    describe: Describe | None,
    stop: StopRequest,
    show: Callable[[list[Message]], object],
) -> None:
    """New messages as they arrive, until `stop`; each time the ones that arrived, the newest first."""
    chosen = choose_partitions(cluster.topic(topic), () if partition is None else (partition,))
    starts, _ = find_range(cluster, topic, chosen, Position("latest"), read_committed=False)
    settings: dict[str, object] = {"fetch.wait.max.ms": 200, "queued.max.messages.kbytes": 65536}
    reader = read_records(
        cluster, topic, starts, None, settings, stop, on_deleted=lambda partition, count: None
    )
    for batch in reader:
        if batch:
            newest = (_message(record, describe) for record in reversed(batch))
            show(within(newest, MOST))


def produce(
    cluster: Cluster,
    topic: str,
    *,
    key: bytes | None,
    value: bytes | None,
    headers: Mapping[str, str],
    partition: int | None = None,
) -> tuple[int, int]:
    """Write one message. Returns its partition and offset."""
    info = cluster.topic(topic)
    choose_partitions(info, () if partition is None else (partition,))
    sender = Sender(cluster, topic, partition=partition)
    sender.send(OutgoingRecord(value, key, [(name, each.encode()) for name, each in headers.items()]))
    sender.drain()
    sender.check()
    place = sender.deliveries.last
    assert place is not None
    return place


@dataclass(frozen=True, slots=True)
class PartFormat:
    """The schema that keys or values of a topic are encoded with: the newest of the subject."""

    subject: str
    kind: str
    schema_id: int
    text: str


def registered_format(client: RegistryClient, topic: str, part: str) -> PartFormat:
    """CommandFailed if the topic has no registered schema for this part."""
    from penstock.registry.differences import readable

    subject = f"{topic}-{part}"
    found = latest_schema(client, subject, part, "Register one first.")
    kind = found.schema_type.lower().replace("json", "json-schema")
    return PartFormat(subject, kind, found.id, readable(found.schema))


def encode_registered(client: RegistryClient, topic: str, part: str, text: str) -> bytes:
    """JSON encoded with the newest schema of the subject; BadRecord names the wrong field."""
    from penstock.registry.serdes import Encoder

    schema = latest_schema(client, f"{topic}-{part}", part, "Register one first.")
    return encoded(Encoder(client, schema), part, text.encode())


# Export


def export(messages: Iterable[Message], form: str) -> bytes:
    """A file of `penstock.admin.records.files`. JSON lines and CSV have what the registry decoded as JSON."""
    from penstock.admin.records.files import as_bytes

    return as_bytes(form, [Exported(each, decoded=form != "parquet") for each in messages])


@dataclass(frozen=True, slots=True)
class Exported:
    """A message as a record."""

    message: Message
    decoded: bool

    def topic(self) -> str | None:
        return self.message.topic

    def partition(self) -> int | None:
        return self.message.partition

    def offset(self) -> int | None:
        return self.message.offset

    def key(self) -> bytes | None:
        return self._bytes(self.message.key)

    def value(self) -> bytes | None:
        return self._bytes(self.message.value)

    def timestamp(self) -> tuple[int, int]:
        stamp = self.message.timestamp
        return (0, -1) if stamp is None else (1, stamp)

    def headers(self) -> Any:
        return [(name, self._bytes(part)) for name, part in self.message.headers] or None

    def _bytes(self, part: Part) -> bytes | None:
        if self.decoded and part.schema_id is not None:
            return JsonText.of(json.loads(part.text), part.schema_id)
        return part.data
