"""What the examples share: their options, a consumer, and a loop that survives a broker's restart."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

# When the broker of a group comes back, librdkafka (2.16) can turn in a circle: a commit that it tries again
# before it has found the coordinator makes it drop the coordinator. So it is to find it (which has to wait
# behind a fetch) sooner than it tries again.
RECOVERY = {"reconnect.backoff.max.ms": 500, "fetch.wait.max.ms": 100, "retry.backoff.ms": 1000}


def options(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    bootstrap = os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")
    parser.add_argument("--bootstrap", default=bootstrap, help="a broker")
    parser.add_argument("--topic", default="orders", help="what to read")
    parser.add_argument("--group", default="example", help="the consumer group")
    parser.add_argument(
        "--instance",
        default="1",
        # A static member (KIP-345) that was killed goes on when it is back, not after a session timeout.
        help="which member of the group this is; two processes at once need two of them",
    )
    parser.add_argument("--exit-at-end", action="store_true", help="stop when everything has been read")
    return parser


def connect(arguments: argparse.Namespace, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": arguments.bootstrap,
            "group.id": arguments.group,
            "group.instance.id": arguments.instance,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            **RECOVERY,
            **settings,
        }
    )


class Input:
    """A subscription that knows when everything there is has been read."""

    def __init__(
        self, consumer: Consumer, topic: str, place: Callable[[TopicPartition], int | None] | None = None
    ) -> None:
        """`place(partition)` is where to start, where that is kept elsewhere than in the group."""
        self.consumer = consumer
        self.ended: set[tuple[str, int]] = set()
        self._place = place
        consumer.subscribe([topic], on_assign=self._assigned)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.ended.clear()
        if self._place is not None:
            for partition in partitions:
                offset = self._place(partition)
                if offset is not None:
                    partition.offset = offset
            consumer.assign(partitions)

    @property
    def at_end(self) -> bool:
        assigned = {(each.topic, each.partition) for each in self.consumer.assignment()}
        return bool(assigned) and assigned <= self.ended

    def read(self, seconds: float) -> Message | None:
        """The next record, if one comes in time."""
        message = self.consumer.poll(seconds)
        if message is None:
            return None
        key = (message.topic(), message.partition())
        error = message.error()
        if error is None:
            self.ended.discard(key)
            return message
        if error.code() == KafkaError._PARTITION_EOF:
            self.ended.add(key)
        elif error.fatal() or error.code() == KafkaError._FATAL:
            raise KafkaException(error)  # fenced: another process has this --instance now
        return None  # any other error passes: the client connects again

    def messages(self, exit_at_end: bool) -> Iterator[Message]:
        while not (exit_at_end and self.at_end):
            message = self.read(0.2)
            if message is not None:
                yield message

    def rewind(self) -> None:
        """Back to what the group has committed."""
        for partition in retry(self.consumer.committed, self.consumer.assignment(), 10):
            if partition.offset < 0:
                partition.offset = OFFSET_BEGINNING
            self.consumer.seek(partition)
        self.ended.clear()


def retry(call: Callable[..., Any], *arguments: object) -> Any:
    """Until the broker is there. What is wrong for another reason is raised: the program ends,
    and the one who started it starts it again, which every one of these examples allows at any time."""
    while True:
        try:
            return call(*arguments)
        except KafkaException as failure:
            error = failure.args[0]
            passing = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._WAIT_COORD)
            if not error.retriable() and error.code() not in passing:
                raise
            time.sleep(0.05)


def commit(consumer: Consumer, message: Message) -> None:
    """The group has consumed this record; returns when the broker has that on record."""
    next_offset = TopicPartition(message.topic(), message.partition(), message.offset() + 1)
    retry(lambda: consumer.commit(offsets=[next_offset], asynchronous=False))


def say(what: str, message: Message) -> None:
    print(f"{what} {message.topic()}-{message.partition()}@{message.offset()}", flush=True)
