"""Checks in the metadata store which topics of a group shard still exist, until shard, image and store agree.

A topic may have been deleted while the shard had no coordinator, or just before its coordinator crashed. In
the image of the next coordinator, a deleted topic and a topic that has not arrived yet are both missing. The
store tells them apart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from penstock.coordinator import Outcome
from penstock.metadata.store import StoreError

if TYPE_CHECKING:
    from penstock.broker.parts import HasController, HasGroups, HasLoop
    from penstock.groups.shard import GroupShard

    class StoreCheckParts(HasController, HasGroups, HasLoop, Protocol): ...


_RETRY_S = 1.0

log = logging.getLogger(__name__)


class StoreCheck:
    def __init__(self, broker: StoreCheckParts) -> None:
        self._broker = broker
        self._tasks: set[asyncio.Task[None]] = set()

    def loaded(self, shard: GroupShard) -> None:
        self._start(shard, shard.deleted_topics.names(), 0)

    def deleted(self, ids: Collection[UUID]) -> None:
        """According to the images, these topics were deleted."""

        def step(shard: GroupShard) -> Outcome:
            names = {name for name, topic_id in shard.deleted_topics.ids.items() if topic_id in ids}
            out = shard.deleted_topics.deleted(ids)
            if out.records:
                self._start(shard, names, _RETRY_S)  # check again: the records may fail to be written
            return out

        self._broker.groups.run_all(step)

    def _start(self, shard: GroupShard, names: set[str], delay_s: float) -> None:
        if names:
            task = self._broker.loop.create_task(self._ask(shard, names, delay_s))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(self, shard: GroupShard, names: set[str], delay_s: float) -> None:
        while names:
            await asyncio.sleep(delay_s)
            delay_s = _RETRY_S
            asked = names
            try:
                existing = await self._broker.controller.topic_ids(asked)
            except StoreError as error:
                log.info("Cannot read topics from the metadata store; retrying: %s", error)
                continue
            again: set[str] = set()

            def step(one: GroupShard, asked: set[str] = asked, again: set[str] = again) -> Outcome:
                out, left = one.deleted_topics.found(asked, existing)  # noqa: B023 - run at once
                again |= left
                return out

            if not self._broker.groups.run(shard, step):
                return  # unloaded: the next broker that loads the shard checks
            names = again

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
