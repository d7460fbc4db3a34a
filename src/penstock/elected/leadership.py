"""Leading: what a server does when the group says that it leads, or no longer does.

Who becomes the leader first takes the topic over (`Store.take_over`: others are fenced, all is read) and
writes its URL into it, then may write, one thing at a time. A write that the cluster refuses deposes it; one
whose end is not known has it take over again, so that what comes next is planned on what the topic holds.

The other servers accept a leader only when the topic names it, too: a leader is sent the logins of users, and
to join the group takes Read, while to write the topic takes Write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from penstock.elected.errors import NoLongerLeader, RecordTooLarge, StoreUncertain
from penstock.elected.membership import Identity
from penstock.elected.store import Encoded, Store

log = logging.getLogger(__name__)


class Leadership:
    """The leadership of one server, for its event loop. `first` is what a new leader writes first, with its
    URL.
    """

    def __init__(
        self,
        store: Store,
        identity: Identity,
        *,
        write_timeout: float,
        first: Callable[[], Awaitable[None]],
        on_change: Callable[[bool], None] = lambda leads: None,
    ) -> None:
        self.on_deposed: Callable[[], None] = lambda: None
        """Called when the cluster rejects writes of this server although the group says that it leads."""
        self._store = store
        store.on_applied = self._read_more
        self._chosen: Identity | None = None
        self._unnamed = False
        """Whether servers wait until the topic names the leader that the group has chosen."""
        self._identity = identity
        self._write_timeout = write_timeout
        self._first = first
        self._on_change = on_change
        self._may_write = False
        self._told = False
        self._writing = asyncio.Lock()
        self._news = asyncio.Condition()
        self._taking_over: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()

    @property
    def leader(self) -> Identity | None:
        """Who leads, as the group says, and the topic too; None until then.

        A topic with records that name nobody has a leader of an older version, or a Confluent registry: there
        the group's word has to do.
        """
        chosen = self._chosen
        if chosen is None or chosen.same(self._identity):
            return chosen
        named = self._store.leader
        if named is None:
            return None if self._store.empty else chosen
        return chosen if chosen.url == named else None

    def _read_more(self) -> None:
        if self._unnamed and self.leader is not None:
            self._unnamed = False
            self._in_background(self._tell())

    @property
    def leads(self) -> bool:
        """Whether this server is the leader and has read everything that earlier leaders wrote."""
        return self._may_write

    def leader_is(self, leader: Identity | None) -> None:
        """Apply the group's choice. A server that becomes the leader first takes the topic over."""
        loop = asyncio.get_running_loop()
        self._chosen = leader
        self._unnamed = leader is not None and self.leader is None
        mine = leader is not None and leader.same(self._identity)
        if mine and not self._may_write:
            if self._taking_over is None or self._taking_over.done():
                self._taking_over = loop.create_task(self._take_over())
        elif not mine:
            self._leads(False)
            if self._taking_over is not None:
                self._taking_over.cancel()
                self._taking_over = None
            self._in_background(self._store.step_down())
        word = "; the topic does not name it yet" if self._unnamed else ""
        log.info("the leader is %s%s", "this server" if mine else leader.url if leader else "not known", word)
        self._in_background(self._tell())

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _leads(self, leads: bool) -> None:
        self._may_write = leads
        if leads != self._told:
            self._told = leads
            self._on_change(leads)

    async def _take_over(self) -> None:
        while True:
            try:
                async with self._writing:
                    await self._store.take_over(self._write_timeout)
                    await self._first()
                    self._leads(True)
                log.info("became leader: read the topic to its end and fenced other writers")
                await self._tell()
                return
            except (NoLongerLeader, StoreUncertain) as error:
                log.warning("could not become leader yet: %s", error)
                await asyncio.sleep(0.2)

    def _take_over_again(self) -> None:
        self._may_write = False  # still the leader: do not report a loss
        self.leader_is(self._chosen)

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def known(self, deadline: float) -> bool:
        """Wait until this server may write or knows the leader. Returns False if the deadline passes
        first.
        """
        loop = asyncio.get_running_loop()
        while not self._may_write and (self.leader is None or self.leader.same(self._identity)):
            try:
                async with asyncio.timeout_at(deadline), self._news:
                    await self._news.wait()
            except TimeoutError:
                return False
            if loop.time() > deadline:
                return False
        return True

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Plan and `write` inside this block: no other write can come in between. Raises NoLongerLeader on a
        server that is not the leader.
        """
        async with self._writing:
            if not self._may_write:
                raise NoLongerLeader("this server is not the leader")
            yield

    async def write(self, records: Sequence[Encoded]) -> int:
        """Write in one transaction. Returns the last offset. Raises the store's errors, after handling them
        here.
        """
        try:
            return await self._store.write(records, self._write_timeout)
        except NoLongerLeader:
            self._leads(False)
            self.on_deposed()
            raise
        except RecordTooLarge:
            # librdkafka has counted the record, the cluster has not: the producer's next record would fail.
            self._take_over_again()
            raise
        except StoreUncertain:
            # The outcome is unknown: read to the end again before planning the next write.
            self._take_over_again()
            raise

    def close(self) -> None:
        self._may_write = False
        if self._taking_over is not None:
            self._taking_over.cancel()
