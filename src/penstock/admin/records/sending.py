"""Sends records with every delivery checked, for `produce`, imports, replays and the console."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.admin.cluster import Cluster, choose_partitions, topic_infos
from penstock.admin.failure import CommandFailed, UnknownTopic, reason
from penstock.admin.records.outgoing import Headers, OutgoingRecord
from penstock.admin.words import plural

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
LONGEST = 1_000_000_000


class Deliveries:
    """What became of the records that were sent."""

    def __init__(self) -> None:
        self.delivered = 0
        self.failed = 0
        self.bytes = 0
        self.first_error: KafkaError | None = None
        self.last: tuple[int, int] | None = None
        """Partition and offset of the record that was delivered last."""

    def report(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.delivered += 1
            self.bytes += len(message)
            partition, offset = message.partition(), message.offset()
            if partition is not None and offset is not None:
                self.last = (partition, offset)
        else:
            self.fail(error)

    def fail(self, error: KafkaError) -> None:
        self.failed += 1
        if self.first_error is None:
            self.first_error = error


class Sender:
    """Writes records to a topic, which has to exist or to be created by the broker at the first question."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        partition: int | None = None,
        common: Headers = (),
        acks: str = "all",
        compression: str = "none",
    ) -> None:
        self._topic, self._partition, self._common = topic, partition, common
        self.deliveries = Deliveries()
        self._producer = cluster.producer(
            {
                "acks": acks,
                "enable.idempotence": acks == "all",
                "compression.type": compression,
                "message.timeout.ms": max(1000, int(cluster.timeout * 1000)),
                "message.max.bytes": LONGEST,  # the limits of broker and topic count
            }
        )
        _check_target(cluster, self._producer, topic, partition)

    def send(self, record: OutgoingRecord) -> None:
        """Waits where too much is under way."""
        _send(self._producer, self._topic, self._partition, record, self._common, self.deliveries)

    def drain(self) -> None:
        """Wait until every record is delivered or has failed; message.timeout.ms bounds it."""
        while self._producer.flush(0.2):
            pass

    def abandon(self) -> None:
        """Drop what was not sent yet, and wait for what was."""
        self._producer.purge(in_flight=False)
        self.drain()

    def check(self) -> None:
        """CommandFailed with the first error if a record was not delivered."""
        first = self.deliveries.first_error
        if first is None:
            return
        total = self.deliveries.failed + self.deliveries.delivered
        raise CommandFailed(
            f"{self.deliveries.failed:,} of {plural(total, 'record')} not written to '{self._topic}'; "
            f"the first error: {reason(first)} ({first.name().lstrip('_')})."
        )


def _check_target(cluster: Cluster, producer: Producer, topic: str, partition: int | None) -> None:
    """Ask for the topic first: the broker makes it now, if it creates topics automatically, or says no.

    librdkafka alone would keep the records for a long time before it gives an unknown topic up.
    """
    from confluent_kafka import KafkaError

    metadata = cluster.metadata(producer, f"cannot look up topic '{topic}'", topic)
    problem: KafkaError | None = metadata.topics[topic].error
    if problem is not None:
        if problem.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise UnknownTopic(topic, cluster.topics())
        if problem.code() != KafkaError.LEADER_NOT_AVAILABLE:  # being created just now
            raise cluster.failure(problem, f"cannot write to topic '{topic}'")
    if partition is not None:
        info = topic_infos(metadata).get(topic) or cluster.topic(topic)
        choose_partitions(info, [partition])


def _send(
    producer: Producer,
    topic: str,
    partition: int | None,
    record: OutgoingRecord,
    common: Headers,
    deliveries: Deliveries,
) -> None:
    from confluent_kafka import KafkaException

    target = record.partition if record.partition is not None else partition
    options: dict[str, Any] = {}
    if common or record.headers:
        options["headers"] = [*common, *record.headers]
    if record.timestamp is not None:
        options["timestamp"] = record.timestamp
    while True:
        try:
            producer.produce(
                topic,
                record.value,
                record.key,
                -1 if target is None else target,
                on_delivery=deliveries.report,
                **options,
            )
            break
        except BufferError:
            producer.poll(0.2)
        except KafkaException as error:
            deliveries.fail(error.args[0])
            break
    producer.poll(0)
