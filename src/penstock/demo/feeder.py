"""Replays the flights at their pace: a thread that writes records to the topics when their time comes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.client.partitioning import KEY_PARTITIONER
from penstock.demo.replay import FLIGHTS, WEATHER, Event

_TICK_S = 0.05
_FLUSH_S = 30.0


@dataclass
class Sent:
    """The records passed to the producer in this run. Written by the feeder, read by others."""

    flights: int = 0
    weather: int = 0
    late: int = 0
    broken: Counter[str] = field(default_factory=Counter)
    now: int = 0
    """Event time, in seconds."""

    def count(self, event: Event) -> None:
        if event.topic == WEATHER:
            self.weather += 1
            return
        self.flights += 1
        self.late += event.late
        if event.fault is not None:
            self.broken[event.fault.value] += 1


class Feeder(threading.Thread):
    """Sends `events()` to `bootstrap`, `speed` seconds of event time in each second, until `stop()`.

    `events` is called in the thread, since it has a year of flights to read first. `failure` is set when
    something ended it; `over` when the events have ended.
    """

    def __init__(
        self,
        bootstrap: str,
        events: Callable[[], Iterator[Event]],
        *,
        speed: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name="feeder", daemon=True)
        self.sent = Sent()
        self.failure: str | None = None
        self.over = False
        self._address = bootstrap
        self._events = events
        self._speed = speed
        self._monotonic = monotonic
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Returns when everything sent has been acknowledged."""
        self._stopping.set()
        self.join(_FLUSH_S + 10)

    def run(self) -> None:
        from confluent_kafka import KafkaException

        try:
            self._feed()
        except (KafkaException, OSError, ValueError) as error:
            self.failure = f"the flights could not be sent: {error}"

    def _feed(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self._address,
                "enable.idempotence": True,
                "linger.ms": 5,
                "partitioner": KEY_PARTITIONER,
                "log_level": 2,
            }
        )
        events = self._events()
        waiting = next(events, None)
        if waiting is None:
            self.over = True
            return
        began, first = self._monotonic(), waiting.at
        while not self._stopping.is_set():
            self.sent.now = int(first + (self._monotonic() - began) * self._speed)
            due: list[Event] = []
            while waiting is not None and waiting.at <= self.sent.now:
                due.append(waiting)
                waiting = next(events, None)
            self._send(producer, due)
            if waiting is None:
                self.over = True
                break
            self._stopping.wait(_TICK_S)
        self._flush(producer)

    def _send(self, producer: Any, due: list[Event]) -> None:
        # The weather first, and arrived, so that a flight's batch finds it.
        for topic in (WEATHER, FLIGHTS):
            for event in due:
                if event.topic == topic:
                    producer.produce(
                        topic, event.value, event.key, event.partition, on_delivery=self._delivered
                    )
                    self.sent.count(event)
            if topic == WEATHER and any(event.topic == WEATHER for event in due):
                self._flush(producer)
        producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and self.failure is None:
            self.failure = f"a record of {message.topic()} was not delivered: {error}"

    def _flush(self, producer: Any) -> None:
        if producer.flush(_FLUSH_S) and self.failure is None:
            self.failure = f"the broker at {self._address} took no records for {_FLUSH_S:.0f} s"


def events_after(
    there: Mapping[tuple[str, int], int], start: Any, seed: int
) -> Callable[[], Iterator[Event]]:
    """The events for a Feeder: the replay from `start`, without the records that the topics already have."""

    def events() -> Iterator[Event]:
        from penstock.demo.data import load
        from penstock.demo.replay import Replay

        return Replay(load(), start=start, seed=seed).events(after=there)

    return events
