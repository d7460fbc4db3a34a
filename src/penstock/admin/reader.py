"""Reads partitions of a topic by assignment, without a group, in order within each partition."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from penstock.admin.cluster import EARLIEST, Cluster
from penstock.admin.failure import CommandFailed, UnknownTopic, reason

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

_POLL_SECONDS = 0.2
_BATCH = 1000


class IncomingRecord(Protocol):
    """A consumed record: the part of confluent_kafka's Message that is printed."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def headers(self) -> Any: ...


class Remaining:
    """The partitions that still have records before their end offset. Without ends, reading never
    finishes.
    """

    def __init__(self, starts: dict[int, int], ends: dict[int, int] | None) -> None:
        self._ends = ends
        self.open = {p for p in starts if ends is None or starts[p] < ends[p]}

    def accept(self, partition: int, offset: int) -> bool:
        """Whether to return the record at `offset`."""
        if self._ends is None:
            return True
        end = self._ends[partition]
        if offset + 1 >= end:
            self.open.discard(partition)
        return offset < end

    def end(self, partition: int) -> int | None:
        """The end offset of the partition, if there is one."""
        return None if self._ends is None else self._ends[partition]

    def reached(self, partition: int, offset: int) -> None:
        """A reader is at the log end `offset`: the rest up to the end are markers or was compacted away."""
        if self._ends is not None and offset >= self._ends[partition]:
            self.open.discard(partition)


class StopRequest:
    """Set at the first Ctrl-C, so that records that were read are still written completely."""

    requested = False


@contextmanager
def stop_on_interrupt() -> Iterator[StopRequest]:
    """The first Ctrl-C asks the reader to stop; the second one interrupts at once."""
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True

    previous = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, previous)


def read_records(
    cluster: Cluster,
    topic: str,
    starts: dict[int, int],
    ends: dict[int, int] | None,
    settings: dict[str, object],
    stop: StopRequest,
    on_trouble: Callable[[str], object] = lambda sentence: None,
    on_deleted: Callable[[int, int], object] | None = None,
) -> Generator[list[Message], None, None]:
    """Batches of records from `starts` to `ends`, or endless. An empty batch means that nothing came for a
    while.

    A reader with ends fails if nothing arrives for the cluster's timeout; one without ends waits for the
    broker, and calls `on_trouble`. If records are deleted before they are read, it fails; with `on_deleted`,
    which gets the partition and the number of missed offsets, it continues at the new log start.
    """
    from confluent_kafka import TopicPartition

    remaining = Remaining(starts, ends)
    if not remaining.open:
        return
    if ends is not None:
        settings = {"fetch.wait.max.ms": 100, **settings}
    consumer = cluster.consumer({"enable.partition.eof": True, **settings})
    try:
        consumer.assign([TopicPartition(topic, p, starts[p]) for p in sorted(remaining.open)])
        follow, places = ends is None, dict(starts)
        yield from _poll(cluster, consumer, topic, remaining, places, follow, stop, on_trouble, on_deleted)
    finally:
        consumer.close()


def _poll(
    cluster: Cluster,
    consumer: Consumer,
    topic: str,
    remaining: Remaining,
    places: dict[int, int],
    follow: bool,
    stop: StopRequest,
    on_trouble: Callable[[str], object],
    on_deleted: Callable[[int, int], object] | None,
) -> Iterator[list[Message]]:
    last_sign = time.monotonic()
    reported = ""
    while remaining.open and not stop.requested:
        records: list[Message] = []
        got = _take(consumer)
        for message in got:
            error = message.error()
            partition, offset = message.partition(), message.offset()
            if partition is not None and offset is not None and error is None:
                places[partition] = offset + 1
            if error is not None and on_deleted is not None and _is_deleted(error) and partition in places:
                skipped = _go_on(cluster, consumer, topic, partition, places, remaining)
                on_deleted(partition, skipped)
            elif error is not None:
                _on_error(cluster, error, topic, partition, offset, remaining)
            elif partition is not None and offset is not None and remaining.accept(partition, offset):
                records.append(message)
        if got:
            last_sign, cluster.last_error, reported = time.monotonic(), None, ""
        elif not follow and time.monotonic() - last_sign > cluster.timeout:
            why = f" ({reason(cluster.last_error)})" if cluster.last_error is not None else ""
            where = ", ".join(f"{topic}-{p}" for p in sorted(remaining.open)[:4])
            raise CommandFailed(f"no records of {where} came in {cluster.timeout:g} s{why}.")
        elif follow and cluster.last_error is not None:
            trouble = reason(cluster.last_error)
            if trouble != reported:
                on_trouble(f"lost {cluster.bootstrap} ({trouble}); waiting for it")
            reported = trouble
        yield records


def _is_deleted(error: KafkaError) -> bool:
    return error.code() in (error._AUTO_OFFSET_RESET, error.OFFSET_OUT_OF_RANGE)


def _go_on(
    cluster: Cluster,
    consumer: Consumer,
    topic: str,
    partition: int,
    places: dict[int, int],
    remaining: Remaining,
) -> int:
    """Continue at the log start. Returns the number of offsets that were missed."""
    from confluent_kafka import TopicPartition

    place = places[partition]
    start = cluster.offsets(topic, [partition], EARLIEST)[partition].offset
    end = remaining.end(partition)
    places[partition] = start
    remaining.reached(partition, start)
    if partition in remaining.open:
        consumer.incremental_unassign([TopicPartition(topic, partition)])
        consumer.incremental_assign([TopicPartition(topic, partition, start)])
    return max(0, (start if end is None else min(start, end)) - place)


def _take(consumer: Consumer) -> list[Message]:
    """Returns records as soon as there are any: `consume` alone would wait to fill its batch."""
    first = consumer.poll(_POLL_SECONDS)
    return [] if first is None else [first, *consumer.consume(_BATCH, 0)]


def _on_error(
    cluster: Cluster,
    error: KafkaError,
    topic: str,
    partition: int | None,
    offset: int | None,
    remaining: Remaining,
) -> None:
    if error.code() == error._PARTITION_EOF:
        if partition is not None and offset is not None:
            remaining.reached(partition, offset)
        return
    if error.code() in (error.UNKNOWN_TOPIC_OR_PART, error._UNKNOWN_PARTITION, error._UNKNOWN_TOPIC):
        raise UnknownTopic(topic, cluster.topics())
    if _is_deleted(error):
        raise CommandFailed(
            f"{topic}-{partition}: records from offset {offset} on were deleted (by retention or a user); "
            "start again with --from earliest."
        )
    # Ignore errors about the group's coordinator, which a reader by assignment does not use and may not be
    # allowed to see.
    if error.code() == error.GROUP_AUTHORIZATION_FAILED:
        return
    # So are errors of no partition.
    if (partition is not None and partition >= 0) or error.fatal():
        raise cluster.failure(error, f"cannot read {topic}-{partition}")
