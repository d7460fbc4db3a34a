"""The registry as one process among several: reads from its own state, writes as the leader or through it.

The leader carries out one write at a time: it plans on the state, writes the plan's records in one
transaction, waits until the state has them, and responds. Other registries forward writes to the leader,
which the group chooses. Without a leader a write waits for one, up to a time limit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.elected.errors import NoLongerLeader, RecordTooLarge, StoreUncertain
from penstock.elected.leadership import Leadership
from penstock.elected.membership import Identity
from penstock.elected.store import Encoded, Store
from penstock.registry.errors import RestError, leader_unknown, schema_too_large, timed_out
from penstock.registry.parsing import Schemas
from penstock.registry.planning import Plan, lost_record
from penstock.registry.records import Record, encode_value
from penstock.registry.state import State

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Done:
    """A write that this registry carried out: the plan's response, and the offset of its last record."""

    answer: Any
    offset: int | None


class Service:
    """State, store and leadership of one registry. For its event loop."""

    def __init__(
        self, state: State, store: Store, identity: Identity, *, write_timeout: float, leader_wait: float
    ) -> None:
        self.state = state
        self.schemas = Schemas(state)
        self.store = store
        self.identity = identity
        self.write_timeout = write_timeout
        self.leader_wait = leader_wait
        self.leadership = Leadership(store, identity, write_timeout=write_timeout, first=self._first_write)
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="registry-schemas")

    # Leadership

    @property
    def leader(self) -> Identity | None:
        return self.leadership.leader

    @property
    def leads(self) -> bool:
        return self.leadership.leads

    def _encoded(self, records: Sequence[Record]) -> list[Encoded]:
        return [(self.state.key_bytes(record.key), encode_value(record.value)) for record in records]

    async def _first_write(self) -> None:
        # Only after the topic is read: the record replaces the previous one, and must contain at least as
        # much.
        try:
            record = lost_record(self.state, leader=self.identity.url)
            await self.store.write(self._encoded([record]), self.write_timeout)
        except RecordTooLarge as error:
            # The previous record stays, which was written together with each deletion.
            log.warning(
                "the list of deleted ids and versions does not fit in a record, so that other registries do "
                "not send changes to this one until max.message.bytes of %s is larger: %s",
                self.store.topic, error,
            )  # fmt: skip
            await self.store.take_over(self.write_timeout)

    # Writing

    async def write(self, plan: Callable[[], Plan]) -> Done:
        """Carries out a write as the leader. Raises NoLongerLeader if this registry is not the leader."""
        async with self.leadership.writing():
            planned = await self.in_thread(plan)
            if not planned.records:
                return Done(planned.answer, None)
            try:
                offset = await self.leadership.write(self._encoded(planned.records))
            except RecordTooLarge as error:
                raise schema_too_large() from error
            except StoreUncertain as error:
                log.warning("a write failed: %s", error)
                raise timed_out(f"The operation timed out: {error}") from error
            return Done(planned.answer, offset)

    async def mutate(
        self,
        plan: Callable[[], Plan],
        forward: Callable[[Identity, float], Awaitable[T | None]] | None,
    ) -> Done | T:
        """Writes here as the leader, or through the leader. If `forward` returns None, the leader is looked
        up again.

        A request that was forwarded once (`forward` is None) is not forwarded again.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.leader_wait
        while True:
            if not await self.leadership.known(deadline):
                raise leader_unknown()
            try:
                if self.leads:
                    return await self.write(plan)
            except NoLongerLeader:
                pass
            leader = self.leader
            if leader is not None and not leader.same(self.identity):
                if forward is None:
                    raise leader_unknown()
                answer = await forward(leader, max(1.0, deadline - loop.time()))
                if answer is not None:
                    return answer
            if loop.time() > deadline:
                raise leader_unknown()
            await asyncio.sleep(0.05)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Runs in a thread, because parsing and comparing would block the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def close(self) -> None:
        self.leadership.close()
        await self.store.close()
        self._pool.shutdown(wait=False, cancel_futures=True)


def rest_error(error: Exception) -> RestError:
    """Converts errors of the store to error responses."""
    if isinstance(error, RestError):
        return error
    return timed_out(str(error))
