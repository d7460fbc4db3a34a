"""A client of its own process that copies a topic, each batch in one transaction with its offsets, forever.

`python -m tests.cluster.copier BOOTSTRAP TRANSACTIONAL_ID SOURCE TARGET GROUP BATCH [DEAL]`. An error ends
it: who runs it starts it again. DEAL is a number of partitions: records go to the one that their number says,
not to the one they came from, in many small batches, and right after each commit a transaction is aborted.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

if TYPE_CHECKING:
    from tests.cluster.harness import Cluster

_STUCK = 15.0
_TRANSACTION_TIMEOUT_S = 20.0  # of the copier in Java, too
ABORTED = b"aborted"
"""The value of records that nobody may see."""


class Copier:
    """Such a process, started again whenever it has ended."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        source: str,
        target: str,
        group: str,
        batch: int = 40,
        *,
        deal: int = 0,
        program: Sequence[str] = (sys.executable, "-m", "tests.cluster.copier"),
    ) -> None:
        words = [cluster.bootstrap, name, source, target, group, str(batch), str(deal)]
        self._command = [*program, *words]
        self._log = cluster.directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def bounce(self) -> None:
        self.kill()
        self.start()

    def keep_running(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            self.start()

    def __enter__(self) -> Copier:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()


def copied(cluster: Cluster, source: str, partitions: int, group: str) -> int:
    """Up to where the source is copied; the copiers do not count a commit whose answer they did not get."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    try:
        wanted = [TopicPartition(source, number) for number in range(partitions)]
        return sum(max(one.offset, 0) for one in consumer.committed(wanted, timeout=30))
    except KafkaException:
        return 0
    finally:
        consumer.close()


def await_copied(
    cluster: Cluster,
    copiers: list[Copier],
    source: str,
    partitions: int,
    group: str,
    wanted: int,
    patience: float,
) -> None:
    """Until so much of the source is copied; `patience` is how long nothing may happen."""
    before, since, bounced = -1, time.monotonic(), time.monotonic()
    while (now := copied(cluster, source, partitions, group)) < wanted:
        if now > before:
            before, since = now, time.monotonic()
        assert time.monotonic() - since < patience, f"nothing is copied after {before} of {wanted} records"
        for copier in copiers:
            copier.keep_running()
        if time.monotonic() - max(since, bounced) > _STUCK:
            # librdkafka 2.16 may wait forever for a coordinator that was dead when it was told of it.
            bounced = time.monotonic()
            for copier in copiers:
                copier.bounce()
        time.sleep(0.1)


def await_no_open_transactions(cluster: Cluster, topic: str, partitions: int) -> None:
    """Until a read_committed reader can read all of it: open transactions are aborted after their timeout."""
    ends: dict[str, dict[int, int]] = {"read_uncommitted": {}, "read_committed": {}}
    end = time.monotonic() + 4 * _TRANSACTION_TIMEOUT_S
    while True:
        for isolation, found in ends.items():
            settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "open", "log_level": 0}
            consumer = Consumer({**settings, "isolation.level": isolation})
            for index in range(partitions):
                with contextlib.suppress(KafkaException):
                    found[index] = consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=5)[1]
            consumer.close()
        high, stable = ends.values()
        if high == stable and len(high) == partitions:
            return
        assert time.monotonic() < end, f"transactions of {topic} hang: it has {high}, committed is {stable}"
        time.sleep(0.5)


def main(
    bootstrap: str, transactional_id: str, source: str, target: str, group: str, batch: str, deal: str = "0"
) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "log_level": 0,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": int(_TRANSACTION_TIMEOUT_S * 1000),
            "log_level": 0,
            **({"linger.ms": 0, "batch.num.messages": 7} if int(deal) else {}),
        }
    )
    producer.init_transactions(60)
    consumer.subscribe([source])
    while True:
        messages = [one for one in consumer.consume(int(batch), 0.5) if one.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value(), partition=_partition(message, int(deal)))
        ends = {one.partition(): one.offset() + 1 for one in messages}
        offsets = [TopicPartition(source, index, offset) for index, offset in ends.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 20)
        producer.commit_transaction(20)
        if int(deal):
            producer.begin_transaction()
            producer.produce(target, ABORTED, partition=_partition(messages[0], int(deal)))
            if len(messages) % 2:
                producer.flush(20)
            producer.abort_transaction(20)


def _partition(message: Message, deal: int) -> int:
    if not deal:
        return message.partition()
    value = message.value()
    assert isinstance(value, bytes)
    return int(value.rpartition(b":")[2]) % deal


if __name__ == "__main__":
    main(*sys.argv[1:])
