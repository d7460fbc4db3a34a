"""Tables in memory for pull queries: they follow their topics, and are read when they have caught up.

A table is followed from the first pull query on it. One thread reads the topics of all of them, committed
records only. Each lookup requests the topic's end offsets and waits until the table has everything before
them, so that it sees all records committed before the lookup; simultaneous lookups share a request. A table
without recent lookups is evicted.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.client import ClientError, ClientSettings, Cluster
from penstock.client.brokers import TopicInfo
from penstock.client.cluster import EARLIEST, LATEST
from penstock.client.librdkafka import PROMPT_FETCH, with_login
from penstock.errors import ApiError, PenstockError
from penstock.registry.errors import RegistryError
from penstock.sql.catalog.catalog import Relation
from penstock.sql.errors import Unavailable, Unknown
from penstock.sql.pull.delta_files import FileImages
from penstock.sql.pull.materialized import NotInMemory, Row, RowReader, TableImage, TopicRecord
from penstock.sql.pull.plan import Pull
from penstock.sql.settings import EngineSettings

if TYPE_CHECKING:
    from confluent_kafka import Consumer

log = logging.getLogger(__name__)
librdkafka_log = logging.getLogger("penstock.sql.librdkafka")
librdkafka_log.setLevel(logging.ERROR)

_READ_COMMITTED = 1
_BATCH = 10_000
_POLL_SECONDS = 0.05
_FETCH_WAIT_MS = 10
_EXPIRE_TIMEOUT = 1.0
_AWAY_LOOK_SECONDS = 0.25

__all__ = ["NotInMemory", "FollowedTables"]


@dataclass(frozen=True, slots=True)
class _Ends:
    """The current topic: its id, and the end offsets of its partitions; also the start offsets, if
    requested.
    """

    topic_id: Any
    offsets: Mapping[int, int]
    starts: Mapping[int, int]


class _Asker:
    """Requests the ends of topics in its own thread: one request for all waiting lookups."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._asked: queue.SimpleQueue[tuple[str, bool, Future[_Ends]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="sql-ends", daemon=True)
        self._thread.start()

    def ends(
        self, topic: str, timeout: float, away: Callable[[], str | None], *, starts: bool = False
    ) -> _Ends:
        future: Future[_Ends] = Future()
        self._asked.put((topic, starts, future))
        deadline = time.monotonic() + timeout
        try:
            while True:
                left = deadline - time.monotonic()
                try:
                    return future.result(min(_AWAY_LOOK_SECONDS, max(0.0, left)))
                except FutureTimeout:
                    if (why := away()) is not None:
                        raise Unavailable(why) from None
                    if left <= _AWAY_LOOK_SECONDS:
                        raise Unavailable(f"no end offset of {topic} within {timeout:g} s") from None
        except (ClientError, ApiError) as error:
            raise Unavailable(f"the end of {topic} is not known: {error}") from None

    def stop(self) -> None:
        self._asked.put(None)
        self._thread.join(1)  # a daemon: it may be waiting for an unavailable cluster

    def _run(self) -> None:
        with Cluster(self._settings) as cluster:
            while (first := self._asked.get()) is not None:
                asked = [first]
                with contextlib.suppress(queue.Empty):
                    while True:
                        more = self._asked.get_nowait()
                        if more is None:
                            return
                        asked.append(more)
                try:
                    found = self._ask(
                        cluster,
                        {topic for topic, _, _ in asked},
                        {topic for topic, starts, _ in asked if starts},
                    )
                except PenstockError as error:
                    for _, _, future in asked:
                        future.set_exception(error)
                    continue
                for topic, _, future in asked:
                    if topic in found:
                        future.set_result(found[topic])
                    else:
                        future.set_exception(Unknown(f"no topic `{topic}`"))

    def _ask(self, cluster: Cluster, topics: set[str], with_starts: set[str]) -> dict[str, _Ends]:
        there = cluster.partitions(topics)
        ends = self._offsets(cluster, there, LATEST)
        begun = {name: info for name, info in there.items() if name in with_starts}
        starts = self._offsets(cluster, begun, EARLIEST) if begun else {}
        return {name: _Ends(info.id, ends[name], starts.get(name, {})) for name, info in there.items()}

    def _offsets(
        self, cluster: Cluster, there: Mapping[str, TopicInfo], which: int
    ) -> dict[str, dict[int, int]]:
        wanted = {
            (name, partition): which
            for name, info in there.items()
            for partition in range(info.partition_count)
        }
        found: dict[str, dict[int, int]] = {name: {} for name in there}
        for (name, partition), offset in cluster.list_offsets(wanted, _READ_COMMITTED).items():
            found[name][partition] = offset or 0
        return found


