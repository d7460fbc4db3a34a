"""Load in the background, and the check afterwards: what was acknowledged is there, once, in order.

A value is `writer:number`; numbers of a writer grow. Each record goes to the partition that its number says,
so that the order within a partition is known. A reader is there all the time: what it was shown stays so.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.cluster.harness import PATIENCE, Cluster

_STUCK = PATIENCE / 3


@dataclass
class History:
    """What the writers were told. `acknowledged` is value → (partition, offset or -1), `read` what a reader
    was shown on the way, (partition, offset) → value."""

    acknowledged: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    failed: list[tuple[bytes, KafkaError]] = field(default_factory=list)
    read: dict[tuple[int, int], bytes] = field(default_factory=dict)
    misread: list[str] = field(default_factory=list)
    sent: int = 0

    def is_read(self) -> bool:
        """Whether the reader has got to all that was acknowledged."""
        ends: dict[int, int] = defaultdict(lambda: -1)
        for partition, offset in list(self.acknowledged.values()):
            ends[partition] = max(ends[partition], offset)
        return all(end < 0 or (partition, end) in self.read for partition, end in ends.items())


class Reader:
    """Reads a topic from its beginning, as it grows, until it is told to stop."""

    def __init__(
        self, cluster: Cluster, topic: str, partitions: int, history: History, *, debug: bool = False
    ) -> None:
        """With `debug`, what the client does is in `reader-TOPIC.log` beside the logs of the brokers."""
        self._topic = topic
        self._partitions = partitions
        self._history = history
        self._next = dict.fromkeys(range(partitions), 0)
        self._stopping = threading.Event()
        self._settings = {
            "bootstrap.servers": cluster.bootstrap,
            **cluster.client_config,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "retry.backoff.max.ms": 200,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 2000,
            **({"debug": "topic,fetch"} if debug else {"log_level": 0}),
        }
        self._logger = _log_to(cluster.directory / f"reader-{topic}.log") if debug else None
        self._thread = threading.Thread(target=self._read, name=f"reader of {topic}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def give_up(self) -> None:
        self._stopping.set()

    def stop(self) -> None:
        """It has read all that was acknowledged, or says that it cannot."""
        if self._stopping.is_set():
            return
        end = time.monotonic() + 2 * PATIENCE
        while not self._history.is_read() and not self._history.misread and time.monotonic() < end:
            time.sleep(0.05)
        self._stopping.set()
        self._thread.join()
        if not self._history.misread:
            assert self._history.is_read(), f"a reader is stuck: it would go on at {self._next}"

    def _read(self) -> None:
        while not self._stopping.is_set():
            consumer = Consumer(self._settings, logger=self._logger)
            consumer.assign([TopicPartition(self._topic, *one) for one in self._next.items()])
            if self._read_with(consumer):
                consumer.close()
            else:
                # librdkafka 2.16 deadlocks now and then when a broker goes (rd_kafka_toppar_undelegate): such
                # a consumer reads nothing more, and neither closes nor can be freed.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(consumer))

    def _read_with(self, consumer: Consumer) -> bool:
        """Reads until it is told to stop. False if this consumer shows nothing more of what there is."""
        since = time.monotonic()
        while not self._stopping.is_set():
            messages = consumer.consume(500, 0.1)
            for message in messages:
                self._take(message)
            if messages or self._history.is_read():
                since = time.monotonic()
            elif time.monotonic() - since > _STUCK:
                return False
        return time.monotonic() - since < _STUCK / 2

    def _take(self, message: Message) -> None:
        error, partition, offset = message.error(), message.partition(), message.offset()
        if error is not None:
            if error.code() in _READER_LOST:
                self._history.misread.append(f"partition {partition}: {error}")
            return
        value = message.value()
        assert isinstance(value, bytes) and partition is not None and offset is not None
        if offset < self._next[partition]:
            self._history.misread.append(f"partition {partition}: {offset} after {self._next[partition] - 1}")
        self._next[partition] = offset + 1
        self._history.read[partition, offset] = value


def _log_to(file: Path) -> logging.Logger:
    handler = logging.FileHandler(file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger = logging.Logger(file.name)
    logger.addHandler(handler)
    return logger


# What a reader hears when the offset where it goes on is not there.
_READER_LOST = (
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError._LOG_TRUNCATION,
    KafkaError.OFFSET_OUT_OF_RANGE,
)


class Writer:
    """Writes with acks=all and idempotence until it is told to stop, and is read all the while. Use as a
    context manager."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partitions: int = 3,
        *,
        name: str = "w",
        pause: float = 0.01,
        debug: bool = False,
        **settings: object,
    ) -> None:
        """After 20 records it rests for `pause` seconds. With `debug`, what the client does about idempotence
        is in `writer-TOPIC.log` beside the logs of the brokers, and its reader has a log, too."""
        self.history = History()
        self._pause = pause
        self._topic = topic
        self._partitions = partitions
        self._name = name
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                **cluster.client_config,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": int(PATIENCE * 2000),
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 2000,
                **({"debug": "eos"} if debug else {"log_level": 0}),
                **settings,
            },
            logger=_log_to(cluster.directory / f"writer-{topic}.log") if debug else None,
        )
        self._thread = threading.Thread(target=self._write, name=f"writer-{name}", daemon=True)
        self._reader = Reader(cluster, topic, partitions, self.history, debug=debug)

    def __enter__(self) -> Writer:
        self._reader.start()
        self._thread.start()
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        if kind is not None:
            self._reader.give_up()  # what went wrong is known already
        self.stop()

    def stop(self) -> History:
        """No more records; what was sent is acknowledged or has failed when this returns."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._thread.join()
            assert self._producer.flush(PATIENCE * 2) == 0, "records are still under way"
            self._reader.stop()
        return self.history

    def wait_for_progress(self, more: int = 50) -> None:
        """Until so many more records are acknowledged: the load goes on."""
        wanted = len(self.history.acknowledged) + more
        end = time.monotonic() + PATIENCE
        while len(self.history.acknowledged) < wanted:
            assert time.monotonic() < end, f"nothing is acknowledged any more: {self.history.failed[-3:]}"
            time.sleep(0.02)

    def _write(self) -> None:
        number = 0
        while not self._stopping.is_set():
            value = f"{self._name}:{number}".encode()
            try:
                self._producer.produce(
                    self._topic, value, partition=number % self._partitions, on_delivery=self._delivered
                )
            except BufferError:
                self._producer.poll(0.05)
                continue
            except KafkaException as error:  # fatal: the producer is of no more use, and the check tells
                self.history.failed.append((value, error.args[0]))
                return
            self.history.sent += 1
            number += 1
            self._producer.poll(0)
            if number % 20 == 0:
                self._stopping.wait(self._pause)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        assert isinstance(value, bytes)
        if error is None:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            # Without an offset: a retry of a batch that is there, and longer ago than offsets are remembered.
            self.history.acknowledged[value] = (partition, -1 if offset is None or offset < 0 else offset)
        else:
            self.history.failed.append((value, error))


def read_all(
    cluster: Cluster, topic: str, *, isolation: str = "read_committed"
) -> dict[int, list[tuple[int, bytes]]]:
    """Every partition's (offset, value), read to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            **cluster.client_config,
            "group.id": "checker",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    found: dict[int, list[tuple[int, bytes]]] = {}
    try:
        partitions = list(cluster.metadata(topic).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found = {number: [] for number in partitions}
        left = set(partitions)
        end = time.monotonic() + PATIENCE
        while left:
            assert time.monotonic() < end, f"partitions {left} cannot be read to their end"
            for message in consumer.consume(5000, 1.0):
                error, number = message.error(), message.partition()
                assert number is not None
                if error is None:
                    value, offset = message.value(), message.offset()
                    assert isinstance(value, bytes) and offset is not None
                    found[number].append((offset, value))
                    left.add(number)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(number)
                elif not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return found


def check(history: History, log: dict[int, list[tuple[int, bytes]]]) -> None:
    """Nothing acknowledged is lost or moved, nothing is there twice, each writer's order is kept, and every
    offset means what it meant to who has read it."""
    assert not history.misread, history.misread[:5]
    at = {(partition, offset): value for partition, records in log.items() for offset, value in records}
    ours = {value.partition(b":")[0] for value in history.acknowledged}
    changed = {
        where: (value, at.get(where))
        for where, value in history.read.items()
        # The log may have been given without the records of others.
        if at.get(where) != value and (where in at or value.partition(b":")[0] in ours)
    }
    assert not changed, f"{len(changed)} offsets mean something else now, {list(changed.items())[:5]}"
    where = {value: (partition, offset) for partition, records in log.items() for offset, value in records}
    lost = [value for value in history.acknowledged if value not in where]
    assert not lost, f"{len(lost)} acknowledged records are lost, the first {lost[:5]}"
    moved = {
        value: (was, where[value])
        for value, was in history.acknowledged.items()
        if where[value] != was and was != (where[value][0], -1)
    }
    assert not moved, f"{len(moved)} records lie elsewhere than was said, the first {list(moved.items())[:5]}"
    counted: dict[bytes, int] = defaultdict(int)
    for records in log.values():
        for _, value in records:
            counted[value] += 1
    twice = [value for value, count in counted.items() if count > 1]
    assert not twice, f"{len(twice)} records are there more than once, the first {twice[:5]}"
    for partition, records in log.items():
        newest: dict[bytes, int] = {}
        for offset, value in records:
            name, _, number = value.partition(b":")
            before = newest.get(name, -1)
            assert int(number) > before, f"partition {partition}, offset {offset}: {value!r} after {before}"
            newest[name] = int(number)
