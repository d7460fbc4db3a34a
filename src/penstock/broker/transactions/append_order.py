"""Transactional batches of a producer are appended to a partition in the order in which they arrived.

A client may have up to five produce requests in flight. The first one of a transaction may have to wait for
the coordinator; later ones must not overtake it, or their sequences would be out of order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from penstock.coordinator import Producer
from penstock.replication.delayed import Key

T = TypeVar("T")
Slot = tuple[Key, int]
"""A partition and a producer id."""


class AppendOrder:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._last: dict[Slot, asyncio.Task[Any]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def ahead(self, producer: Producer, keys: Iterable[Key]) -> list[asyncio.Task[Any]]:
        """The earlier requests that have not appended yet: the last one for each partition."""
        if not self._last:
            return []
        slots = ((key, producer.producer_id) for key in keys)
        return [task for slot in slots if (task := self._last.get(slot)) is not None]

    def run(
        self, producer: Producer, keys: Iterable[Key], appending: Coroutine[Any, Any, T]
    ) -> asyncio.Task[T]:
        """Run `appending`; until it is done, later requests wait for it."""
        task = self._loop.create_task(appending)
        slots = [(key, producer.producer_id) for key in keys]
        for slot in slots:
            self._last[slot] = task

        self._tasks.add(task)

        def left(done: asyncio.Task[T]) -> None:
            self._tasks.discard(done)
            for slot in slots:
                if self._last.get(slot) is done:
                    del self._last[slot]

        task.add_done_callback(left)
        return task

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
