"""The registry as one process among several: reads from its own state, writes as the leader or through it.

The leader carries out one write at a time: plan on the state, write the plan's records in one transaction,
wait until the state has them, answer. What the others are asked to write they send on to the leader; who that
is, the group says. While there is no leader a write waits for one, up to a limit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.registry.errors import (
    NoLongerLeader,
    RecordTooLarge,
    RestError,
    StoreUncertain,
    leader_unknown,
    schema_too_large,
    timed_out,
)
from penstock.registry.membership import Identity
from penstock.registry.parsing import Schemas
from penstock.registry.planning import Plan, lost_record
from penstock.registry.state import State
from penstock.registry.store import Store

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Done:
    """A write that this registry carried out: the plan's answer, and where its last record is."""

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
        self.leader: Identity | None = None
        self.on_deposed: Callable[[], None] = lambda: None
        """Called when the cluster refuses this registry as the writer, though the group says it leads."""
        self._may_write = False
        self._writing = asyncio.Lock()
        self._news = asyncio.Condition()
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="registry-schemas")
        self._taking_over: asyncio.Task[None] | None = None

    @property
    def leads(self) -> bool:
        """Whether this registry is the leader and has read all that was written before it was."""
        return self._may_write

    # Leadership

    def leader_is(self, leader: Identity | None) -> None:
        """What the group says. A registry that becomes the leader first takes the topic over."""
        self.leader = leader
        mine = leader is not None and leader.same(self.identity)
        if mine and not self._may_write:
            if self._taking_over is None or self._taking_over.done():
                self._taking_over = asyncio.get_running_loop().create_task(self._take_over())
        elif not mine:
            self._may_write = False
            if self._taking_over is not None:
                self._taking_over.cancel()
                self._taking_over = None
            asyncio.get_running_loop().create_task(self.store.step_down())
        log.info("the leader is %s", "this registry" if mine else leader.url if leader else "not known")
        asyncio.get_running_loop().create_task(self._tell())

    async def _take_over(self) -> None:
        while True:
            try:
                async with self._writing:
                    await self.store.take_over(self.write_timeout)
                    # Only now: the record replaces the one before, and must know no less.
                    try:
                        await self.store.write([lost_record(self.state)], self.write_timeout)
                    except RecordTooLarge as error:
                        # The one before stays, which was written together with each deletion.
                        log.warning("the ids and versions that are gone do not fit a record: %s", error)
                        await self.store.take_over(self.write_timeout)
                    self._may_write = True
                log.info("leading: read to the end, others are fenced")
                await self._tell()
                return
            except (NoLongerLeader, StoreUncertain) as error:
                log.warning("cannot take over as the leader yet: %s", error)
                await asyncio.sleep(0.2)

    def _take_over_again(self) -> None:
        self._may_write = False
        self.leader_is(self.leader)

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    def _deposed(self) -> None:
        self._may_write = False
        self.on_deposed()

    async def wait_for_leader(self, deadline: float) -> bool:
        """Until this registry may write or knows who does; False when the deadline passes first."""
        loop = asyncio.get_running_loop()
        while not self._may_write and (self.leader is None or self.leader.same(self.identity)):
            try:
                async with asyncio.timeout_at(deadline), self._news:
                    await self._news.wait()
            except TimeoutError:
                return False
            if loop.time() > deadline:
                return False
        return True

    # Writing

    async def write(self, plan: Callable[[], Plan]) -> Done:
        """Carry out a write as the leader; NoLongerLeader if this registry is not it (any more)."""
        async with self._writing:
            if not self._may_write:
                raise NoLongerLeader("this registry is not the leader")
            planned = await self.in_thread(plan)
            if not planned.records:
                return Done(planned.answer, None)
            try:
                offset = await self.store.write(planned.records, self.write_timeout)
            except NoLongerLeader:
                self._deposed()
                raise
            except RecordTooLarge as error:
                # librdkafka has counted the record, the cluster has not: this producer's next one would fail.
                self._take_over_again()
                raise schema_too_large() from error
            except StoreUncertain as error:
                log.warning("a write failed: %s", error)
                # What became of it is not known: read to the end again before the next one is planned.
                self._take_over_again()
                raise timed_out(f"The operation timed out: {error}") from error
            return Done(planned.answer, offset)

    async def mutate(
        self,
        plan: Callable[[], Plan],
        forward: Callable[[Identity, float], Awaitable[T | None]] | None,
    ) -> Done | T:
        """Write here as the leader, or through the leader; None from `forward` means: ask again who leads.

        A request that was forwarded once (`forward` is None) is not sent on.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.leader_wait
        while True:
            if not await self.wait_for_leader(deadline):
                raise leader_unknown()
            try:
                if self._may_write:
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
        """Parsing and comparing takes time: not on the loop, which answers the others meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def close(self) -> None:
        self._may_write = False
        if self._taking_over is not None:
            self._taking_over.cancel()
        await self.store.close()
        self._pool.shutdown(wait=False, cancel_futures=True)


def rest_error(error: Exception) -> RestError:
    """Any trouble of the store as an answer."""
    if isinstance(error, RestError):
        return error
    return timed_out(str(error))
