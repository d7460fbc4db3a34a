"""Writes what waits in memory to an internal topic, without delaying requests.

One task writes to the leader of the topic's only partition, on whichever broker that is. What cannot be
written waits for the next `write_soon`. A write whose response is lost is repeated.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from penstock.broker.produce.leader_append import append_to_leader, led_partition
from penstock.errors import PenstockError
from penstock.wire.batches.records import Record, build_batch

if TYPE_CHECKING:
    from penstock.broker.parts import CanCreateInternalTopics
    from penstock.broker.produce.leader_append import LeaderAppendParts

    class TopicWriterParts(LeaderAppendParts, CanCreateInternalTopics, Protocol): ...


RETRY_MS = 1_000
_BATCH = 500
_CLOSE_SECONDS = 2.0


class Waiting(Protocol):
    """The records to write, in memory."""

    @property
    def has_entries(self) -> bool: ...

    def records(self, most: int) -> list[Record]:
        """The records to write next. They stay until `written` is called."""

    def written(self, count: int) -> None:
        """The first `count` of the records returned last are in the topic."""


class TopicWriter:
    def __init__(
        self,
        broker: TopicWriterParts,
        topic: str,
        configs: dict[str, str],
        waiting: Waiting,
        log: logging.Logger,
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._configs = configs
        self._waiting = waiting
        self._log = log
        self._writing: asyncio.Task[None] | None = None
        self._trouble = ""
        self._closed = False

    async def idle(self) -> None:
        """Returns when nothing is being written."""
        while self._writing is not None:
            await asyncio.wait([self._writing])

    def write_soon(self) -> None:
        if self._writing is None and not self._closed and self._waiting.has_entries:
            self._writing = self._broker.loop.create_task(self._write_all())

    async def _write_all(self) -> None:
        try:
            while records := self._waiting.records(_BATCH):
                await self._write(records)
                self._waiting.written(len(records))
                if self._trouble:
                    self._log.info("%s can be written again", self._topic)
                self._trouble = ""
        except PenstockError as error:
            if str(error) != self._trouble:
                self._log.warning("%s cannot be written now: %s", self._topic, error)
            self._trouble = str(error)
        except Exception:  # the border: the next call retries
            log = self._log
            log.exception("%s cannot be written", self._topic)
        finally:
            self._writing = None

    async def _write(self, records: list[Record]) -> None:
        broker = self._broker
        if self._topic not in broker.image.topics:
            await broker.create_internal_topic(self._topic, 1, 1, self._configs)
        index, leader = led_partition(broker, self._topic, 0)
        await append_to_leader(broker, self._topic, index, leader, bytearray(build_batch(records)))

    async def close(self) -> None:
        """Write the remaining records if that is possible soon; nothing is written after this."""
        self.write_soon()
        self._closed = True
        if self._writing is not None:
            _, late = await asyncio.wait([self._writing], timeout=_CLOSE_SECONDS)
            for task in late:
                task.cancel()
