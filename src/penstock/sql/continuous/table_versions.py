"""Version numbers for writes of whole tables: those of a later leader are always higher.

A table that is compared as a whole (over tables, or of session windows) has no batch of Spark's to be
numbered by. Its writes are numbered by the epoch of the leader and a counter, not by a clock: a leader that
was paused and wakes would be ahead of its successor, and one whose clock was set back could write no more.
"""

from __future__ import annotations

import threading

from penstock.spark.errors import BatchChanged
from penstock.spark.sink.finish_batch import transactional_id
from penstock.spark.sink.producer import ProducerSettings, TaskProducer
from penstock.spark.sink.written_tasks import DEFAULT_TOPIC, Mark, MarksReader, mark_key, partition_of
from penstock.sql.settings import EngineSettings

_EPOCH_BITS = 42
"""Epoch 1 is past what earlier versions wrote, milliseconds since 1970, until the year 2109."""


class Versions:
    """The version numbers of one leader. Thread-safe."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def next(self, name: str) -> int:
        """A number higher than all previous ones of this writer, however often its query was started."""
        with self._lock:
            count = self._counts[name] = self._counts.get(name, 0) + 1
        return (self.epoch << _EPOCH_BITS) + count


def fence(settings: EngineSettings, name: str, version: int) -> None:
    """Fences writes with a lower version under this name. Earlier writes can then be read.

    Raises BatchChanged if there is a higher one: another server leads.
    """
    client = settings.client()
    producer = TaskProducer(
        ProducerSettings.from_kafka(client, transactional=True), transactional_id("penstock", name, 0)
    )
    reader = MarksReader(client, DEFAULT_TOPIC)
    try:
        producer.take_over()  # a write in progress is fenced, and has ended
        written = reader.read(name).settled.get(0)
        if written is not None and written.batch >= version:
            raise BatchChanged(
                f"{name} was written with version {written.batch}, this is {version}: another server leads"
            )
        mark = Mark(version, "", 0, 0)
        producer.send_mark(DEFAULT_TOPIC, partition_of(name), mark_key(name, 0), mark.encode())
        producer.commit()
    except BaseException:
        producer.abandon()
        raise
    finally:
        reader.close()
