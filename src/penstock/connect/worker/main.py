"""A worker as a process: topics, group, herder, HTTP server, signals and the ready file."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from penstock.connect.rest.app import ConnectApi, is_not_leader, needed_role, render_refusal
from penstock.connect.rest.errors import RestError
from penstock.connect.rest.metrics import WorkerMetrics
from penstock.connect.rest.resources import Resources
from penstock.connect.rest.server_resources import ServerResources
from penstock.connect.worker.cluster import Alone, Distributed, WorkerCluster
from penstock.connect.worker.configs import ConfigState, Record, connector_record, session_key_record
from penstock.connect.worker.herder import Herder
from penstock.connect.worker.options import Options
from penstock.connect.worker.processes import ScoutProcess
from penstock.connect.worker.statuses import Statuses, StatusTopic
from penstock.elected import topic
from penstock.elected.elector import Elector
from penstock.elected.errors import CannotStart, ElectedError
from penstock.elected.forwarding import Forwarder
from penstock.elected.leadership import Leadership
from penstock.elected.membership import Identity
from penstock.elected.process import (
    group_settings,
    guard,
    identify,
    listen,
    loop_factory,
    soon,
    trust,
    write_ready,
)
from penstock.elected.store import Store
from penstock.web.access import ServerAccess
from penstock.web.log_output import set_up_logging
from penstock.web.operator import LOGGERS, Operator
from penstock.web.peers import authorization
from penstock.web.server import Server

log = logging.getLogger(__name__)

PROTOCOL_TYPE = "penstock-connect"
Announce = Callable[[dict[str, Any]], object]


def run(
    options: Options,
    *,
    ready_file: str | None = None,
    announce: Announce | None = None,
    parent: int | None = None,
) -> int:
    """Run a worker until SIGTERM or SIGINT, or until `parent`, a pipe, is closed. Returns the exit code."""
    set_up_logging("httpx")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_Worker(options).serve(ready_file, announce or (lambda ready: None), parent))


class _Worker:
    """The parts of one worker, in the order in which they start and stop."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._settings = options.parsed()
        self._failures: list[str] = []
        self._store: Store | None = None
        self._status_topic: StatusTopic | None = None
        self._elector: Elector | None = None
        self._forwarder: Forwarder | None = None
        self._leadership: Leadership | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def serve(self, ready_file: str | None, announce: Announce, parent: int | None) -> int:
        options, loop = self._options, asyncio.get_running_loop()
        self._stopping = stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        if parent is not None:
            loop.add_reader(parent, lambda: stopping.set() if not os.read(parent, 4096) else None)
        with listen(options.host, options.port) as listener:
            identity = identify(
                listener,
                options.host,
                options.advertised_url,
                scheme="https" if options.tls_certificate else "http",
            )
            allowed = guard(identity, options.host, options.allowed_hosts, options.allowed_origins)
            herder, cluster_id = await self._make(identity)
            resources = Resources(herder)
            routes = resources.routes() + ServerResources(herder, cluster_id).routes()
            api: Any = ConnectApi(
                herder,
                self._forwarder,
                routes,
                max_body_bytes=options.max_body_bytes,
                leader_wait=options.leader_wait,
            )
            access = ServerAccess.of(options.access, "penstock connect", lambda: self._state.session_key)
            server = Server(
                api,
                allowed,
                render=render_refusal,
                access=access,
                needs=needed_role,
                certificate=options.tls_certificate,
                key=options.tls_key,
                operator=Operator(
                    herder.is_member, WorkerMetrics(herder).text, frozenset(("/health", LOGGERS))
                ),
            )
            try:
                await self._start(herder)
                serving = loop.create_task(server.serve(sockets=[listener]))
                await server.listening()
                ready = {"connect": identity.url, "pid": os.getpid(), "group": self._settings["group.id"]}
                if ready_file is not None:
                    write_ready(ready_file, ready)
                announce(ready)
                waiting = loop.create_task(stopping.wait())
                ends: list[asyncio.Future[Any]] = [waiting, serving]
                if self._store is not None:
                    ends.append(self._store.failed)
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if self._store is not None and self._store.failed.done() and not stopping.is_set():
                    self._failures.append(str(self._store.failed.exception()))
                waiting.cancel()
                # Tasks first: their offsets are committed and their end is reported before others take over.
                await herder.close()
                await self._leave(3.0)
                server.should_exit = True
                await serving
            finally:
                await herder.close()
                await self._leave(0.5)
                await self._close(herder)
                if access is not None:
                    access.close()
                if ready_file is not None and os.path.exists(ready_file):
                    os.unlink(ready_file)
        for failure in self._failures:
            print(f"penstock connect: {failure}", file=sys.stderr)
        return 1 if self._failures else 0

    async def _make(self, identity: Identity) -> tuple[Herder, str]:
        options, settings, loop = self._options, self._settings, asyncio.get_running_loop()
        client = {str(name): str(value) for name, value in options.client.items()}
        client.setdefault("client.id", f"penstock-connect-{identity.port}")
        self._client = client
        cluster_id = await loop.run_in_executor(None, self._prepare_topics, client)
        state = self._state = ConfigState()
        statuses = Statuses()
        cluster: WorkerCluster
        once = settings["exactly.once.source.support"] == "enabled"
        if options.standalone:
            cluster = Alone(state, identity)
        else:
            store = self._store = Store(
                client,
                settings["config.storage.topic"],
                f"connect-cluster-{settings['group.id']}",
                state,
                what="worker",
            )
            self._leadership = Leadership(
                store,
                identity,
                write_timeout=options.write_timeout,
                first=self._first_write,
                on_change=lambda leads: herder.wake(),
            )
            cluster = Distributed(self._leadership, store, state)
            self._status_topic = StatusTopic(client, settings["status.storage.topic"], statuses)
            self._forwarder = Forwarder(
                identity.url,
                verify=trust(options.tls_ca),
                timeout=options.leader_wait + options.write_timeout,
                not_leader=is_not_leader,
                failed=lambda message: RestError(500, message),
            )
        worker_id = _worker_id(identity.url)
        message = {
            "worker": {
                "client": client,
                "properties": dict(options.properties),
                "group": settings["group.id"],
                "offsets_topic": None if options.standalone else settings["offset.storage.topic"],
                "offsets_directory": settings["offset.storage.file.filename"] if options.standalone else None,
                "exactly_once": once,
            },
            "plugin_path": list(settings["plugin.path"]),
        }
        scout = ScoutProcess({**message, "kind": "scout"}, settings["rest.request.timeout.ms"] / 1000)
        herder = Herder(
            worker_id,
            state,
            statuses,
            cluster,
            scout,
            message,
            grace=settings["task.shutdown.graceful.timeout.ms"] / 1000,
            exactly_once=once,
            submit=self._submit,
        )
        self._herder, self._cluster, self._identity = herder, cluster, identity
        return herder, cluster_id

    def _prepare_topics(self, client: dict[str, str]) -> str:
        options, settings = self._options, self._settings
        if options.standalone:
            if not settings["offset.storage.file.filename"]:
                raise CannotStart("a standalone worker keeps offsets in a directory: give --offsets DIR")
            return _cluster_id(client, options.start_timeout)
        cluster_id = ""
        for name, partitions in (
            ("config", 1),
            ("offset", settings["offset.storage.partitions"]),
            ("status", settings["status.storage.partitions"]),
        ):
            cluster_id = topic.prepare(
                client,
                settings[f"{name}.storage.topic"],
                replication_factor=options.replication_factor,
                timeout=options.start_timeout,
                partitions=partitions,
            )
        return cluster_id

    async def _start(self, herder: Herder) -> None:
        options, settings, loop = self._options, self._settings, asyncio.get_running_loop()
        if options.standalone:
            herder.members_are(frozenset((herder.worker_id,)))
            herder.start()
            for config in options.connectors:
                name = config["name"]
                await herder.change(lambda n=name, c=config: [connector_record(n, c)])  # type: ignore[misc]
            return
        assert self._store is not None and self._status_topic is not None and self._leadership is not None
        leadership = self._leadership
        elector = self._elector = Elector(
            group_settings(self._client, options.session_timeout_ms),
            settings["group.id"],
            self._identity,
            session_timeout_ms=options.session_timeout_ms,
            protocol_type=PROTOCOL_TYPE,
            what="worker",
            on_leader=lambda leader: soon(loop, leadership.leader_is, leader),
            on_fenced=lambda reason: soon(loop, self._give_up, reason),
            on_members=lambda members: soon(loop, self._members, herder, members),
        )
        leadership.on_deposed = elector.rejoin
        # The group is joined while the topics are read: a new leader reads to the end again anyway.
        elector.start()
        await asyncio.gather(
            self._store.load(options.start_timeout), self._status_topic.start(options.start_timeout)
        )
        herder.start()
        self._renewing = loop.create_task(self._renew_key())

    async def _first_write(self) -> None:
        """A new leader writes a new key: workers that have left the group know the old one."""
        assert self._store is not None
        await self._store.write([self._new_key()], self._options.write_timeout)

    def _new_key(self) -> Record:
        now_ms = int(time.time() * 1000)
        return session_key_record(secrets.token_bytes(32), now_ms, leader=self._identity.url)

    async def _renew_key(self) -> None:
        while True:
            await asyncio.sleep(self._settings["inter.worker.key.ttl.ms"] / 1000)
            try:
                if self._cluster.leads:
                    await self._cluster.change(lambda: [self._new_key()])
            except ElectedError as error:
                log.warning("could not replace the workers' key: %s", error)

    def _members(self, herder: Herder, members: frozenset[str] | None) -> None:
        herder.members_are(None if members is None else frozenset(_worker_id(url) for url in members))

    def _give_up(self, reason: str) -> None:
        self._failures.append(reason)
        self._stopping.set()

    async def _submit(self, name: str, tasks: list[dict[str, str]]) -> bool:
        """Send a connector's tasks to the leader. Returns whether it accepted them."""
        try:
            if self._cluster.leads:
                await self._herder.put_tasks(name, tasks)
                return True
            leader = self._cluster.leader
            if leader is None or self._forwarder is None:
                return False
            path = f"/connectors/{quote(name, safe='')}/tasks"
            headers, body = {"content-type": "application/json"}, json.dumps(tasks).encode()
            if self._state.session_key is not None:
                key = self._state.session_key
                headers["authorization"] = authorization(key, "POST", path, body, time.time())
            answer = await self._forwarder.send(leader, "POST", path, headers, body, repeatable=True)
            if answer is not None and answer.status >= 400:
                log.warning(
                    "the leader %s refused the task configurations of %s: %d %s",
                    leader.url, name, answer.status, answer.body[:500].decode(errors="replace"),
                )  # fmt: skip
            return answer is not None and answer.status < 400
        except (ElectedError, RestError) as error:
            log.warning("could not send the task configurations of %s to the leader: %s", name, error)
            return False

    async def _leave(self, timeout: float) -> None:
        if self._elector is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._elector.stop, timeout)

    async def _close(self, herder: Herder) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        await herder.scout.close()
        if self._leadership is not None:
            self._leadership.close()
        if self._status_topic is not None:
            await self._status_topic.close()
        if self._store is not None:
            await self._store.close()
        if self._forwarder is not None:
            await self._forwarder.close()


def _worker_id(url: str) -> str:
    return url.rpartition("://")[2]


def _cluster_id(client: dict[str, str], timeout: float) -> str:
    _, metadata = topic.reach(client, timeout)
    return str(metadata.cluster_id or "")
