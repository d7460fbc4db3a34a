"""Who may change the configuration: the leader of a group, through the config topic, or a standalone
worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from penstock.connect.worker.configs import ConfigState, Record
from penstock.elected.errors import NoLongerLeader
from penstock.elected.leadership import Leadership
from penstock.elected.membership import Identity
from penstock.elected.store import Store

Plan = Callable[[], list[Record]]


class WorkerCluster(Protocol):
    """Of one worker."""

    @property
    def leads(self) -> bool: ...

    @property
    def leader(self) -> Identity | None: ...

    async def known(self, deadline: float) -> bool:
        """Wait until this worker may make changes or knows the leader. Returns False if the deadline passes
        first.
        """
        ...

    async def change(self, plan: Plan) -> int:
        """Write the records that `plan` derives from the state. Returns the offset. Raises NoLongerLeader on
        a worker that is not the leader.
        """
        ...

    async def applied(self, offset: int, timeout: float) -> None: ...


class Distributed:
    def __init__(self, leadership: Leadership, store: Store, state: ConfigState) -> None:
        self._leadership = leadership
        self._store = store
        self._state = state

    @property
    def leads(self) -> bool:
        return self._leadership.leads

    @property
    def leader(self) -> Identity | None:
        return self._leadership.leader

    async def known(self, deadline: float) -> bool:
        return await self._leadership.known(deadline)

    async def change(self, plan: Plan) -> int:
        async with self._leadership.writing():
            records = plan()
            if not records:
                return self._state.offset
            return await self._leadership.write(records)

    async def applied(self, offset: int, timeout: float) -> None:
        await self._store.applied(offset, timeout)


class Alone:
    """A standalone worker: its configuration lives only in memory, as in Kafka Connect."""

    def __init__(self, state: ConfigState, identity: Identity) -> None:
        self._state = state
        self._identity = identity
        self._lock = asyncio.Lock()

    @property
    def leads(self) -> bool:
        return True

    @property
    def leader(self) -> Identity | None:
        return self._identity

    async def known(self, deadline: float) -> bool:
        return True

    async def change(self, plan: Plan) -> int:
        async with self._lock:
            for key, value in plan():
                self._state.apply(key, value, self._state.offset + 1, None)
            return self._state.offset

    async def applied(self, offset: int, timeout: float) -> None:
        if offset > self._state.offset:
            raise NoLongerLeader("a standalone worker has no other that writes")
