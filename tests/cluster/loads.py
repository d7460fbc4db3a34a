"""More load for `make chaos`, each with its own check: ends that are looked up, records that are deleted,
keys that are compacted.

Each is a thread that runs until it is stopped, goes on after every error that a client may meet, and keeps
what it was answered; `check` says what does not fit together.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from penstock.testing import WireClient
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message as Wire
from tests.cluster.harness import PATIENCE, Cluster
from tests.cluster.history import History

_CLIENT = {
    "retry.backoff.max.ms": 200,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 2000,
    "log_level": 0,
}


class Load:
    """A thread that calls `step` until it is stopped. Use as a context manager."""

    def __init__(self, name: str) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._broken = False

    def step(self) -> None:
        raise NotImplementedError

    def _run(self) -> None:
        self._broken = True
        while not self._stopping.is_set():
            self.step()
        self._broken = False

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        assert not self._broken, f"{self._thread.name} broke, see its trace above"

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        self._stopping.set()
        self._thread.join()


class Trimmer(Load):
    """Deletes the older half of what a writer's reader has read. What was answered as deleted stays so."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int, history: History) -> None:
        super().__init__(f"trimmer of {topic}")
        self._cluster = cluster
        self._topic = topic
        self._history = history
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self.deleted: dict[int, int] = dict.fromkeys(range(partitions), 0)
        # What was asked for may be deleted, too, without an answer.
        self.asked = dict(self.deleted)

    def step(self) -> None:
        for index, low in self.deleted.items():
            newest = max((offset for at, offset in list(self._history.read) if at == index), default=0)
            wanted = low + (newest - low) // 2
            if wanted <= low:
                continue
            self.asked[index] = max(wanted, self.asked[index])
            where = TopicPartition(self._topic, index, wanted)
            try:
                answers = self._admin.delete_records([where], request_timeout=5).values()
                for answer in answers:
                    self.deleted[index] = max(low, answer.result(timeout=10).low_watermark)
            except (KafkaException, TimeoutError):
                continue
        self._stopping.wait(2)

    def check(self, found: dict[int, list[Message]]) -> None:
        """`found` is what the topic has, from its beginning."""
        history = self._history
        for index, messages in found.items():
            low = self.deleted[index]
            back = [one.offset() for one in messages if (one.offset() or 0) < low]
            assert not back, (
                f"{self._topic}-{index}: {len(back)} deleted records are back, below {low}: {back[:5]}"
            )
            there = {one.offset(): one.value() for one in messages}
            first = min(there, default=low)
            lost = [
                (value, offset)
                for value, (at, offset) in history.acknowledged.items()
                if at == index and offset >= max(low, first) and there.get(offset) != value
            ]
            assert not lost, f"{self._topic}-{index}: {len(lost)} acknowledged records are lost: {lost[:5]}"
            assert first <= self.asked[index], (
                f"{self._topic}-{index} starts at {first}, nobody asked for more than {self.asked[index]}"
            )


class Ends(Load):
    """Asks for EARLIEST and LATEST of every partition, again and again.

    LATEST never falls back (KIP-207): a consumer with `auto.offset.reset=latest` would read records a second
    time. EARLIEST is never below what was answered as deleted before, nor above what was asked for; in
    between it may fall back, as a failover can undo a deletion that was not answered. A leader that was
    replaced while it was paused or cut off from ZooKeeper does not know of later deletions: where EARLIEST
    is too low, the leader that ZooKeeper names is asked, and must know better.
    """

    def __init__(
        self, cluster: Cluster, topic: str, partitions: int, isolation: str, trimmer: Trimmer | None = None
    ) -> None:
        super().__init__(f"ends of {topic}, {isolation}")
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions
        self._trimmer = trimmer
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "ends",
                "isolation.level": isolation,
                **_CLIENT,
            }
        )
        self._seen: dict[int, int] = dict.fromkeys(range(partitions), 0)
        self.answers = 0
        self.outdated = 0
        """Answers of leaders that had been replaced."""
        self.wrong: list[str] = []

    def step(self) -> None:
        trimmer = self._trimmer
        for index in range(self._partitions):
            deleted = 0 if trimmer is None else trimmer.deleted[index]
            try:
                found = self._consumer.get_watermark_offsets(TopicPartition(self._topic, index), timeout=2)
            except KafkaException:
                continue
            if found is None:
                continue
            self.answers += 1
            asked = 0 if trimmer is None else trimmer.asked[index]
            self._judge(index, *found, deleted, asked)
            self._seen[index] = max(found[1], self._seen[index])
        self._stopping.wait(0.2)

    def _judge(self, index: int, earliest: int, latest: int, deleted: int, asked: int) -> None:
        where = f"{self._topic}-{index}"
        if latest < self._seen[index]:
            self.wrong.append(f"LATEST of {where} is {latest} after {self._seen[index]}")
        if earliest < deleted and earliest_at_leader(self._cluster, self._topic, index) >= deleted:
            self.outdated += 1
        elif earliest < deleted:
            self.wrong.append(f"EARLIEST of {where} is {earliest}, all up to {deleted} was deleted")
        if earliest > asked:
            self.wrong.append(f"EARLIEST of {where} is {earliest}, only {asked} were asked to be deleted")

    def check(self) -> None:
        assert not self.wrong, f"{self._thread.name}: {len(self.wrong)} wrong answers, {self.wrong[:5]}"


