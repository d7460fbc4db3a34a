"""Records that do not decode, written to a topic by the task that met them.

A letter has the record's key, value and headers as they were, and headers that say where it came from and
what is wrong with it: penstock.dead.reason, .part, .topic, .partition, .offset, .timestamp and .schema.id.
It is acknowledged by all in-sync replicas before the batch without its record is given to Spark. A task that
is run again writes its letters again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.spark.errors import NotDelivered
from penstock.spark.librdkafka_names import translate

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import KafkaError, Message, Producer

    from penstock.spark.typed import Failure

PREFIX = "penstock.dead."
_MOST_OF_A_REASON = 1000
_TIMEOUT_MS = 60_000
_SETTINGS = ("bootstrap.servers", "client.dns.lookup")
_FAMILIES = ("security.", "ssl.", "sasl.")


class DeadLetters:
    """The topic's producer, made with the first letter."""

    def __init__(self, topic: str, kafka: Mapping[str, str]) -> None:
        self._topic = topic
        # The other settings are a reader's.
        self._kafka = {
            name: value for name, value in kafka.items() if name in _SETTINGS or name.startswith(_FAMILIES)
        }
        self._producer: Producer | None = None
        self._error: KafkaError | None = None

    def send(self, batch: pa.RecordBatch, row: int, failure: Failure) -> None:
        from confluent_kafka import KafkaException

        record = {name: batch.column(name)[row].as_py() for name in ("topic", "partition", "offset")}
        told: dict[str, Any] = {"reason": failure.reason[:_MOST_OF_A_REASON], "part": failure.part, **record}
        told["timestamp"] = batch.column("timestamp").cast("int64")[row].as_py() // 1000
        if failure.schema_id is not None:
            told["schema.id"] = failure.schema_id
        headers = [(each["key"], each["value"]) for each in batch.column("headers")[row].as_py() or ()]
        headers += [(PREFIX + name, str(value).encode()) for name, value in told.items()]
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
            quiet = logging.getLogger("penstock.spark.librdkafka")
            quiet.propagate = False
            settings: dict[str, Any] = {
                **translate(self._kafka),
                "client.id": "penstock-spark-dead-letters",
                "enable.idempotence": True,
                "message.timeout.ms": _TIMEOUT_MS,
            }
            try:
                self._producer = Producer(settings, logger=quiet)
            except KafkaException as error:
                raise self._not_delivered(error.args[0]) from None
        return self._producer

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._error = error

    def _not_delivered(self, error: KafkaError) -> NotDelivered:
        what = f"a record that does not decode could not be written to dead.letter.topic={self._topic}"
        return NotDelivered(f"{what}: {error.str()}")
