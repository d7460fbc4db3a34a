"""The settings of a console."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.registry.client import RegistrySettings
from penstock.web.access import NOTHING_ASKED, AccessSettings


@dataclass(frozen=True, slots=True)
class ConnectSettings:
    """The address of a Connect worker; `user` is NAME:PASSWORD, `ca` a PEM file."""

    url: str
    user: str | None = None
    ca: str | None = None


@dataclass(frozen=True, slots=True)
class SqlSettings:
    """The address of a SQL server; `user` is NAME:PASSWORD, `ca` a PEM file."""

    url: str
    user: str | None = None
    ca: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """`client` are librdkafka's settings, including `bootstrap.servers`."""

    client: Mapping[str, str]
    host: str = "127.0.0.1"
    port: int = 8080
    name: str | None = None
    """The name of the cluster on pages. Default: its bootstrap servers."""
    registry: RegistrySettings | None = None
    connect: ConnectSettings | None = None
    sql: SqlSettings | None = None
    pipelines: tuple[str, ...] = ()
    """Directories in which pipeline projects are found."""
    pages: tuple[str, ...] = ()
    """Modules with a page of their own: each has `register(site)`, and may have `NAVIGATION`."""
    read_only: bool = False
    advertised_url: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    access: AccessSettings = NOTHING_ASKED
    tls_certificate: str | None = None
    tls_key: str | None = None
    timeout: float = 10.0
    listener: int | None = None
    """The file descriptor of a listening socket: `penstock up` passes it to keep the port."""
