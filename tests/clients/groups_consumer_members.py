"""Members with `group.protocol=consumer` (KIP-848), a thread each; and one as a process of its own, to kill.

They remember what they own as (topic, partition). `owned` has the partitions alone, for groups of one topic.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

from tests.clients.group_members import Member

HEARTBEAT_MS = 200
SESSION_MS = 3_000

BROKER = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 100,
    "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.consumer.session.timeout.ms": SESSION_MS,
}


class ConsumerMember(Member):
    """`topic` is a name, or a regular expression where it begins with ^."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        self.parts: set[tuple[str, int]] = set()
        super().__init__(bootstrap, group, topic, **settings)

    def _run(self) -> None:
        from confluent_kafka import Consumer, KafkaError, KafkaException

        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in self.settings.items()},
            }
        )
        consumer.subscribe(
            [self.topic],
            on_assign=lambda _, parts: self._gets(parts),
            on_revoke=lambda _, parts: self._gives(parts),
            on_lost=lambda _, parts: self._gives(parts),
        )
        try:
            while not self._stop.is_set():
                message = consumer.poll(0.05)
                if message is None:
                    continue
                if message.error() is None:
                    self.read.append((message.partition(), message.offset(), message.value()))
                    try:
                        consumer.commit(message, asynchronous=False)
                    except KafkaException:
                        pass  # in a rebalance, or while the broker is away: who reads it again commits it
                elif message.error().code() == KafkaError._FATAL:
                    raise KafkaException(message.error())
        finally:
            consumer.close()

    def _gets(self, parts: Iterable[Any]) -> None:
        found = {(part.topic, part.partition) for part in parts}
        self.parts |= found
        self._given(partition for _, partition in found)

    def _gives(self, parts: Iterable[Any]) -> None:
        found = {(part.topic, part.partition) for part in parts}
        self.parts -= found
        self._taken(partition for _, partition in found)


class ConsumerProcess:
    """A member that can be killed. It tells what it owns, a line for each change."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        self.owned: set[int] = set()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.clients.groups_consumer_members", bootstrap, group, topic,
             json.dumps(settings)],
            stdout=subprocess.PIPE,
        )  # fmt: skip
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.owned = set(json.loads(line))

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()


def main() -> None:
    bootstrap, group, topic, settings = sys.argv[1:]
    member = ConsumerMember(bootstrap, group, topic, **json.loads(settings))
    last = None
    while member.failure is None:
        state = json.dumps(sorted(member.owned))
        if state != last:
            print(state, flush=True)
            last = state
        time.sleep(0.02)
    raise member.failure


if __name__ == "__main__":
    main()
