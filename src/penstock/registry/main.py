"""A registry as a process: the topic, the group, the HTTP server, signals and the ready file."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.elected import topic
from penstock.elected.elector import Elector
from penstock.elected.forwarding import Forwarder
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
from penstock.registry.errors import forwarding_failed
from penstock.registry.http.app import RegistryApi, application, render_refusal
from penstock.registry.http.call import TAKEN_TYPES
from penstock.registry.service import Service
from penstock.registry.state import DEFAULT_LEVEL, State
from penstock.web.access import NOTHING_ASKED, AccessSettings, Principal, ServerAccess
from penstock.web.log_output import set_up_logging
from penstock.web.operator import Operator
from penstock.web.server import Server

log = logging.getLogger(__name__)

_NOT_THE_LEADER = b'"error_code":50004'

Announce = Callable[[dict[str, Any]], object]


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of a registry; `client` are librdkafka's settings, including `bootstrap.servers`."""

    client: Mapping[str, str]
    host: str = "127.0.0.1"
    port: int = 8081
    topic: str = "_schemas"
    group: str = "schema-registry"
    advertised_url: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    """Host names that requests may use, in addition to the listening addresses; see `penstock.web.guard`."""
    allowed_origins: tuple[str, ...] = ()
    eligible: bool = True
    compatibility: str = DEFAULT_LEVEL
    """The compatibility level if the topic has none."""
    replication_factor: int = 3
    access: AccessSettings = NOTHING_ASKED
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    """The certificates to trust for the leader, if the registries use TLS."""
    max_body_bytes: int = 4 << 20
    session_timeout_ms: int = 10_000
    start_timeout: float = 60.0
    write_timeout: float = 10.0
    leader_wait: float = 30.0


def run(
    settings: Settings,
    *,
    ready_file: str | None = None,
    announce: Announce | None = None,
    parent: int | None = None,
) -> int:
    """Run a registry until SIGTERM or SIGINT, or until `parent`, a pipe, is closed; the exit code."""
    set_up_logging("httpx")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(settings, ready_file, announce or (lambda ready: None), parent))


async def _serve(settings: Settings, ready_file: str | None, announce: Announce, parent: int | None) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if parent is not None:
        loop.add_reader(parent, lambda: stopping.set() if not os.read(parent, 4096) else None)
    access = ServerAccess.of(settings.access, "penstock schema registry")
    with listen(settings.host, settings.port) as listener:
        identity = identify(
            listener,
            settings.host,
            settings.advertised_url,
            scheme="https" if settings.tls_certificate else "http",
            eligible=settings.eligible,
        )
        allowed = guard(
            identity,
            settings.host,
            settings.allowed_hosts,
            settings.allowed_origins,
            types=TAKEN_TYPES,
            # Confluent's registry accepts requests without a Content-Type, which some other clients send.
            untyped=True,
        )
        client = {str(name): str(value) for name, value in settings.client.items()}
        client.setdefault("client.id", f"penstock-registry-{identity.port}")
        cluster_id = await loop.run_in_executor(
            None,
            lambda: topic.prepare(
                client,
                settings.topic,
                replication_factor=settings.replication_factor,
                timeout=settings.start_timeout,
            ),
        )
        state = State(settings.compatibility)
        store = Store(client, settings.topic, f"penstock-registry-{settings.group}-{settings.topic}", state)
        service = Service(
            state, store, identity, write_timeout=settings.write_timeout, leader_wait=settings.leader_wait
        )
        forwarder = Forwarder(
            identity.url,
            verify=trust(settings.tls_ca),
            timeout=settings.leader_wait + settings.write_timeout,
            not_leader=lambda status, body: status == 500 and _NOT_THE_LEADER in body,
            failed=forwarding_failed,
        )
        api = RegistryApi(
            service,
            forwarder,
            cluster_id=cluster_id,
            group=settings.group,
            max_body_bytes=settings.max_body_bytes,
        )
        elector = Elector(
            group_settings(client, settings.session_timeout_ms),
            settings.group,
            identity,
            session_timeout_ms=settings.session_timeout_ms,
            on_leader=lambda leader: soon(loop, service.leadership.leader_is, leader),
            on_fenced=lambda reason: soon(loop, _give_up, reason, stopping, failures),
        )
        failures: list[str] = []
        service.leadership.on_deposed = elector.rejoin

        async def knows_leader() -> bool:
            return service.leadership.leader is not None

        async def metrics(principal: Principal) -> bytes:
            return api.metrics.text()

        server = Server(
            application(api),
            allowed,
            render=render_refusal,
            access=access,
            needs=api.needs,
            certificate=settings.tls_certificate,
            key=settings.tls_key,
            operator=Operator(knows_leader, metrics),
        )
        try:
            # The group is joined while the topic is read: a new leader reads to the end again anyway.
            elector.start()
            started = loop.time()
            await store.load(settings.start_timeout)
            load_seconds = round(loop.time() - started, 3)
            state.on_change = api.forget
            gc.collect()
            gc.freeze()
            serving = loop.create_task(server.serve(sockets=[listener]))
            await server.listening()
            ready: dict[str, Any] = {"registry": identity.url, "pid": os.getpid(), "topic": settings.topic}
            ready["load_seconds"] = load_seconds
            if ready_file is not None:
                write_ready(ready_file, ready)
            announce(ready)
            waiting = loop.create_task(stopping.wait())
            ends: list[asyncio.Future[Any]] = [waiting, serving, store.failed]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if store.failed.done() and not stopping.is_set():
                failures.append(str(store.failed.exception()))
            waiting.cancel()
            # Leave the group first: another registry takes over while this one still responds.
            await loop.run_in_executor(None, elector.stop, 3.0)
            server.should_exit = True
            await serving
        finally:
            await loop.run_in_executor(None, elector.stop, 0.5)
            await service.close()
            await forwarder.close()
            if access is not None:
                access.close()
            if ready_file is not None and os.path.exists(ready_file):
                os.unlink(ready_file)
        for failure in failures:
            print(f"penstock registry: {failure}", file=sys.stderr)
        return 1 if failures else 0


def _give_up(reason: str, stopping: asyncio.Event, failures: list[str]) -> None:
    failures.append(reason)
    stopping.set()