class _Followed:
    """One followed table: its rows, its row reader, and the id of its topic."""

    def __init__(self, image: TableImage, reader: RowReader, topic_id: Any, now: float) -> None:
        self.image = image
        self.reader = reader
        self.topic_id = topic_id
        self.asked_at = now
        self.reading = False
        """Records that come now are those after its position; until then they may be of another table's."""

    def take(self, partition: int, records: Sequence[TopicRecord], at_end: int) -> None:
        """Records of one partition, in order; `at_end` is the end offset that was reached, or -1."""
        image = self.image
        start = image.positions.get(partition, 0)
        fresh = [record for record in records if record.offset >= start and record.key is not None]
        if fresh:
            rows = self.reader.read(fresh)
            changes: list[tuple[int, Any, Row | None]] = []
            for record, row in zip(fresh, rows):
                if row is None and record.value is not None:
                    image.skipped += 1  # as in Spark's view of the table: the previous row stays
                    continue
                changes.append((record.offset, record.key, row))
            image.put(partition, changes)
        position = max(records[-1].offset + 1 if records else 0, at_end)
        image.at({partition: position})


class FollowedTables:
    """The tables of one server. Thread-safe."""

    def __init__(
        self,
        settings: EngineSettings,
        *,
        forget_seconds: float = 1800.0,
        expire_seconds: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._forget_seconds = forget_seconds
        self._expire_seconds = expire_seconds
        """How often it is looked whether retention has deleted rows."""
        self._clock = clock
        self.away: Callable[[], str | None] = lambda: None
        """Why the cluster is taken to be away, from who watches it."""
        self._expire_at = clock() + expire_seconds
        self._lock = threading.Lock()
        self._followed: dict[str, _Followed] = {}
        self._files = FileImages(forget_seconds, clock)
        self._wanted: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        """Topics to re-read from their beginning, and topics to leave."""
        self._work = threading.Event()
        self._stopping = threading.Event()
        self._asker: _Asker | None = None
        self._thread: threading.Thread | None = None

    # Asking

    def lookup(self, relation: Relation, pull: Pull, timeout: float = 30.0) -> list[Row]:
        """The current rows. Raises NotInMemory if Spark must execute it, Unavailable after the timeout."""
        if relation.topic is None:
            return self._files.find(relation, pull)
        deadline = self._clock() + timeout
        for _ in range(3):  # the topic may be deleted and recreated in the meantime
            ends = self._ask(relation.topic, max(0.1, deadline - self._clock()))
            followed = self._follow(relation, ends)
            if self._caught_up(followed.image, ends, deadline):
                if followed.image.failed is None:
                    return followed.image.find(pull)
                self._drop(relation.folded, followed)
                raise Unavailable(f"`{relation.name}` cannot be read: {followed.image.failed}")
            if self._clock() >= deadline:
                break
        behind = sum(
            max(0, end - followed.image.positions.get(partition, 0))
            for partition, end in ends.offsets.items()
        )
        raise Unavailable(f"`{relation.name}` is still being read: {behind:,} records to go. Try again")

    def _caught_up(self, image: TableImage, ends: _Ends, deadline: float) -> bool:
        """Whether it has caught up before the deadline. Raises Unavailable if the cluster does not
        respond.
        """
        while not image.wait(
            ends.offsets, max(0.0, min(_AWAY_LOOK_SECONDS, left := deadline - self._clock()))
        ):
            if (why := self.away()) is not None:
                raise Unavailable(why)
            if left <= _AWAY_LOOK_SECONDS:
                return False
        return True

    def _ask(self, topic: str, timeout: float, *, starts: bool = False) -> _Ends:
        with self._lock:
            if self._stopping.is_set():
                raise Unavailable("this server stops")
            if self._asker is None:
                self._asker = _Asker(ClientSettings.from_kafka(self._settings.client()))
            asker = self._asker
        return asker.ends(topic, timeout, self.away, starts=starts)

    def _follow(self, relation: Relation, ends: _Ends) -> _Followed:
        with self._lock:
            known = self._known(relation, ends)
        if known is not None:
            return known
        try:
            reader = RowReader(relation, self._settings)  # sends requests to the registry: not under the lock
        except RegistryError as error:
            raise Unavailable(f"the schema of `{relation.name}` is not known now: {error}") from None
        image = TableImage(relation)
        image.positions = dict.fromkeys(ends.offsets, 0)
        with self._lock:
            known = self._known(relation, ends)
            if known is not None:  # another thread was first
                reader.close()
                return known
            followed = _Followed(image, reader, ends.topic_id, self._clock())
            self._followed[relation.folded] = followed
            self._want("read", relation)
            if self._thread is None:
                self._thread = threading.Thread(target=self._read, name="sql-tables", daemon=True)
                self._thread.start()
            return followed

    def _known(self, relation: Relation, ends: _Ends) -> _Followed | None:
        """The followed table, if it is for this relation and topic. Call it under the lock."""
        known = self._followed.get(relation.folded)
        if known is None or known.image.relation != relation or known.topic_id != ends.topic_id:
            return None
        if known.image.failed is not None:
            return None
        known.asked_at = self._clock()
        more = {each: 0 for each in ends.offsets if each not in known.image.positions}
        if more:  # the topic has more partitions than when it was first read
            known.image.positions |= more
            self._want("read", relation)
        return known

    def _want(self, what: str, relation: Relation) -> None:
        assert relation.topic is not None
        self._wanted.put((what, relation.topic))
        self._work.set()

    def forget(self, name: str) -> None:
        """Called when the relation is dropped or replaced."""
        self._drop(name.casefold(), None)
        self._files.forget(name.casefold())

    def _drop(self, folded: str, only: _Followed | None) -> None:
        with self._lock:
            found = self._followed.get(folded)
            if found is None or (only is not None and found is not only):
                return
            del self._followed[folded]
            self._want("leave", found.image.relation)

    @property
    def names(self) -> list[str]:
        """Of the tables that are in memory."""
        with self._lock:
            followed = [each.image.relation.name for each in self._followed.values()]
        return sorted(followed + self._files.names)

    def stop(self) -> None:
        self._stopping.set()
        self._work.set()
        if self._thread is not None:
            self._thread.join(5)
        with self._lock:
            asker, self._asker = self._asker, None
        if asker is not None:
            asker.stop()

    # Reading

    def _read(self) -> None:
        from confluent_kafka import Consumer

        from penstock.client.librdkafka_names import translate

        consumer = Consumer(
            with_login(
                {
                    **translate(self._settings.client()),
                    "group.id": "penstock-sql-tables",  # librdkafka wants one; nothing is joined or committed
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "earliest",
                    "isolation.level": "read_committed",
                    "enable.partition.eof": True,
                    # The end of a partition may be after a transaction marker. librdkafka reports it only
                    # with the next response, which may be empty, and lookups wait for it.
                    "fetch.wait.max.ms": _FETCH_WAIT_MS,
                    "fetch.error.backoff.ms": 50,
                    "queued.max.messages.kbytes": 16 << 10,
                    **PROMPT_FETCH,
                    "reconnect.backoff.max.ms": 1000,
                    "error_cb": lambda error: log.debug("librdkafka: %s", error.str()),
                }
            ),
            logger=librdkafka_log,
        )
        assigned: dict[str, int] = {}
        try:
            while not self._stopping.is_set():
                self._assign(consumer, assigned)
                if assigned:
                    self._read_some(consumer)
                    self._forget_idle()
                    self._expire(list(assigned))
                else:
                    self._work.wait(1.0)
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits for a table must hear of it
            self._fail_all(error)
        finally:
            consumer.close()

    def _assign(self, consumer: Consumer, assigned: dict[str, int]) -> None:
        """Starts and stops reading topics. A topic with a second table is read again, for both."""
        from confluent_kafka import TopicPartition

        if not self._work.is_set():
            return
        self._work.clear()
        while not self._wanted.empty():
            what, topic = self._wanted.get()
            there = self._on(topic)
            images = [each.image for each in there]
            if what == "leave" and images:
                continue
            if topic in assigned:
                count = assigned.pop(topic)
                consumer.incremental_unassign([TopicPartition(topic, each) for each in range(count)])
            if images:
                count = max(len(image.positions) for image in images)
                # By offset: librdkafka takes half a second longer to look up the start.
                starts = [
                    min(image.positions.get(partition, 0) for image in images) for partition in range(count)
                ]
                consumer.incremental_assign(
                    [TopicPartition(topic, partition, start) for partition, start in enumerate(starts)]
                )
                assigned[topic] = count
                for each in there:
                    each.reading = True

    def _read_some(self, consumer: Consumer) -> None:
        from confluent_kafka import KafkaError

        first = consumer.poll(_POLL_SECONDS)
        if first is None:
            return
        taken: dict[tuple[str, int], tuple[list[TopicRecord], int]] = {}
        for message in [first, *consumer.consume(_BATCH, 0)]:
            topic, partition = message.topic() or "", message.partition() or 0
            error = message.error()
            records, at_end = taken.setdefault((topic, partition), ([], -1))
            if error is None:
                records.append(
                    TopicRecord(
                        _bytes(message.key()),
                        _bytes(message.value()),
                        partition,
                        message.offset() or 0,
                        _headers(message.headers()),
                    )
                )
            elif error.code() == KafkaError._PARTITION_EOF:
                taken[topic, partition] = (records, message.offset() or 0)
            else:
                log.warning("reading %s-%d: %s", topic, partition, error.str())
        for (topic, partition), (records, at_end) in taken.items():
            if records or at_end >= 0:
                self._take(topic, partition, records, at_end)

    def _take(self, topic: str, partition: int, records: list[TopicRecord], at_end: int) -> None:
        for followed in self._on(topic):
            if followed.image.failed is not None or not followed.reading:
                continue
            try:
                followed.take(partition, records, at_end)
            except Exception as error:  # noqa: BLE001 - whatever it is, one table must not end the others
                log.warning("`%s` cannot be read: %s", followed.image.relation.name, error)
                followed.image.fail(error)

    def _on(self, topic: str) -> list[_Followed]:
        with self._lock:
            return [each for each in self._followed.values() if each.image.relation.topic == topic]

    def _forget_idle(self) -> None:
        until = self._clock() - self._forget_seconds
        with self._lock:
            idle = [(name, each) for name, each in self._followed.items() if each.asked_at < until]
        for name, followed in idle:
            log.info(
                "evicted `%s` from memory: no pull query has used it recently", followed.image.relation.name
            )
            self._drop(name, followed)
            followed.reader.close()

    def _expire(self, topics: Sequence[str]) -> None:
        """Removes rows whose records are no longer in their topics."""
        if self._clock() < self._expire_at:
            return
        for topic in topics:
            try:
                ends = self._ask(topic, _EXPIRE_TIMEOUT, starts=True)
            except (Unavailable, Unknown):  # checked again later
                break
            for followed in self._on(topic):
                if followed.topic_id == ends.topic_id:
                    followed.image.expire(ends.starts)
        self._expire_at = self._clock() + self._expire_seconds

    def _fail_all(self, error: Exception) -> None:
        log.error("tables cannot be read: %s", error)
        with self._lock:
            there, self._followed = list(self._followed.values()), {}
            self._thread = None  # the next lookup starts over
        for followed in there:
            followed.image.fail(error)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _headers(headers: Any) -> Sequence[tuple[str, bytes | None]]:
    return () if not headers else [(str(name), value) for name, value in headers]
