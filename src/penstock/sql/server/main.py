"""A SQL server as a process: the catalog's topic, the engine, the HTTP endpoint, signals and the ready file.

Started, it reads the catalog, joins the group and starts Spark, all at the same time. When the group says
that it leads, its engine takes the queries over; when it no longer leads, the engine stops them: another one
runs them by then, and what this one still had under way the cluster refuses (the sinks' transactional ids).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from penstock.client.librdkafka_names import translate
from penstock.elected.membership import Identity
from penstock.elected.process import guard, identify, listen, loop_factory, soon, trust, write_ready
from penstock.errors import PenstockError
from penstock.sql.catalog.log import CatalogLog, LogSettings
from penstock.sql.pull.tables import FollowedTables
from penstock.sql.server import http
from penstock.sql.server.http import SqlApi
from penstock.sql.settings import EngineSettings
from penstock.web.access import NOTHING_ASKED, AccessSettings, ServerAccess
from penstock.web.log_output import set_up_logging
from penstock.web.server import Server

log = logging.getLogger(__name__)

Announce = Callable[[dict[str, Any]], object]
_STOP_SECONDS = 30.0
_STOP_AWAY_SECONDS = 3.0
"""For all that is left of a stop when the cluster is away: what waits for an answer gets none."""
_AGAIN_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How a server runs; where the cluster is and what Spark gets is the engine's."""

    engine: EngineSettings
    host: str = "127.0.0.1"
    port: int = 8088
    group: str = "penstock-sql"
    advertised_url: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    """Names that requests may ask for, beside the addresses it listens on; see `penstock.web.guard`."""
    allowed_origins: tuple[str, ...] = ()
    access: AccessSettings = NOTHING_ASKED
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    """Whom to trust as the leader, where the servers speak TLS."""
    replication_factor: int = 3
    session_timeout_ms: int = 10_000
    max_body_bytes: int = 4 << 20
    max_requests: int = 256
    leader_wait: float = 30.0


class ServedEngine(http.HttpEngine, Protocol):
    """What a server wants of the engine; each call may take long, and is made in a thread."""

    def start(self) -> None: ...
    def take_over(self) -> None: ...
    def give_up(self, *, deposed: bool = False) -> None: ...
    def stop(self) -> None: ...
    def away(self) -> str | None: ...


EngineFactory = Callable[[EngineSettings, CatalogLog, FollowedTables], ServedEngine]


def spark_engine(settings: EngineSettings, log: CatalogLog, tables: FollowedTables) -> ServedEngine:
    from penstock.sql.server.engine import Engine

    return Engine(settings, log, tables)


def serve(
    settings: ServerSettings,
    *,
    ready_file: str | None = None,
    announce: Announce | None = None,
    parent: int | None = None,
    engine: EngineFactory = spark_engine,
) -> int:
    """Run until SIGTERM or SIGINT, or until `parent`, a pipe, is closed; the exit code."""
    set_up_logging("httpx", "py4j")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(settings, ready_file, announce or (lambda ready: None), parent, engine))


class Leading:
    """Leadership as the endpoint sees it: who leads, and whether the engine here has taken over."""

    def __init__(self, identity: Identity, loop: asyncio.AbstractEventLoop) -> None:
        self.url = identity.url
        self.log: CatalogLog | None = None
        self.engine: ServedEngine | None = None
        self._loop = loop
        self._leads = False
        self._runs = False
        self._changed = asyncio.Event()
        self._news = asyncio.Condition()

    @property
    def leader(self) -> Identity | None:
        return None if self.log is None else self.log.leader

    @property
    def runs(self) -> bool:
        return self._runs and self._leads

    def away(self) -> str | None:
        return None if self.engine is None else self.engine.away()

    def changed(self, leads: bool) -> None:
        """Called by the log, in its thread, when the leader changes."""
        self._leads = leads  # at once: no statement is begun that another server is to run
        soon(self._loop, self._changed.set)

    async def known(self, timeout: float) -> bool:
        def is_known() -> bool:
            return self.runs or (self.leader is not None and self.leader.url != self.url)

        if is_known() or timeout <= 0:
            return is_known()
        deadline = self._loop.time() + timeout
        while not is_known() and self._loop.time() < deadline:
            # Looked at now and then, too: this server is not notified that another one leads.
            try:
                async with asyncio.timeout(min(0.1, timeout)), self._news:
                    await self._news.wait()
            except TimeoutError:
                pass
        return is_known()

    async def follow(self) -> None:
        """Have the engine take over and give up as the group says, one after the other, for ever."""
        engine = self.engine
        assert engine is not None
        while True:
            if self._leads != self._runs:
                try:
                    if self._leads:
                        await self._loop.run_in_executor(None, engine.take_over)
                        self._runs = True
                    else:
                        self._runs = False
                        await self._loop.run_in_executor(None, partial(engine.give_up, deposed=True))
                except PenstockError as error:
                    log.warning("%s: %s", "taking over" if self._leads else "giving up", error)
                    await asyncio.sleep(_AGAIN_SECONDS)
                    continue
                async with self._news:
                    self._news.notify_all()
                continue
            await self._changed.wait()
            self._changed.clear()


