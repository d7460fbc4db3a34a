"""The catalog's topic `__penstock_sql` and the leader election: one server of a group writes it and runs the
queries.

Works like a schema registry, and uses the same store, group member and leadership: the topic is compacted and
has one partition, each server reads all of it, and the leader writes in transactions that fence the previous
leader. It has its own thread with an event loop; its methods can be called from any thread.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.elected import topic
from penstock.elected.elector import Elector
from penstock.elected.errors import CannotStart, NoLongerLeader, RecordTooLarge, StoreUncertain
from penstock.elected.leadership import Leadership
from penstock.elected.membership import Identity
from penstock.elected.process import group_settings, soon
from penstock.elected.store import Store
from penstock.sql.catalog.catalog import TOPIC, Catalog, Record, server_record
from penstock.sql.errors import Unavailable

log = logging.getLogger(__name__)

PROTOCOL_TYPE = "penstock-sql"
_MORE_SECONDS = 5.0
"""How much longer a waiting thread waits than the timeout of the operation."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """`client` are librdkafka's settings, including `bootstrap.servers`."""

    client: Mapping[str, str]
    member: Mapping[str, str] | None = None
    """The same with Kafka's names where they differ, for the group member."""
    topic: str = TOPIC
    group: str = "penstock-sql"
    replication_factor: int = 3
    session_timeout_ms: int = 10_000
    start_timeout: float = 60.0
    write_timeout: float = 15.0


class _Image:
    """The catalog as the store's reader updates it; `current` is replaced, never changed."""

    def __init__(self) -> None:
        self.offset = -1
        self.current = Catalog()

    @property
    def leader(self) -> str | None:
        return self.current.leader

    def apply(self, key: bytes | None, value: bytes | None, offset: int, timestamp: int | None) -> None:
        self.offset = offset
        record = Record.decode(key, value)
        if record is None:
            log.warning("skipped the record at offset %d: not a catalog record", offset)
            return
        try:
            self.current = self.current.apply(record)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("skipped the record %s at offset %d: %r", record.key, offset, error)


class CatalogLog:
    """The catalog of one server. `on_change` is called in its thread when this server becomes or stops being
    the leader.
    """

    def __init__(
        self,
        settings: LogSettings,
        identity: Identity,
        *,
        on_change: Callable[[bool], None] = lambda leads: None,
        on_failed: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self.cluster_id = ""
        self._settings = settings
        self._identity = identity
        self._on_change = on_change
        self._on_failed = on_failed
        self._image = _Image()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="sql-log", daemon=True)
        self._store: Store | None = None
        self._leadership: Leadership | None = None
        self._elector: Elector | None = None

    @property
    def catalog(self) -> Catalog:
        return self._image.current

    @property
    def leads(self) -> bool:
        return self._leadership is not None and self._leadership.leads

    @property
    def leader(self) -> Identity | None:
        """The leader according to both the group and the topic."""
        return None if self._leadership is None else self._leadership.leader

    # Life

    def start(self) -> None:
        """Create or check the topic, read it to its end, join the group. Raises CannotStart."""
        settings = self._settings
        client = {str(name): str(value) for name, value in settings.client.items()}
        client.setdefault("client.id", f"penstock-sql-{self._identity.port}")
        self.cluster_id = topic.prepare(
            client,
            settings.topic,
            replication_factor=settings.replication_factor,
            timeout=settings.start_timeout,
        )
        self._thread.start()
        self._wait(self._open(client), settings.start_timeout)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _open(self, client: dict[str, str]) -> None:
        settings = self._settings
        transactional_id = f"penstock-sql-{settings.group}-{settings.topic}"
        store = Store(client, settings.topic, transactional_id, self._image, what="sql")
        self._store = store
        self._leadership = Leadership(
            store,
            self._identity,
            write_timeout=settings.write_timeout,
            first=self._first_write,
            on_change=self._on_change,
        )
        elector = Elector(
            group_settings(settings.member or client, settings.session_timeout_ms),
            settings.group,
            self._identity,
            session_timeout_ms=settings.session_timeout_ms,
            protocol_type=PROTOCOL_TYPE,
            what="SQL server",
            on_leader=lambda leader: soon(self._loop, self._leader_is, leader),
            on_fenced=self._on_failed,
        )
        self._leadership.on_deposed = elector.rejoin
        store.failed.add_done_callback(lambda failed: self._read_failed(failed))
        # Read first, so that a new leader has all the state for its queries.
        await store.load(settings.start_timeout)
        self._elector = elector
        elector.start()

    async def _first_write(self) -> None:
        assert self._store is not None
        record = server_record(self._identity.url)
        await self._store.write([record.encode()], self._settings.write_timeout)

    def _leader_is(self, leader: Identity | None) -> None:
        assert self._leadership is not None
        self._leadership.leader_is(leader)

    def _read_failed(self, failed: asyncio.Future[None]) -> None:
        if not failed.cancelled() and (error := failed.exception()) is not None:
            self._on_failed(str(error))

    def leave(self, timeout: float = 3.0) -> None:
        """Leave the group, so that another server takes over now; this one stops writing."""
        elector, self._elector = self._elector, None
        if elector is not None:
            elector.stop(timeout)
        if self._leadership is not None and self._loop.is_running():
            soon(self._loop, self._leadership.close)

    def close(self) -> None:
        self.leave()
        if self._thread.is_alive():
            if self._store is not None:
                try:
                    self._wait(self._store.close(), _MORE_SECONDS)
                except Unavailable as error:
                    log.warning("%s", error.message)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_MORE_SECONDS)
        if not self._loop.is_running():
            self._loop.close()

    # Leading and writing

    def wait_for_leader(self, timeout: float) -> bool:
        """Wait until this server may write, or knows the leader. Returns False after the timeout."""
        leadership = self._leadership
        if leadership is None:
            return False

        async def known() -> bool:
            return await leadership.known(self._loop.time() + timeout)

        return self._wait(known(), timeout)

    def write(self, records: Sequence[Record]) -> None:
        """Write all records or none; returns when `catalog` includes them. Raises Unavailable if this server
        is not the leader.
        """
        if not records:
            return
        leadership = self._leadership
        if leadership is None:
            raise Unavailable("this server has not started")
        encoded = [record.encode() for record in records]

        async def write() -> None:
            async with leadership.writing():
                await leadership.write(encoded)

        try:
            self._wait(write(), 3 * self._settings.write_timeout)
        except NoLongerLeader:
            raise Unavailable("another server leads now, and nothing was changed: try again") from None
        except RecordTooLarge as error:
            raise Unavailable(f"the statement is too large for a record of {TOPIC}: {error}") from None
        except StoreUncertain as error:
            raise Unavailable(
                f"the cluster did not say whether it keeps this change ({error}): see SHOW QUERIES, try again"
            ) from None

    def _wait(self, work: Coroutine[Any, Any, T], timeout: float) -> T:
        try:
            future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise Unavailable("this server stops") from None
        try:
            return future.result(timeout + _MORE_SECONDS)
        except FutureTimeout:
            future.cancel()
            raise Unavailable(f"the cluster gave no answer in {timeout:g} s") from None


__all__ = ["CannotStart", "CatalogLog", "LogSettings", "PROTOCOL_TYPE"]
