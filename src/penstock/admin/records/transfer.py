"""Records between files and topics, and from a topic into a topic: with a preview, progress and cancel."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from typing import IO, Any

from penstock.admin.cluster import Cluster, choose_partitions
from penstock.admin.failure import CommandFailed
from penstock.admin.positions import find_range, parse_position
from penstock.admin.reader import IncomingRecord, StopRequest, read_records
from penstock.admin.records.files import read_file, writer
from penstock.admin.records.outgoing import BadRecord, OutgoingRecord
from penstock.admin.records.sending import Sender

_REPORT_SECONDS = 0.3
_SAMPLE = 5


@dataclass(frozen=True, slots=True)
class Range:
    """What is read of a topic. `start` and `until` are as in `penstock consume --from`; `where` is a SQL
    condition. `until` is exclusive; "" is the end of the partitions.
    """

    topic: str
    start: str = "earliest"
    until: str = ""
    partitions: tuple[int, ...] = ()
    where: str = ""

    def as_options(self) -> list[str]:
        """The options of the command that reads the same."""
        words = ["--from", self.start]
        words += ["--until", self.until] if self.until else []
        for partition in self.partitions:
            words += ["--partition", str(partition)]
        return words + (["--where", self.where] if self.where else [])


@dataclass(frozen=True, slots=True)
class Offsets:
    """A resolved range: the first offset and the end of each partition."""

    starts: dict[int, int]
    ends: dict[int, int]

    @property
    def total(self) -> int:
        """Offsets in the range; records that were compacted away and markers count, too."""
        return sum(max(0, self.ends[p] - self.starts[p]) for p in self.starts)


@dataclass(frozen=True, slots=True)
class Progress:
    """How many offsets or records were read of `total`, and how many records were written."""

    done: int
    total: int
    written: int


@dataclass(frozen=True, slots=True)
class FilePreview:
    """What a file has; `bad` is the first line that is wrong."""

    records: int
    bytes: int
    partitions: tuple[int, ...]
    """Those that the records name."""
    timed: int
    """Records with a timestamp."""
    sample: tuple[OutgoingRecord, ...]
    bad: str | None = None


Report = Callable[[Progress], object]


def no_report(progress: Progress) -> None:
    """For a caller that shows no progress."""


def resolve(cluster: Cluster, wanted: Range, now: Callable[[], float] = time.time) -> Offsets:
    """CommandFailed for an unknown topic or partition; usage errors for a position that is none."""
    info = cluster.topic(wanted.topic)
    chosen = choose_partitions(info, wanted.partitions)
    now_ms = int(now() * 1000)
    start = parse_position(wanted.start, now_ms)
    starts, ends = find_range(cluster, wanted.topic, chosen, start, read_committed=True)
    if wanted.until:
        until = parse_position(wanted.until, now_ms)
        stops, _ = find_range(cluster, wanted.topic, chosen, until, read_committed=True)
        ends = {p: min(ends[p], stops[p]) for p in ends}
    return Offsets(starts, {p: max(starts[p], ends[p]) for p in ends})


def _read(
    cluster: Cluster, wanted: Range, offsets: Offsets, stop: StopRequest, progress: Callable[[int], object]
) -> Generator[list[Any], None, None]:
    """The records of the range that fit its condition; `progress` gets how many were read."""
    condition = None
    if wanted.where:
        from penstock.admin.records.condition import Condition

        condition = Condition(wanted.where)
    done = 0
    settings: dict[str, object] = {"isolation.level": "read_committed", "check.crcs": True}
    reader = read_records(cluster, wanted.topic, offsets.starts, offsets.ends, settings, stop)
    try:
        for records in reader:
            done += len(records)
            yield records if condition is None else condition.select(records)
            progress(done)
    finally:
        reader.close()


def export_records(
    cluster: Cluster,
    wanted: Range,
    offsets: Offsets,
    form: str,
    stream: IO[bytes],
    *,
    limit: int | None = None,
    stop: StopRequest | None = None,
    report: Report = no_report,
) -> int:
    """Write the range to a file. Returns the number of records; on `stop`, those up to then."""
    written = 0
    steady = _Steady(report)
    out = writer(form, stream)
    reader = _read(
        cluster,
        wanted,
        offsets,
        stop or StopRequest(),
        lambda done: steady(Progress(done, offsets.total, written)),
    )
    for records in reader:
        if limit is not None:
            records = records[: limit - written]
        written += len(records)
        out.write(records)
        if written == limit:
            break
    reader.close()
    out.close()
    report(Progress(offsets.total, offsets.total, written))
    return written


def preview_file(path: str, form: str) -> FilePreview:
    """Reads the whole file and writes nothing."""
    records = size = timed = 0
    partitions: set[int] = set()
    sample: list[OutgoingRecord] = []
    bad = None
    try:
        for record in read_file(path, form):
            records += 1
            size += len(record.key or b"") + len(record.value or b"")
            timed += record.timestamp is not None
            if record.partition is not None:
                partitions.add(record.partition)
            if len(sample) < _SAMPLE:
                sample.append(record)
    except BadRecord as error:
        bad = str(error)
    return FilePreview(records, size, tuple(sorted(partitions)), timed, tuple(sample), bad)


def import_file(
    cluster: Cluster,
    topic: str,
    path: str,
    form: str,
    *,
    total: int,
    keep_partitions: bool = False,
    keep_times: bool = True,
    stop: StopRequest | None = None,
    report: Report = no_report,
) -> int:
    """Write the records of a file to a topic. Returns how many were delivered."""
    return _send(
        cluster,
        topic,
        ([record] for record in read_file(path, form)),
        keep_partitions,
        keep_times,
        stop or StopRequest(),
        lambda done, written: report(Progress(done, total, written)),
    )


def replay(
    cluster: Cluster,
    wanted: Range,
    offsets: Offsets,
    target: str,
    *,
    keep_partitions: bool = False,
    keep_times: bool = True,
    stop: StopRequest | None = None,
    report: Report = no_report,
) -> int:
    """Write the records of the range to the topic `target`, which may be the same one. Returns how many."""
    stopping = stop or StopRequest()
    read = 0

    def progress(done: int) -> None:
        nonlocal read
        read = done

    return _send(
        cluster,
        target,
        (map(outgoing, records) for records in _read(cluster, wanted, offsets, stopping, progress)),
        keep_partitions,
        keep_times,
        stopping,
        lambda done, written: report(Progress(min(read, offsets.total), offsets.total, written)),
    )


def outgoing(record: IncomingRecord) -> OutgoingRecord:
    """A consumed record to produce again."""
    kind, stamp = record.timestamp()
    headers = record.headers() or ()
    return OutgoingRecord(record.value(), record.key(), headers, record.partition(), stamp if kind else None)


def check_partitions(cluster: Cluster, topic: str, partitions: Iterable[int]) -> None:
    """CommandFailed if the topic does not have them all."""
    choose_partitions(cluster.topic(topic), tuple(partitions))


def _send(
    cluster: Cluster,
    topic: str,
    pieces: Iterable[Iterable[OutgoingRecord]],
    keep_partitions: bool,
    keep_times: bool,
    stop: StopRequest,
    report: Callable[[int, int], object],
) -> int:
    cluster.topic(topic)  # it is not created by the way
    sender = Sender(cluster, topic)
    sent = 0
    reported = time.monotonic()
    try:
        for records in pieces:
            for record in records:
                sent += 1
                sender.send(
                    replace(
                        record,
                        partition=record.partition if keep_partitions else None,
                        timestamp=record.timestamp if keep_times else None,
                    )
                )
            if stop.requested or sender.deliveries.first_error is not None:
                break
            if time.monotonic() - reported > _REPORT_SECONDS:
                reported = time.monotonic()
                report(sent, sender.deliveries.delivered)
    except BadRecord as error:
        sender.drain()
        raise CommandFailed(
            f"{error}. Nothing after it was written; {sender.deliveries.delivered:,} records were."
        ) from error
    finally:
        sender.drain()
    report(sent, sender.deliveries.delivered)
    sender.check()
    return sender.deliveries.delivered


class _Steady:
    """Reports a few times a second."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._at = 0.0

    def __call__(self, progress: Progress) -> None:
        if time.monotonic() - self._at > _REPORT_SECONDS:
            self._at = time.monotonic()
            self._report(progress)
