"""Reads the results: the output topics, `read_committed`, as they grow."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.demo.topics import ALERTS, DEAD, DELAYS, TOPICS

if TYPE_CHECKING:
    from penstock.demo.board import Alert, Board, DeadLetter, Hour

_POLL_S = 0.2
_BATCH = 500


class ResultReader(threading.Thread):
    """Updates a Board, and passes each new result to `show`, until `stop()`. `failure` is set on an error."""

    def __init__(
        self, bootstrap: str, board: Board, show: Callable[[Hour | Alert | DeadLetter], None]
    ) -> None:
        super().__init__(name="results", daemon=True)
        self.failure: str | None = None
        self._address = bootstrap
        self._board = board
        self._show = show
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()
        self.join(30)

    def run(self) -> None:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": "penstock-demo",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
                "log_level": 2,
            }
        )
        try:
            # From the beginning, so that the counts are those of the topics, also when a replay continues.
            consumer.assign(
                [
                    TopicPartition(topic, partition, 0)
                    for topic in (DELAYS, ALERTS, DEAD)
                    for partition in range(TOPICS[topic][0])
                ]
            )
            while not self._stopping.is_set():
                for message in consumer.consume(_BATCH, timeout=_POLL_S):
                    self._take(message)
        except (KafkaException, ValueError, KeyError) as error:
            self.failure = f"the results could not be read: {error}"
        finally:
            consumer.close()

    def _take(self, message: Any) -> None:
        if message.error() is None:
            self._show(self._board.take(message.topic(), message.key(), message.value(), message.headers()))
