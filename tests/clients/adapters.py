"""Three real clients behind one small interface, so that a promise can be tested with each of them.

Consumers take their partitions by hand (`assign`, no group): groups are not what these tests are about.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
WAIT = 30.0


@dataclass(frozen=True)
class Rec:
    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp: int | None = field(default=None, compare=False)
    offset: int | None = field(default=None, compare=False)


class ProduceFailed(Exception):
    """A client gave up on a record; `.code` is Kafka's error code."""

    def __init__(self, code: int, text: object) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Client(Protocol):
    name: str

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Rec],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        options: dict[str, Any] | None = None,
    ) -> list[int]:
        """The offsets of the records, or -1 where the client does not learn it."""
        ...

    def consume(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        *,
        start: dict[int, int] | None = None,
        isolation: str = "read_uncommitted",
    ) -> list[Rec]:
        """`count` records from the given offsets of the given partitions (default: partition 0 from 0)."""
        ...


def by_hand(bootstrap: str, **options: Any) -> dict[str, Any]:
    """Settings of a confluent-kafka consumer that has no group but must name one."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "by-hand",
        # It would wait for a coordinator when it is closed.
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 50,
        **{name.replace("_", "."): value for name, value in options.items()},
    }


class Confluent:
    name = "confluent"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Rec],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        options: dict[str, Any] | None = None,
    ) -> list[int]:
        from confluent_kafka import Producer

        config = {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": idempotent,
            "linger.ms": 1,
            "message.timeout.ms": 20_000,
            **(options or {}),
        }
        if not idempotent:
            config["acks"] = acks
        producer = Producer(config)
        offsets = [-1] * len(records)
        failures: list[ProduceFailed] = []

        def delivered(index: int) -> Any:
            def callback(error: Any, message: Any) -> None:
                if error is not None:
                    failures.append(ProduceFailed(error.code(), error.str()))
                else:
                    offset = message.offset()
                    offsets[index] = -1 if offset is None or offset < 0 else offset

            return callback

        for index, record in enumerate(records):
            extra = {} if record.timestamp is None else {"timestamp": record.timestamp}
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                on_delivery=delivered(index),
                headers=list(record.headers) or None,
                **extra,
            )
        left = producer.flush(WAIT)
        if failures:
            raise failures[0]
        assert left == 0, f"{left} records were not delivered in time"
        return offsets

    def consume(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        *,
        start: dict[int, int] | None = None,
        isolation: str = "read_uncommitted",
    ) -> list[Rec]:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(by_hand(bootstrap, isolation_level=isolation, auto_offset_reset="error"))
        try:
            consumer.assign([TopicPartition(topic, p, o) for p, o in (start or {0: 0}).items()])
            found: list[Rec] = []
            deadline = time.monotonic() + WAIT
            while len(found) < count and time.monotonic() < deadline:
                for message in consumer.consume(count - len(found), 0.2):
                    if message.error() is not None:
                        raise AssertionError(message.error())
                    found.append(
                        Rec(
                            message.value(),
                            message.key(),
                            message.partition(),
                            tuple(message.headers() or ()),
                            message.timestamp()[1],
                            message.offset(),
                        )
                    )
            return found
        finally:
            consumer.close()


class KafkaPython:
    name = "kafka-python"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Rec],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        options: dict[str, Any] | None = None,
    ) -> list[int]:
        from kafka import KafkaProducer
        from kafka.errors import KafkaError

        _give_snappy_to_kafka_python()

        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            linger_ms=1,
            delivery_timeout_ms=20_000,
            request_timeout_ms=10_000,
            **(options or {}),
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp,
                )
                for record in records
            ]
            producer.flush(WAIT)
            return [future.get(WAIT).offset for future in futures]
        except KafkaError as error:
            raise ProduceFailed(getattr(error, "errno", 0), error) from error
        finally:
            producer.close(WAIT)

    def consume(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        *,
        start: dict[int, int] | None = None,
        isolation: str = "read_uncommitted",
    ) -> list[Rec]:
        from kafka import KafkaConsumer, TopicPartition

        _give_snappy_to_kafka_python()
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            isolation_level=isolation,
            auto_offset_reset="none",
            fetch_max_wait_ms=50,
        )
        try:
            positions = {TopicPartition(topic, p): o for p, o in (start or {0: 0}).items()}
            consumer.assign(list(positions))
            for partition, offset in positions.items():
                consumer.seek(partition, offset)
            found: list[Rec] = []
            deadline = time.monotonic() + WAIT
            while len(found) < count and time.monotonic() < deadline:
                for messages in consumer.poll(200, max_records=count - len(found)).values():
                    for m in messages:
                        found.append(
                            Rec(m.value, m.key, m.partition, tuple(m.headers), m.timestamp, m.offset)
                        )
            return found
        finally:
            consumer.close()


def _give_snappy_to_kafka_python() -> None:
    """It wants python-snappy, which is cramjam under another name."""
    import kafka.codec

    if kafka.codec.snappy is None:
        kafka.codec.snappy = _SnappyOverCramjam


class _SnappyOverCramjam:
    @staticmethod
    def compress(data: bytes) -> bytes:
        import cramjam

        return bytes(cramjam.snappy.compress_raw(data))

    @staticmethod
    def decompress(data: bytes) -> bytes:
        import cramjam

        return bytes(cramjam.snappy.decompress_raw(bytes(data)))


class AioKafka:
    name = "aiokafka"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Rec],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        options: dict[str, Any] | None = None,
    ) -> list[int]:
        return asyncio.run(self._produce(bootstrap, topic, records, codec, acks, idempotent, options or {}))

    async def _produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Rec],
        codec: str,
        acks: str,
        idempotent: bool,
        options: dict[str, Any],
    ) -> list[int]:
        from aiokafka import AIOKafkaProducer
        from aiokafka.errors import KafkaError

        async with asyncio.timeout(WAIT):
            async with AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if codec == "none" else codec,
                acks=acks if acks == "all" else int(acks),
                enable_idempotence=idempotent,
                linger_ms=1,
                **options,
            ) as producer:
                try:
                    futures = [
                        await producer.send(
                            topic,
                            value=record.value,
                            key=record.key,
                            headers=list(record.headers),
                            partition=record.partition,
                            timestamp_ms=record.timestamp,
                        )
                        for record in records
                    ]
                    sent = [await future for future in futures]
                except KafkaError as error:
                    raise ProduceFailed(getattr(error, "errno", 0), error) from error
                return [-1 if metadata is None else metadata.offset for metadata in sent]

    def consume(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        *,
        start: dict[int, int] | None = None,
        isolation: str = "read_uncommitted",
    ) -> list[Rec]:
        return asyncio.run(self._consume(bootstrap, topic, count, start or {0: 0}, isolation))

    async def _consume(
        self, bootstrap: str, topic: str, count: int, start: dict[int, int], isolation: str
    ) -> list[Rec]:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        async with asyncio.timeout(WAIT):
            async with AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=None,
                isolation_level=isolation,
                auto_offset_reset="none",
                fetch_max_wait_ms=50,
            ) as consumer:
                consumer.assign([TopicPartition(topic, p) for p in start])
                for p, offset in start.items():
                    consumer.seek(TopicPartition(topic, p), offset)
                found: list[Rec] = []
                while len(found) < count:
                    batch = await consumer.getmany(timeout_ms=200, max_records=count - len(found))
                    for messages in batch.values():
                        for m in messages:
                            found.append(
                                Rec(m.value, m.key, m.partition, tuple(m.headers), m.timestamp, m.offset)
                            )
                return found


CLIENTS: dict[str, Client] = {
    client.name: client
    for client in (Confluent(), KafkaPython(), AioKafka())  # type: ignore[misc]
}
