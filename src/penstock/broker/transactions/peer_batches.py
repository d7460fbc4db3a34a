"""Combines items for the same broker into one request.

Items of one iteration of the event loop form one batch. While several batches to a broker are in flight, new
items wait for the next one: so a slow broker gets fewer and larger requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from penstock.errors import PeerUnavailable, WireError

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_MOST_UNDER_WAY = 4

log = logging.getLogger(__name__)


class PeerBatches(Generic[Item, Answer]):
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        send: Callable[[int, list[Item]], Coroutine[Any, Any, list[Answer]]],
    ) -> None:
        """`send(broker_id, items)` returns a result for each item, in order."""
        self._loop = loop
        self._send = send
        self._queued: dict[int, list[tuple[Item, asyncio.Future[Answer]]]] = {}
        self._under_way: dict[int, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, broker_id: int, item: Item) -> asyncio.Future[Answer]:
        """The result from that broker, or PeerUnavailable."""
        answer: asyncio.Future[Answer] = self._loop.create_future()
        queued = self._queued.setdefault(broker_id, [])
        queued.append((item, answer))
        if len(queued) == 1 and self._under_way.get(broker_id, 0) < _MOST_UNDER_WAY:
            self._loop.call_soon(self._flush, broker_id)
        return answer

    def _flush(self, broker_id: int) -> None:
        batch = self._queued.pop(broker_id, None)
        if batch:
            self._under_way[broker_id] = self._under_way.get(broker_id, 0) + 1
            task = self._loop.create_task(self._exchange(broker_id, batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _exchange(self, broker_id: int, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._send(broker_id, [item for item, _ in batch])
            if len(answers) != len(batch):
                raise WireError(f"it answered {len(answers)} of {len(batch)} items")
        except Exception as error:  # the border: each waiter must get a result
            if not isinstance(error, PeerUnavailable):
                log.exception("request to broker %d failed", broker_id)
                error = PeerUnavailable(broker_id, f"it could not be asked: {error}", sent=True)
            for _, waiting in batch:
                if not waiting.done():
                    waiting.set_exception(error)
        else:
            for (_, waiting), answer in zip(batch, answers, strict=True):
                if not waiting.done():
                    waiting.set_result(answer)
        finally:
            for _, waiting in batch:
                waiting.cancel()  # no result will arrive
            self._under_way[broker_id] -= 1
            self._flush(broker_id)

    def close(self) -> None:
        self._queued.clear()
        for task in self._tasks:
            task.cancel()
