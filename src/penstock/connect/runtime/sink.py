"""A sink task: a member of the consumer group `connect-NAME` that converts records and puts them in batches.

Offsets are committed after `precommit` allows them. If a put can be retried, the task keeps the batch and
pauses the partitions, so a slow sink slows down consumption instead of using more memory.
"""

from __future__ import annotations

import logging
import time
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from penstock.connect import plugins
from penstock.connect.api import SinkBatch, SinkConnector, SinkRecord, SinkTask, TopicPartition
from penstock.connect.errors import ConnectError, RetriableError
from penstock.connect.providers import resolve
from penstock.connect.runtime.clients import make_consumer, make_producer
from penstock.connect.runtime.conversion import Conversion
from penstock.connect.runtime.definitions import COMMON, SINK
from penstock.connect.runtime.source import create_topic
from penstock.connect.runtime.subscription import Subscription, seconds_between_looks
from penstock.connect.runtime.task import RetriedCalls, TaskSpec
from penstock.connect.runtime.tolerance import Tolerance
from penstock.connect.runtime.topic_creation import NewTopicSettings
from penstock.connect.settings import parse

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, Producer
    from confluent_kafka import TopicPartition as KafkaPartition

log = logging.getLogger(__name__)
_POLL_SECONDS = 0.2
_DEFAULT_BATCH = 500
_LARGE_BATCH = 5000
_END_SECONDS = 10.0


