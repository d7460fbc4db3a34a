"""Records that do not decode, written to a topic by the task that met them.

A letter has the record's key, value and headers as they were, and headers that say where it came from and
what is wrong with it: penstock.dead.reason, .part, .query, .topic, .partition, .offset, .timestamp and
.schema.id. It is acknowledged by all in-sync replicas before the batch without its record is given to Spark.
A task that is run again writes its letters again.

The topic is created with the first letter if it does not exist, so none is created when all records decode.
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
    """The topic and its producer, made with the first letter. `query` is whose letters they are."""

    def __init__(self, cluster: Cluster, topic: str, kafka: Mapping[str, str], query: str | None) -> None:
        self._cluster = cluster
        self._topic = topic
        self._query = query
        # The other settings are a reader's.
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
        """Until all are acknowledged; NotDelivered if one was not."""
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
        """Another task may be about to make it, too: it is made once, and both wait for its leader.

        Not left to the broker, which may not be allowed to (`auto.create.topics.enable`).
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
