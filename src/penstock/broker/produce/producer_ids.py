"""Producer ids of this broker, from blocks that the controller stores before they are used."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class ProducerIds:
    def __init__(self, allocate: Callable[[], Awaitable[tuple[int, int]]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()

    async def next(self) -> int:
        while self._next == self._end:
            async with self._refill:
                if self._next == self._end:
                    first, count = await self._allocate()
                    self._next, self._end = first, first + count
        producer_id = self._next
        self._next += 1
        return producer_id