async def _serve(
    settings: ServerSettings,
    ready_file: str | None,
    announce: Announce,
    parent: int | None,
    make_engine: EngineFactory,
) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    failures: list[str] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if parent is not None:
        loop.add_reader(parent, lambda: stopping.set() if not os.read(parent, 4096) else None)

    def fail(reason: str) -> None:
        failures.append(reason)
        soon(loop, stopping.set)

    access = ServerAccess.of(settings.access, "penstock sql")
    with listen(settings.host, settings.port) as listener:
        scheme = "https" if settings.tls_certificate else "http"
        identity = identify(listener, settings.host, settings.advertised_url, scheme=scheme)
        allowed = guard(identity, settings.host, settings.allowed_hosts, settings.allowed_origins)
        leading = Leading(identity, loop)
        catalog = CatalogLog(
            LogSettings(
                client=translate(settings.engine.client()),
                member=settings.engine.client(),
                group=settings.group,
                replication_factor=settings.replication_factor,
                session_timeout_ms=settings.session_timeout_ms,
            ),
            identity,
            on_change=leading.changed,
            on_failed=fail,
        )
        tables = FollowedTables(settings.engine)
        engine = make_engine(settings.engine, catalog, tables)
        leading.log, leading.engine = catalog, engine
        api: SqlApi | None = None
        following: asyncio.Future[None] | None = None
        serving: asyncio.Future[None] | None = None
        server: Server | None = None
        started = left = False
        try:
            # The catalog is read while Java starts: what is wrong with the cluster is reported soon.
            starting = loop.run_in_executor(None, engine.start)
            await _or_stop(loop.run_in_executor(None, catalog.start), stopping)
            await _or_stop(starting, stopping)
            started = starting.done()
            if not stopping.is_set():
                following = asyncio.ensure_future(leading.follow())
                api = SqlApi(
                    engine,
                    leading,
                    cluster_id=catalog.cluster_id,
                    max_body_bytes=settings.max_body_bytes,
                    max_requests=settings.max_requests,
                    leader_wait=settings.leader_wait,
                    verify=trust(settings.tls_ca),
                )
                server = Server(
                    api.application(),
                    allowed,
                    access=access,
                    needs=http.needs,
                    certificate=settings.tls_certificate,
                    key=settings.tls_key,
                    operator=api.operator(),
                )
                serving = asyncio.ensure_future(server.serve(sockets=[listener]))
                await server.listening()
                while not await leading.known(1.0) and not stopping.is_set():
                    pass
            if not stopping.is_set():
                ready = {"sql": identity.url, "pid": os.getpid(), "leads": leading.runs}
                if ready_file is not None:
                    write_ready(ready_file, ready)
                announce(ready)
                assert serving is not None and following is not None
                waiting = asyncio.ensure_future(stopping.wait())
                ends: list[asyncio.Future[Any]] = [waiting, serving, following]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if following.done() and (error := following.exception()) is not None:
                    failures.append(f"this server cannot take over the queries: {error}")
                waiting.cancel()
        except (PenstockError, OSError, RuntimeError) as error:
            failures.append(str(error))
        finally:
            ending = _Ending(loop, engine)
            await _stop(ending, catalog, engine if started else None, tables, api, server, serving, following)
            left = ending.left
            if ready_file is not None and os.path.exists(ready_file):
                os.unlink(ready_file)
    for failure in failures:
        print(f"penstock sql: {failure}", file=sys.stderr)
    if left:
        # Threads that wait for a cluster which is away would hold up the end. Java ends with its input.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if failures else 0)
    return 1 if failures else 0


async def _or_stop(work: asyncio.Future[None], stopping: asyncio.Event) -> None:
    """Wait for the work, or until this process is to stop."""
    stopped = asyncio.ensure_future(stopping.wait())
    ends: list[asyncio.Future[Any]] = [work, stopped]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if work.done():
        work.result()


class _Ending:
    """The steps of a stop, each in a thread. One that takes too long is left behind (`left`)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, engine: ServedEngine) -> None:
        self.left = False
        self._loop = loop
        self._away = engine.away
        self._away_until: float | None = None

    async def step(self, what: str, work: Callable[[], object]) -> None:
        await self.wait(what, self._loop.run_in_executor(None, work))

    async def wait(self, what: str, work: asyncio.Future[Any]) -> None:
        deadline = self._loop.time() + _STOP_SECONDS
        while not work.done():
            now = self._loop.time()
            if self._away_until is None and self._away() is not None:
                self._away_until = now + _STOP_AWAY_SECONDS
            if now >= (deadline if self._away_until is None else min(deadline, self._away_until)):
                log.warning("%s takes too long: it ends with this process", what)
                self.left = True
                return
            await asyncio.wait([work], timeout=0.1)
        try:
            work.result()
        except PenstockError as error:
            log.warning("%s: %s", what, error)


async def _stop(
    ending: _Ending,
    catalog: CatalogLog,
    engine: ServedEngine | None,
    tables: FollowedTables,
    api: SqlApi | None,
    server: Server | None,
    serving: asyncio.Future[None] | None,
    following: asyncio.Future[None] | None,
) -> None:
    """In the order in which least is lost: queries end at a batch, then another server may take over."""
    if following is not None:
        following.cancel()
    if api is not None:
        await ending.step("ending requests", api.stop)
    if engine is not None:
        await ending.step("stopping the queries", partial(engine.give_up, deposed=not catalog.leads))
    await ending.step("leaving the group", catalog.leave)
    if server is not None and serving is not None:
        server.should_exit = True
        await ending.wait("closing connections", serving)
    if api is not None:
        await api.close()
    await ending.step("closing tables", tables.stop)
    await ending.step("closing the catalog", catalog.close)
    if engine is not None:
        await ending.step("stopping Spark", engine.stop)