def earliest_at_leader(cluster: Cluster, topic: str, index: int) -> int:
    """EARLIEST of a partition, asked of the leader that ZooKeeper names, past all links that faults cut."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return _earliest_at_leader(cluster, topic, index)
        except (KazooException, KazooTimeoutError, OSError, EOFError, LookupError):
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def _earliest_at_leader(cluster: Cluster, topic: str, index: int) -> int:
    zookeeper = KazooClient(f"127.0.0.1:{cluster.zookeeper_port}/test")
    zookeeper.start(timeout=5)
    try:
        leader = json.loads(zookeeper.get(f"/brokers/topics/{topic}:state:{index}")[0])["leader"]
    finally:
        zookeeper.stop()
        zookeeper.close()
    asked = Wire(partition_index=index, current_leader_epoch=-1, timestamp=-2)
    request = Wire(replica_id=-1, isolation_level=0, topics=[Wire(name=topic, partitions=[asked])])
    with WireClient(cluster.nodes[leader].clients.target, timeout=5) as wire:
        (found,) = wire.request(ApiKey.LIST_OFFSETS, 5, request).topics[0].partitions
    if found.error_code:
        raise LookupError(f"broker {leader} answered {found.error_code}")
    return int(found.offset)


class KeyedWriter(Load):
    """Writes values and tombstones to a few keys of a compacted topic. The newest of each key stays."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int, keys: int = 60) -> None:
        super().__init__(f"writer of {topic}")
        self._topic = topic
        self._partitions = partitions
        self._keys = keys
        self._number = 0
        self._newest: dict[bytes, bytes | None] = {}
        self._failed: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.size": 8192,
                "message.timeout.ms": int(PATIENCE * 2000),
                **_CLIENT,
            }
        )

    def step(self) -> None:
        key = self._number % self._keys
        value = None if self._number % 23 == 0 else b"%d" % self._number + b"x" * 100
        name = b"k%d" % key
        try:
            self._producer.produce(
                self._topic, value, name, partition=key % self._partitions, on_delivery=self._delivered
            )
        except BufferError:
            self._producer.poll(0.05)
            return
        self._newest[name] = value
        self._number += 1
        self._producer.poll(0)
        if self._number % 20 == 0:
            self._stopping.wait(0.1)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append(error)

    def stop(self) -> None:
        super().stop()
        assert self._producer.flush(PATIENCE * 2) == 0, "records are still under way"
        assert not self._failed, self._failed[:3]

    def check(self, found: dict[int, list[Message]]) -> None:
        last: dict[Any, Any] = {}
        counts: dict[Any, int] = defaultdict(int)
        for messages in found.values():
            for one in messages:
                last[one.key()] = one.value()
                counts[one.key()] += 1
        wrong = {key: (last.get(key), value) for key, value in self._newest.items() if last.get(key) != value}
        assert not wrong, f"{len(wrong)} keys of {self._topic} have another value: {list(wrong.items())[:5]}"


def read_from_the_beginning(cluster: Cluster, topic: str, partitions: int) -> dict[int, list[Message]]:
    """Every partition's records, from its log start offset to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "checker",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    found: dict[int, list[Message]] = {index: [] for index in range(partitions)}
    left = set(found)
    end = time.monotonic() + PATIENCE
    try:
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in found])
        while left:
            assert time.monotonic() < end, f"partitions {left} of {topic} cannot be read to their end"
            for message in consumer.consume(5000, 1.0):
                error, index = message.error(), message.partition()
                assert index is not None
                if error is None:
                    found[index].append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(index)
                elif not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return found
