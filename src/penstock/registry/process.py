"""A server as a process: the port, uvicorn under it, who it is to the others, the ready file.

What a registry and a SQL server have in common; what each of them serves is its own.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import uvicorn

from penstock.client import ClientSettings
from penstock.registry.errors import CannotStart
from penstock.registry.membership import Identity

# librdkafka's names, where the group member's client has Kafka's.
_KAFKA_NAMES = {"sasl.mechanisms": "sasl.mechanism"}


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


def soon(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: Any) -> None:
    """Call in the loop from another thread; nothing when it is closed, because this process ends."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        pass


class Server(uvicorn.Server):
    """uvicorn, with the signals left to the process and a way to wait until it listens."""

    def __init__(self, app: Any, *, certificate: str | None = None, key: str | None = None) -> None:
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
                ssl_certfile=certificate,
                ssl_keyfile=key,
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
def listen(host: str, port: int) -> Iterator[socket.socket]:
    """The port, taken before anything else is done: who has it already is told at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        try:
            listener.bind((host, port))
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            hint = (
                "something listens there already; choose another port with --port (0: any)" if taken else ""
            )
            raise CannotStart(f"cannot listen on {host}:{port}: {hint or error.strerror or error}") from error
        yield listener
    finally:
        listener.close()


def identify(
    listener: socket.socket,
    host: str,
    advertised_url: str | None,
    *,
    scheme: str = "http",
    eligible: bool = True,
) -> Identity:
    """Who this server is to the others of its group."""
    port = listener.getsockname()[1]
    if advertised_url:
        scheme, host, port = _parse_url(advertised_url)
    elif host in ("0.0.0.0", "::", ""):
        host = socket.gethostname()
    return Identity(host, port, scheme, eligible)


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


def kafka_names(client: Mapping[str, str]) -> dict[str, str]:
    """Settings that may be in librdkafka's names, in Kafka's."""
    return {_KAFKA_NAMES.get(name, name): value for name, value in client.items()}


def group_settings(client: Mapping[str, str], session_timeout_ms: int) -> ClientSettings:
    """The settings of the group's member: a join is answered when all are there, so it may take long."""
    named = kafka_names(client)
    named["request.timeout.ms"] = str(4 * session_timeout_ms)
    return ClientSettings.from_kafka(named)


def write_ready(path: str, state: dict[str, Any]) -> None:
    """In one step: who waits for the file finds it whole."""
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(state, file)
        file.write("\n")
    os.replace(temporary, path)
