"""Members of a consumer group, a thread each, with any of the three clients; and one as a process of its own.

A member consumes, commits after every record, and remembers what it was given, what was taken and what it
read. `python -m tests.clients.group_members <client> <bootstrap> <group> <topic> [settings]` is one to kill.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

WAIT = 40.0
SESSION_MS = 3_000
"""Short enough that a test can wait for it; the broker has to allow it (group.min.session.timeout.ms)."""

BROKER = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 100}


class Member:
    """What every client's member shares; `_run` is the client's part."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        self.bootstrap, self.group, self.topic, self.settings = bootstrap, group, topic, settings
        self.owned: set[int] = set()
        self.given: list[set[int]] = []
        self.taken: list[set[int]] = []
        self.read: list[tuple[int, int, bytes]] = []
        self.failure: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._guarded, daemon=True)
        self._thread.start()

    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - shown by the test that looks at it
            self.failure = error

    def _run(self) -> None:
        raise NotImplementedError

    def _given(self, partitions: Iterable[int]) -> None:
        parts = set(partitions)
        self.given.append(parts)
        self.owned |= parts

    def _taken(self, partitions: Iterable[int]) -> None:
        parts = set(partitions)
        self.taken.append(parts)
        self.owned -= parts

    def stop(self) -> None:
        """Leaves the group."""
        self._stop.set()
        self._thread.join(WAIT)
        assert not self._thread.is_alive(), "the member does not end"

    @property
    def values(self) -> list[bytes]:
        return [value for _, _, value in self.read]


class ConfluentMember(Member):
    def _run(self) -> None:
        from confluent_kafka import Consumer, KafkaError, KafkaException

        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 300,
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.max.ms": 200,
                **{name.replace("_", "."): value for name, value in self.settings.items()},
            }
        )
        consumer.subscribe(
            [self.topic],
            on_assign=lambda _, parts: self._given(p.partition for p in parts),
            on_revoke=lambda _, parts: self._taken(p.partition for p in parts),
            on_lost=lambda _, parts: self._taken(p.partition for p in parts),
        )
        try:
            while not self._stop.is_set():
                message = consumer.poll(0.05)
                if message is not None and message.error() is None:
                    self.read.append((message.partition(), message.offset(), message.value()))
                    self._commit(consumer, message)
                elif message is not None and message.error().code() == KafkaError._FATAL:
                    raise KafkaException(message.error())
        finally:
            consumer.close()

    def _commit(self, consumer: Any, message: Any) -> None:
        from confluent_kafka import KafkaException

        try:
            consumer.commit(message, asynchronous=False)
        except KafkaException:
            pass  # in a rebalance, or while the broker is away: who reads it again commits it


class KafkaPythonMember(Member):
    def _run(self) -> None:
        from kafka import ConsumerRebalanceListener, KafkaConsumer
        from kafka.errors import KafkaConnectionError, KafkaError

        member = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                member.owned.clear()
                member._given(part.partition for part in assigned)

            def on_partitions_revoked(self, revoked: Any) -> None:
                member._taken(part.partition for part in revoked)

        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
            # Without a rebalance delay it may lead a group before it knows the topic, and assigns nothing;
            # it looks again when its metadata is old.
            metadata_max_age_ms=500,
            **{"session_timeout_ms": SESSION_MS, **self.settings},
        )
        consumer.subscribe([self.topic], listener=Listener())
        try:
            while not self._stop.is_set():
                # A poll that ends within a join loses it for good in kafka-python 3.0: give it time.
                try:
                    polled = consumer.poll(timeout_ms=2000)
                except KafkaConnectionError:
                    continue  # the broker is away, which it tells now and then
                for records in polled.values():
                    self.read += [(record.partition, record.offset, record.value) for record in records]
                    try:
                        consumer.commit()
                    except KafkaError:
                        pass
        finally:
            consumer.close()


class AiokafkaMember(Member):
    def _run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
        from aiokafka.errors import KafkaError

        member = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_assigned(self, assigned: Any) -> None:
                member.owned.clear()
                member._given(part.partition for part in assigned)

            async def on_partitions_revoked(self, revoked: Any) -> None:
                member._taken(part.partition for part in revoked)

        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
            **{"session_timeout_ms": SESSION_MS, **self.settings},
        )
        consumer.subscribe([self.topic], listener=Listener())
        await consumer.start()
        try:
            while not self._stop.is_set():
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    self.read += [(record.partition, record.offset, record.value) for record in records]
                    try:
                        await consumer.commit()
                    except KafkaError:
                        pass
        finally:
            await consumer.stop()


MEMBERS: dict[str, type[Member]] = {
    "confluent": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AiokafkaMember,
}


class MemberProcess:
    """A member that can be killed. It tells what it owns and how much it has read, a line for each change."""

    def __init__(self, client: str, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        self.owned: set[int] = set()
        self.read = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.clients.group_members", client, bootstrap, group, topic,
             json.dumps(settings)],
            stdout=subprocess.PIPE,
        )  # fmt: skip
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            self.owned, self.read = set(told["owned"]), told["read"]

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()


def until(condition: Callable[[], Any], *members: Member, timeout: float = WAIT) -> None:
    """Wait for something that will be true; a member that failed is shown at once."""
    end = time.monotonic() + timeout
    while not condition():
        for member in members:
            if member.failure is not None:
                raise member.failure
        if time.monotonic() > end:
            states = [(sorted(member.owned), len(member.read)) for member in members]
            raise AssertionError(f"still not true after {timeout} s; owned and read: {states}")
        time.sleep(0.02)


def share(members: Iterable[Any], partitions: int) -> bool:
    """Whether every partition has one owner, and no member goes without if there are enough of them."""
    members = list(members)
    owned = [part for member in members for part in list(member.owned)]
    everybody = all(member.owned for member in members) or len(members) > partitions
    return sorted(owned) == list(range(partitions)) and everybody


def main() -> None:
    client, bootstrap, group, topic, settings = sys.argv[1:]
    member = MEMBERS[client](bootstrap, group, topic, **json.loads(settings))
    last = None
    while member.failure is None:
        state = json.dumps({"owned": sorted(member.owned), "read": len(member.read)})
        if state != last:
            print(state, flush=True)
            last = state
        time.sleep(0.02)
    raise member.failure


if __name__ == "__main__":
    main()