class SinkRunner:
    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec
        self._config = resolve(spec.connector_config)
        self._settings = parse(COMMON + SINK, self._config)
        plugin = plugins.connector(self._config["connector.class"])
        assert issubclass(plugin, SinkConnector)
        self._task: SinkTask = plugin.task_class()
        self._dead_letters = self._make_dead_letters()
        self._failures: list[Any] = []
        self._tolerance = Tolerance(
            spec.connector,
            spec.task,
            self._settings,
            stopping=spec.stopping.wait,
            dead_letters=self._dead_letters,
        )
        self._conversion = Conversion(spec.worker, self._config, self._tolerance)
        self._messages: list[tuple[TopicPartition, list[Message]]] = []
        self._in_batches = type(self._task).put_batch is not SinkTask.put_batch
        self._task.report = self._report
        self._assigned: set[TopicPartition] = set()
        self._done: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._topics: set[str] = set()
        self._subscription = Subscription(
            self._settings["topics"],
            self._settings["topics.regex"],
            seconds_between_looks(spec.worker, self._config),
        )
        self._held: list[Message] = []
        self._paused = self._waiting = False
        self._commits = RetriedCalls(spec)
        self._revoked_since: set[TopicPartition] = set()
        """Partitions revoked since the current messages were read; if reassigned, they are read again."""
        self._consumer: Consumer = make_consumer(
            spec.worker,
            self._config,
            f"connector-consumer-{spec.connector}-{spec.task}",
            {"group.id": group_of(spec.connector)},
        )
        self._batch = int(
            self._config.get("consumer.override.max.poll.records")
            or spec.worker.properties.get("consumer.max.poll.records")
            or (_LARGE_BATCH if self._in_batches else _DEFAULT_BATCH)
        )

    def _make_dead_letters(self) -> Producer | None:
        topic = self._settings["errors.deadletterqueue.topic.name"]
        if not topic:
            return None
        replicas = self._settings["errors.deadletterqueue.topic.replication.factor"]
        create_topic(self._spec, topic, NewTopicSettings(1, replicas, {}), at_most=True)
        return make_producer(
            self._spec.worker,
            self._config,
            f"connector-dlq-producer-{self._spec.connector}-{self._spec.task}",
            self._not_kept,
        )

    def _not_kept(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failures.append(error)

    def run(self) -> None:
        self._task.start(resolve(self._spec.config))
        try:
            self._subscribe()
            self._spec.channel.send("running")
            try:
                self._loop()
            except _Stopped:
                pass
            self._commit()
            self._closed(list(self._assigned))
        finally:
            self._task.stop()
            self._consumer.close()
            self._conversion.close()

    def _subscribe(self) -> None:
        """Subscribe to the named topics, or to the existing ones that match; again when these change."""
        topics = self._subscription.changed(self._existing_topics, time.monotonic())
        if topics is not None:
            self._consumer.subscribe(
                topics, on_assign=self._opened, on_revoke=self._revoked, on_lost=self._lost
            )

    def _existing_topics(self) -> list[str]:
        from confluent_kafka import KafkaException

        try:
            return list(self._consumer.list_topics(timeout=_END_SECONDS).topics)
        except KafkaException as error:
            log.warning("%s-%d: topics: %s", self._spec.connector, self._spec.task, error.args[0].str())
            return []

    def _loop(self) -> None:
        spec, interval = self._spec, self._spec.worker.flush_seconds
        due = time.monotonic() + interval
        backoff = RetriedCalls(spec)
        while not spec.stopping.is_set():
            if spec.paused.is_set() != self._paused:
                self._pause(not self._paused)
            self._subscribe()
            self._round(backoff)
            now = time.monotonic()
            if now >= due:
                self._commit()
                self._rewind()
                due = now + interval

    def _pause(self, paused: bool) -> None:
        self._paused = paused
        self._pause_or_resume(self._consumer.assignment())
        if paused:
            self._commit()
        self._spec.channel.send("paused" if paused else "running")

    def _pause_or_resume(self, partitions: list[KafkaPartition]) -> None:
        if self._paused or self._waiting:
            self._consumer.pause(partitions)
        else:
            self._consumer.resume(partitions)

    def _round(self, backoff: RetriedCalls) -> None:
        held, self._held = self._held, []
        # Wait for one record; `consume` alone would wait until it has the maximum number.
        messages = held
        if not messages:
            first = self._consumer.poll(_POLL_SECONDS)
            if first is None:
                return
            self._revoked_since.clear()
            messages = self._consumer.consume(self._batch - 1, 0)
            if (first.topic(), first.partition()) not in self._revoked_since:
                messages = [first, *messages]
        self._revoked_since.clear()
        runs = by_partition([each for each in messages if each.error() is None or not self._failed(each)])
        runs = [(place, some) for place, some in runs if self._usable(place)]
        if not runs:
            return
        self._messages = runs
        if self._in_batches:
            self._put_batches(runs, backoff)
        else:
            self._put_records([each for _, some in runs for each in some], backoff)
        for place, some in runs:
            if self._mine(place):
                self._done[place] = (some[-1].offset() or 0) + 1
        self._rewind()

    def _failed(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return False
        if error.fatal():
            raise ConnectError(f"the consumer failed: {error.str()}")
        log.warning("%s-%d: %s", self._spec.connector, self._spec.task, error.str())
        return True

    def _usable(self, place: TopicPartition) -> bool:
        topic = place[0]
        if topic not in self._topics:
            self._topics.add(topic)
            self._spec.channel.send("topics", topics=[topic])
        return place in self._assigned

    def _put_batches(self, runs: list[tuple[TopicPartition, list[Message]]], backoff: RetriedCalls) -> None:
        for place, messages in runs:
            if not self._mine(place):
                continue  # it was revoked while another partition's batch waited
            batch = self._conversion.decode_batch(messages)
            if batch is None:
                self._put_records(messages, backoff)
            else:
                self._put(batch, backoff)

    def _put_records(self, messages: list[Message], backoff: RetriedCalls) -> None:
        records = [record for each in messages if (record := self._conversion.decode(each)) is not None]
        # A task may store offsets with its data: records it skips must be durable before.
        self._flush_dead_letters()
        self._put(records, backoff)

    def _put(self, records: list[SinkRecord] | SinkBatch, backoff: RetriedCalls) -> None:
        while records:
            try:
                if isinstance(records, SinkBatch):
                    self._task.put_batch(records)
                else:
                    self._task.put(records)
                break
            except RetriableError as error:
                if not self._waiting:
                    self._waiting = True
                    self._pause_or_resume(self._consumer.assignment())
                self._wait(backoff.pause(error))
                if self._spec.stopping.is_set():
                    raise _Stopped from None
                records = self._still_mine(records)
        if self._waiting:
            backoff.succeeded()
            self._waiting = False
            self._pause_or_resume(self._consumer.assignment())

    def _mine(self, place: TopicPartition) -> bool:
        return place in self._assigned and place not in self._revoked_since

    def _still_mine(self, records: list[SinkRecord] | SinkBatch) -> list[SinkRecord] | SinkBatch:
        if isinstance(records, SinkBatch):
            return records if self._mine((records.topic, records.partition)) else []
        return [each for each in records if self._mine((each.original_topic, each.original_partition))]

    def _wait(self, seconds: float) -> None:
        """Stay a member of the group meanwhile; records that arrive despite the pause are kept."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self._spec.stopping.is_set():
            message = self._consumer.poll(min(left, 0.2))
            if message is not None:
                self._held.append(message)

    def _report(self, record: SinkRecord, error: Exception) -> None:
        """For a task that finds one bad record, in the current batch or in an earlier one."""
        place, offset = (record.original_topic, record.original_partition), record.original_offset
        message = next(
            (each for at, some in self._messages if at == place for each in some if each.offset() == offset),
            None,
        )
        origin: Any = record.origin
        if origin is None and self._tolerance.keeps:
            origin = _origin(message if message is not None else self._read_again(place, offset))
        name = f"{type(self._task).__module__}.{type(self._task).__qualname__}"
        self._tolerance.failed(error, "TASK_PUT", name, origin, record.value)
        self._flush_dead_letters()

    def _read_again(self, place: TopicPartition, offset: int) -> Message:
        """A record of an earlier batch, for the dead-letter topic: its bytes were not kept."""
        from confluent_kafka import TopicPartition as KafkaTopicPartition

        consumer = make_consumer(
            self._spec.worker,
            self._config,
            f"connector-dlq-consumer-{self._spec.connector}-{self._spec.task}",
            {"group.id": group_of(self._spec.connector)},  # nothing is joined or committed
        )
        try:
            consumer.assign([KafkaTopicPartition(*place, offset)])
            message = consumer.poll(_END_SECONDS)
            if message is None or message.error() is not None or message.offset() != offset:
                raise ConnectError(f"{place[0]}-{place[1]} has no record {offset} for the dead letter queue")
            return message
        finally:
            consumer.close()

    # Offsets

    def _rewind(self) -> None:
        from confluent_kafka import TopicPartition as KafkaTopicPartition

        if not self._task.rewind:
            return
        rewind, self._task.rewind = dict(self._task.rewind), {}
        for (topic, partition), offset in rewind.items():
            if (topic, partition) in self._assigned:
                self._drop_held({(topic, partition)})
                self._consumer.seek(KafkaTopicPartition(topic, partition, offset))
                self._done[topic, partition] = offset

    def _commit(self) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka import TopicPartition as KafkaTopicPartition

        self._flush_dead_letters()
        if not self._done:
            return
        try:
            allowed = self._task.precommit(dict(self._done))
        except RetriableError as error:
            self._commits.pause(error)  # retry with the next offsets
            return
        self._commits.succeeded()
        new = {
            place: offset
            for place, offset in allowed.items()
            if place in self._assigned and self._committed.get(place) != offset
        }
        if not new:
            return
        try:
            self._consumer.commit(
                offsets=[KafkaTopicPartition(*place, offset) for place, offset in new.items()],
                asynchronous=False,
            )
            self._committed |= new
        except KafkaException as error:
            # The group is rebalancing, or its coordinator is unavailable: committed with the next offsets.
            log.warning("%s-%d: offsets: %s", self._spec.connector, self._spec.task, error.args[0].str())

    def _flush_dead_letters(self) -> None:
        if self._dead_letters is None or not len(self._dead_letters):
            return
        self._dead_letters.flush()
        if self._failures:
            raise ConnectError(f"the dead letter queue refused a record: {self._failures[0].str()}")

    # Partitions

    def _opened(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        places = [(each.topic, each.partition) for each in partitions]
        self._assigned |= set(places)
        own = self._open(places)
        offsets = {**(own or {}), **self._task.rewind}
        self._task.rewind = {}
        for each in partitions:
            place = (each.topic, each.partition)
            if place in offsets:
                # The group may be behind the stored offsets, for example if the last task died between the
                # two commits.
                each.offset = self._done[place] = offsets[place]
        consumer.assign(partitions)
        # Also resume: librdkafka keeps a partition paused that was revoked while it was paused.
        self._pause_or_resume(partitions)

    def _open(self, places: list[TopicPartition]) -> Any:
        """Retry until the task knows where to continue: a store with offsets may be unavailable."""
        backoff = RetriedCalls(self._spec)
        while True:
            try:
                own = self._task.open(places)
                for place, offset in (own or {}).items():
                    self._check_end(place, offset)
                backoff.succeeded()
                return own
            except RetriableError as error:
                backoff.wait(error)
                if self._spec.stopping.is_set():
                    raise _Stopped from None

    def _check_end(self, place: TopicPartition, offset: int) -> None:
        """If the stored offset is past the end of the topic, new records would be taken for those already
        stored.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka import TopicPartition as KafkaTopicPartition

        if offset <= 0:
            return
        try:
            _, end = self._consumer.get_watermark_offsets(KafkaTopicPartition(*place), timeout=_END_SECONDS)
        except KafkaException as error:
            raise RetriableError(f"The end of {place[0]}-{place[1]}: {error.args[0].str()}") from error
        if offset > end:
            raise ConnectError(
                f"{place[0]}-{place[1]} ends at offset {end}, but the sink has written its records up to "
                f"{offset}: the topic was deleted and created again, or its cluster has lost records. To "
                "write all records, stop the connector and reset its offsets, or use another connector name"
            )

    def _revoked(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        self._commit()
        self._closed([(each.topic, each.partition) for each in partitions])

    def _lost(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        """Another member owns them already: nothing may be committed."""
        self._closed([(each.topic, each.partition) for each in partitions])

    def _closed(self, places: list[TopicPartition]) -> None:
        if places:
            self._task.close(places)
        self._revoked_since |= set(places)
        self._drop_held(set(places))
        for place in places:
            self._assigned.discard(place)
            self._done.pop(place, None)
            self._committed.pop(place, None)

    def _drop_held(self, places: set[TopicPartition]) -> None:
        self._held = [each for each in self._held if (each.topic(), each.partition()) not in places]


class _Stopped(Exception):
    """The task was asked to stop while it waited to put a batch again."""


def by_partition(messages: list[Message]) -> list[tuple[TopicPartition, list[Message]]]:
    """Consecutive messages of one partition together, in order."""
    places = [(each.topic() or "", each.partition() or 0) for each in messages]
    if places and places.count(places[0]) == len(places):
        return [(places[0], messages)]  # the common case: the client returns one partition after the other
    pairs = groupby(zip(places, messages, strict=True), key=itemgetter(0))
    return [(place, [message for _, message in some]) for place, some in pairs]


def group_of(connector: str) -> str:
    return f"connect-{connector}"


def _origin(message: Message) -> Any:
    headers: Any = message.headers() or []
    return (
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        message.key(),
        message.value(),
        headers,
    )
