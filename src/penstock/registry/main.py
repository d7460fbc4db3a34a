"""A registry as a process: the topic, the group, the HTTP server, signals and the ready file."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn

from penstock.client import ClientSettings
from penstock.registry import topic
from penstock.registry.elector import Elector
from penstock.registry.errors import CannotStart
from penstock.registry.forwarding import Forwarder
from penstock.registry.http.app import Api, application
from penstock.registry.http.auth import Users
from penstock.registry.membership import Identity
from penstock.registry.service import Service
from penstock.registry.state import State
from penstock.registry.store import Store

log = logging.getLogger(__name__)

Announce = Callable[[dict[str, Any]], object]

# librdkafka's names, where the group member's client has Kafka's.
_KAFKA_NAMES = {"sasl.mechanisms": "sasl.mechanism"}


@dataclass(frozen=True, slots=True)
class Settings:
    """How a registry runs; `client` are librdkafka's settings, `bootstrap.servers` among them."""

    client: Mapping[str, str]
    host: str = "127.0.0.1"
    port: int = 8081
    topic: str = "_schemas"
    group: str = "schema-registry"
    advertised_url: str | None = None
    eligible: bool = True
    replication_factor: int = 3
    auth_file: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    """Whom to trust as the leader, where the registries speak TLS."""
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
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if sys.platform != "win32":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(_serve(settings, ready_file, announce or (lambda ready: None), parent))


async def _serve(settings: Settings, ready_file: str | None, announce: Announce, parent: int | None) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if parent is not None:
        loop.add_reader(parent, lambda: stopping.set() if not os.read(parent, 4096) else None)
    users = Users.read(settings.auth_file) if settings.auth_file else None
    with _listener(settings) as listener:
        identity = _identity(settings, listener)
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
        state = State()
        store = Store(client, settings.topic, settings.group, state)
        service = Service(
            state, store, identity, write_timeout=settings.write_timeout, leader_wait=settings.leader_wait
        )
        forwarder = Forwarder(verify=_trust(settings), timeout=settings.leader_wait + settings.write_timeout)
        api = Api(
            service,
            forwarder,
            cluster_id=cluster_id,
            group=settings.group,
            users=users,
            max_body_bytes=settings.max_body_bytes,
        )
        elector = Elector(
            _group_settings(client, settings),
            settings.group,
            identity,
            session_timeout_ms=settings.session_timeout_ms,
            on_leader=lambda leader: _soon(loop, service.leader_is, leader),
            on_fenced=lambda reason: _soon(loop, _give_up, reason, stopping, failures),
        )
        failures: list[str] = []
        service.on_deposed = elector.rejoin
        server = _Server(settings, application(api))
        try:
            # The group is joined while the topic is read: a leader reads to the end again anyway.
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
                _write_ready(ready_file, ready)
            announce(ready)
            waiting = loop.create_task(stopping.wait())
            ends: list[asyncio.Future[Any]] = [waiting, serving, store.failed]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if store.failed.done() and not stopping.is_set():
                failures.append(str(store.failed.exception()))
            waiting.cancel()
            # Out of the group first: another one takes over while this one still answers.
            await loop.run_in_executor(None, elector.stop, 3.0)
            server.should_exit = True
            await serving
        finally:
            await loop.run_in_executor(None, elector.stop, 0.5)
            await service.close()
            await forwarder.close()
            if ready_file is not None and os.path.exists(ready_file):
                os.unlink(ready_file)
        for failure in failures:
            print(f"penstock registry: {failure}", file=sys.stderr)
        return 1 if failures else 0


def _soon(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: Any) -> None:
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        pass  # the loop is closed: this process ends


def _give_up(reason: str, stopping: asyncio.Event, failures: list[str]) -> None:
    failures.append(reason)
    stopping.set()


class _Server(uvicorn.Server):
    """uvicorn, with the signals left to the process and a way to wait until it listens."""

    def __init__(self, settings: Settings, app: Any) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                timeout_keep_alive=60,
                timeout_graceful_shutdown=5,
                ssl_certfile=settings.tls_certificate,
                ssl_keyfile=settings.tls_key,
            )
        )
        self._listening = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._listening.set()

    async def listening(self) -> None:
        await self._listening.wait()


@contextmanager
def _listener(settings: Settings) -> Iterator[socket.socket]:
    """The port, taken before anything else is done: who has it already is told at once."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        try:
            listener.bind((settings.host, settings.port))
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            hint = (
                "something listens there already; choose another port with --port (0: any)" if taken else ""
            )
            raise CannotStart(
                f"cannot listen on {settings.host}:{settings.port}: {hint or error.strerror or error}"
            ) from error
        yield listener
    finally:
        listener.close()


def _identity(settings: Settings, listener: socket.socket) -> Identity:
    port = listener.getsockname()[1]
    scheme = "https" if settings.tls_certificate else "http"
    host = settings.host
    if settings.advertised_url:
        scheme, host, port = _parse_url(settings.advertised_url)
    elif host in ("0.0.0.0", "::", ""):
        host = socket.gethostname()
    return Identity(host, port, scheme, settings.eligible)


def _parse_url(url: str) -> tuple[str, str, int]:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CannotStart(f"--advertised-url {url}: write it as http://host:port")
    return parts.scheme, parts.hostname, port


def _trust(settings: Settings) -> ssl.SSLContext | bool:
    if settings.tls_ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=settings.tls_ca)
    except (OSError, ssl.SSLError) as error:
        raise CannotStart(f"--tls-ca {settings.tls_ca}: {error}") from error


def _group_settings(client: Mapping[str, str], settings: Settings) -> ClientSettings:
    """The settings of the group's member: a join is answered when all are there, so it may take long."""
    named = {_KAFKA_NAMES.get(name, name): value for name, value in client.items()}
    named["request.timeout.ms"] = str(4 * settings.session_timeout_ms)
    return ClientSettings.from_kafka(named)


def _write_ready(path: str, state: dict[str, Any]) -> None:
    """In one step: who waits for the file finds it whole."""
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(state, file)
        file.write("\n")
    os.replace(temporary, path)
