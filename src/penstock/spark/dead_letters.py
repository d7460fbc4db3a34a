"""Writes records that cannot be decoded to a topic, from the task that read them.

A dead letter has the record's key, value and headers unchanged, plus headers with its origin and the reason:
penstock.dead.reason, .part, .query, .topic, .partition, .offset, .timestamp and .schema.id. It is
acknowledged by all in-sync replicas before Spark gets the batch without the record. A task that runs again
writes its dead letters again.

The topic is created with the first dead letter if it does not exist, so none is created when all records can
be decoded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.client import Cluster
from penstock.client.librdkafka import with_login
from penstock.client.librdkafka_names import translate
from penstock.client.partitioning import KEY_PARTITIONER
from penstock.errors import ApiError
from penstock.spark.errors import NotDelivered

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import KafkaError, Message, Producer

    from penstock.spark.typed.columns import Failure

PREFIX = "penstock.dead."
MOST_OF_A_REASON = 1000
_TIMEOUT_MS = 60_000
_SETTINGS = ("bootstrap.servers", "client.dns.lookup")
_FAMILIES = ("security.", "ssl.", "sasl.")


class DeadLetters:
    """The topic and its producer, created with the first dead letter. `query` is the id of the query."""

    def __init__(self, cluster: Cluster, topic: str, kafka: Mapping[str, str], query: str | None) -> None:
        self._cluster = cluster
        self._topic = topic
        self._query = query
        # The other settings are those of a consumer.
        self._kafka = {
            name: value for name, value in kafka.items() if name in _SETTINGS or name.startswith(_FAMILIES)
        }
        self._producer: Producer | None = None
        self._error: KafkaError | None = None

    def send(self, batch: pa.RecordBatch, row: int, failure: Failure) -> None:
        from confluent_kafka import KafkaException

        record = {name: batch.column(name)[row].as_py() for name in ("topic", "partition", "offset")}
        letter: dict[str, Any] = {"reason": failure.reason[:MOST_OF_A_REASON], "part": failure.part}
        if self._query is not None:
            letter["query"] = self._query
        letter |= record
        letter["timestamp"] = batch.column("timestamp").cast("int64")[row].as_py() // 1000
        if failure.schema_id is not None:
            letter["schema.id"] = failure.schema_id
        headers = [(each["key"], each["value"]) for each in batch.column("headers")[row].as_py() or ()]
        headers += [(PREFIX + name, str(value).encode()) for name, value in letter.items()]
        key, value = (batch.column(name)[row].as_py() for name in ("key", "value"))
        producer = self._made()
        while True:
            try:
                producer.produce(self._topic, value, key, headers=headers, on_delivery=self._report)
                return
            except BufferError:
                producer.poll(0.1)
            except KafkaException as error:
                raise self._not_delivered(error.args[0]) from None

    def flush(self) -> None:
        """Wait until all are acknowledged. Raises NotDelivered if one was not."""
        if self._producer is None:
            return
        deadline = time.monotonic() + 2 * _TIMEOUT_MS / 1000
        while self._producer.flush(0.5) and time.monotonic() < deadline:
            pass
        if self._error is not None:
            raise self._not_delivered(self._error)

    def _made(self) -> Producer:
        from confluent_kafka import KafkaException, Producer

        if self._producer is None:
            self._make_topic()
            quiet = logging.getLogger("penstock.spark.librdkafka")
            quiet.propagate = False
            settings: dict[str, Any] = {
                "partitioner": KEY_PARTITIONER,
                **translate(self._kafka),
                "client.id": "penstock-spark-dead-letters",
                "enable.idempotence": True,
                "message.timeout.ms": _TIMEOUT_MS,
            }
            try:
                self._producer = Producer(with_login(settings), logger=quiet)
            except KafkaException as error:
                raise self._not_delivered(error.args[0]) from None
        return self._producer

    def _make_topic(self) -> None:
        """Another task may be creating it, too: it is created once, and both wait for its leader.

        Not left to the broker's automatic creation, which may be disabled (`auto.create.topics.enable`).
        """
        try:
            if self._topic not in self._cluster.partitions([self._topic]):
                self._cluster.create_topic(self._topic, 1, if_absent=True)
        except ApiError as error:
            raise NotDelivered(
                f"a record does not decode, and dead.letter.topic={self._topic} does not exist and cannot be "
                "created. Create this topic, allow this client to create it, or name another with "
                f"dead.letter.topic (in SQL: dead_letter_topic). The cluster says: {error}"
            ) from None

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._error = error

    def _not_delivered(self, error: KafkaError) -> NotDelivered:
        what = f"a record that does not decode could not be written to dead.letter.topic={self._topic}"
        return NotDelivered(f"{what}: {error.str()}")
