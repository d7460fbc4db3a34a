"""A server as a process: its port, its identity in the group, the guard, and the ready file.

The parts that a registry and a SQL server share.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.client import ClientSettings
from penstock.client.settings import kafka_names
from penstock.elected.errors import CannotStart
from penstock.elected.membership import Identity
from penstock.web.guard import JSON, Guard

# Settings come with librdkafka's names; the client of the group member takes Kafka's (`kafka_names`).


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


def soon(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: Any) -> None:
    """Run a function in the loop from another thread; does nothing if the loop is closed because the process
    ends.
    """
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        pass


@contextmanager
def listen(host: str, port: int) -> Iterator[socket.socket]:
    """Bind the port before anything else, so that a port in use is reported at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        try:
            listener.bind((host, port))
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            hint = "the port is in use; choose another port with --port (0: any)" if taken else ""
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
    """The identity of this server in its group."""
    port = listener.getsockname()[1]
    if advertised_url:
        scheme, host, port = _parse_url(advertised_url)
    elif host in ("0.0.0.0", "::", ""):
        host = socket.gethostname()
    return Identity(host, port, scheme, eligible)


def guard(
    identity: Identity,
    host: str,
    allowed_hosts: Sequence[str],
    allowed_origins: Sequence[str],
    *,
    types: Sequence[str] = JSON,
    untyped: bool = False,
) -> Guard:
    """The guard of a server that listens on `host`: it accepts that name, the advertised name, and those that
    are allowed.
    """
    hosts = (host, identity.host, *allowed_hosts)
    return Guard(hosts=hosts, bound=host, origins=allowed_origins, types=types, untyped=untyped)


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


def trust(ca: str | None) -> ssl.SSLContext | bool:
    """Which certificates to trust for the leader; True means the system's authorities."""
    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise CannotStart(f"--tls-ca {ca}: {error}") from error


def group_settings(client: Mapping[str, str], session_timeout_ms: int) -> ClientSettings:
    """The settings of the group member. A join returns when all members have joined, so it may take long."""
    named = kafka_names(client)
    named["request.timeout.ms"] = str(4 * session_timeout_ms)
    return ClientSettings.from_kafka(named)


def write_ready(path: str, state: dict[str, Any]) -> None:
    """Write the file atomically: whoever waits for it never sees a part of it."""
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(state, file)
        file.write("\n")
    os.replace(temporary, path)
