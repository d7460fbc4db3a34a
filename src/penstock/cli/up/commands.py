"""`penstock up`: the platform on this machine: a broker in this process, a schema registry and a Connect
worker beside it, and a web console that starts when somebody opens it.

With --brokers N a cluster of processes: up_brokers.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failure import FAILED, CommandFailed
from penstock.cli.options.properties import key_values, resolved
from penstock.cli.options.serving import log_format_option
from penstock.cli.options.shared import json_option
from penstock.cli.output import emit_json
from penstock.errors import MissingExtra, PenstockError

if TYPE_CHECKING:
    from penstock.cli.up.companion import Beside
    from penstock.cli.up.secure import SecureSite

REGISTRY_PORT = 8081
CONNECT_PORT = 8083
CONSOLE_PORT = 8080
_NEEDS = ("uvicorn", "httptools", "starlette", "httpx", "prometheus_client", "fastavro")
# One that starts alone need not wait for others: the first write would wait with it.
_DEFAULTS = {"group.initial.rebalance.delay.ms": "0", "penstock.metrics.listener": "127.0.0.1:0"}


@click.command()
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(file_okay=False),
    envvar="PENSTOCK_DATA",
    show_envvar=True,
    default="data",
    show_default=True,
    help="Where records and metadata are kept.",
)
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=9092,
    show_default=True,
    help="Where the broker listens; 0 takes any free port.",
)
@click.option(
    "--brokers",
    metavar="N",
    type=click.IntRange(1, 99),
    default=1,
    show_default=True,
    help="Two or more are a cluster: a process each, on --port and the ports after it, and a ZooKeeper.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on and to advertise to clients.",
)
@click.option(
    "--ready-file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Written as JSON when all is up: bootstrap, brokers, zookeeper, registry, connect, console, "
    "client_config.",
)
@click.option(
    "--registry-port",
    metavar="N",
    type=click.IntRange(0, 65535),
    help=f"Where the schema registry listens; 0 takes any free port.  [default: {REGISTRY_PORT}, "
    "or any with --port 0]",
)
@click.option("--no-registry", is_flag=True, help="Start no schema registry.")
@click.option(
    "--secure",
    is_flag=True,
    help="TLS, logins and ACLs on every port; users, passwords and a client configuration in DIR/secure.",
)
@click.option(
    "--connect-port",
    metavar="N",
    type=click.IntRange(0, 65535),
    help=f"Where the Connect worker listens; 0 takes any free port.  [default: {CONNECT_PORT}, "
    "or any with --port 0]",
)
@click.option("--no-connect", is_flag=True, help="Start no Connect worker.")
@click.option(
    "--console-port",
    metavar="N",
    type=click.IntRange(0, 65535),
    help=f"Where the web console listens; 0 takes any free port.  [default: {CONSOLE_PORT}, or any with "
    "--port 0]",
)
@click.option("--no-console", is_flag=True, help="Serve no web console.")
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="A broker setting by Kafka's name (repeatable).",
)
@log_format_option
@json_option
def up(
    data: str,
    port: int,
    brokers: int,
    host: str,
    ready_file: str | None,
    registry_port: int | None,
    no_registry: bool,
    secure: bool,
    connect_port: int | None,
    no_connect: bool,
    console_port: int | None,
    no_console: bool,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Start Penstock on this machine.

    It runs until Ctrl-C, which stops it cleanly.

    \b
      penstock up
      penstock up --secure
      penstock up --brokers 3
      penstock up --data /tmp/p --port 0 --ready-file ready.json --set auto.create.topics.enable=false
    """
    address = f"[{host}]" if ":" in host else host
    given = resolved(key_values(settings, "--set"))
    site = _secured(data, host, given, secure=secure)
    protocol = "PLAINTEXT" if site is None else site.protocol
    values = {
        "listeners": f"{protocol}://{address}:{port}",
        "log.dirs": data,
        **({} if site is None else site.broker_settings()),
        **_DEFAULTS,
        **given,
    }
    if brokers > 1:
        _check_cluster(brokers, host, port, given)
    if host in ("0.0.0.0", "::", "") and "advertised.listeners" not in values:
        raise click.UsageError(
            f"--host {host or repr('')} is every address: name the one that clients use, with "
            f"--set advertised.listeners={protocol}://NAME:{port}"
        )

    def announce(ready: dict[str, Any]) -> None:
        if as_json:
            emit_json(ready)
            return
        for broker in ready["brokers"]:  # no rich table here: it would stay in the broker's memory
            address = f"{broker['host']}:{broker['port']}"
            click.echo(f"broker {broker['id']} listens on {address} (process {broker['pid']})")
        if "registry" in ready:
            click.echo(f"schema registry at {ready['registry']}")
        if "client_config" in ready:
            click.echo(f"Log in as the administrator with --client-config {ready['client_config']}")
        if "connect" in ready:
            click.echo(f"Connect worker at {ready['connect']}")
        if "console" in ready:
            click.echo(f"Web console at {ready['console']}")
        click.echo(f"Ready at {ready['bootstrap']}, data in {data}. Ctrl-C stops it.")

    if registry_port is None:
        registry_port = 0 if port == 0 else REGISTRY_PORT
    if connect_port is None:
        connect_port = 0 if port == 0 else CONNECT_PORT
    if console_port is None:
        console_port = 0 if port == 0 else CONSOLE_PORT
    companions = _companions(
        host, None if no_registry else registry_port, None if no_connect else connect_port, site
    )
    if not no_console:
        companions += _console(host, console_port, site)
    if brokers > 1:
        from penstock.cli.up.brokers import run_cluster

        run_cluster(brokers, data, host, port, {**_DEFAULTS, **given}, ready_file, announce, companions, site)
        return
    run_broker(values, ready_file, announce, companions, site)


def _secured(data: str, host: str, given: dict[str, str], *, secure: bool) -> SecureSite | None:
    directory = Path(data) / "secure"
    if not secure:
        # A cluster that was secured is not served to everyone because an option was forgotten.
        if (directory / "passwords.properties").exists():
            raise click.UsageError(
                f"the data in {data} are of a cluster with --secure: start it with --secure, or remove "
                f"{directory} to serve them to everyone"
            )
        return None
    from penstock.cli.up.secure import SecureSite, check_settings
    from penstock.config.listeners import Listener

    names = [host, "localhost", "127.0.0.1", "::1"]
    advertised = map(Listener.parse, given.get("advertised.listeners", "").split(","))
    names += [one.host for one in advertised if one is not None]
    hosts = [name for name in dict.fromkeys(names) if name not in ("0.0.0.0", "::", "")]
    os.umask(0o077)  # also the records and the users' keys are the owner's alone
    site = SecureSite(directory, hosts)
    check_settings(given, site.broker_settings())
    return site


def _check_cluster(brokers: int, host: str, port: int, settings: dict[str, str]) -> None:
    from penstock.cli.up.brokers import OWN_SETTINGS

    for name in OWN_SETTINGS:
        if name in settings:
            raise click.UsageError(
                f"--set {name}: each of the {brokers} brokers has its own; "
                "for settings broker by broker start each with `penstock broker`"
            )
    if host in ("0.0.0.0", "::", ""):
        raise click.UsageError(f"--host {host or repr('')} is every address: with --brokers name one of them")
    if port and port + brokers - 1 > 65535:
        raise click.UsageError(f"--port {port}: not enough ports after it for {brokers} brokers")


def _companions(
    host: str, registry_port: int | None, connect_port: int | None, secure: SecureSite | None
) -> list[Beside]:
    """The processes beside the broker; one whose extra is not installed is left out."""
    from importlib.util import find_spec

    found: list[Beside] = []
    for name, key, port, early in (
        ("schema registry", "registry", registry_port, True),
        ("Connect worker", "connect", connect_port, False),
    ):
        if port is None:
            continue
        missing = [module for module in _NEEDS if find_spec(module) is None]
        if missing:
            click.echo(f"{name} not started: {MissingExtra('it', missing[0], key)}", err=True)
            continue
        from penstock.cli.up.companion import Companion

        found.append(Companion(name, key, _command(key, host, port, secure), early=early))
    return found


def _console(host: str, port: int, secure: SecureSite | None) -> list[Beside]:
    """The web console, left out where its extra is not installed."""
    from importlib.util import find_spec

    missing = [module for module in ("nicegui", *_NEEDS) if find_spec(module) is None]
    if missing:
        click.echo(f"web console not started: {MissingExtra('it', missing[0], 'console')}", err=True)
        return []
    from penstock.cli.up.on_demand import OnDemand

    more, environment = ([], {}) if secure is None else secure.console_options()

    def command(descriptor: int) -> list[str]:
        words = ["console", "--from-parent", "--listener", str(descriptor), "--host", host, *more]
        return [sys.executable, "-m", "penstock", *words]

    scheme = "http" if secure is None else "https"
    try:
        return [OnDemand("console", host, port, command, scheme=scheme, environment=environment)]
    except PenstockError as error:
        raise CommandFailed(str(error).replace("--port", "--console-port")) from error


def _command(
    key: str, host: str, port: int, secure: SecureSite | None
) -> Callable[[dict[str, Any] | None], list[str]]:
    def command(ready: dict[str, Any] | None) -> list[str]:
        # Started again, it takes the port that its clients know.
        where = port if ready is None else int(ready[key].rpartition(":")[2])
        words = [key, "--from-parent", "--json", "--host", host, "--port", str(where)]
        words += [] if secure is None else secure.server_words(key)
        return [sys.executable, "-m", "penstock", *words]

    return command


def run_broker(
    values: dict[str, str],
    ready_file: str | None,
    announce: Any,
    companions: Sequence[Beside] = (),
    secure: SecureSite | None = None,
) -> None:
    """Run a broker in this process until a signal stops it; what prevents it is one line."""
    import asyncio

    from penstock.broker.main import run
    from penstock.config import BrokerConfig

    @asynccontextmanager
    async def alongside(state: dict[str, Any], stopping: asyncio.Event) -> AsyncIterator[None]:
        from penstock.cli.up.companion import all_beside

        if secure is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, secure.provision, state["bootstrap"])
        async with all_beside(companions, state, stopping):
            if secure is not None:
                state |= secure.write_clients(state)
            yield

    try:
        code = run(
            BrokerConfig.parse(values),
            ready_file=ready_file,
            announce=announce,
            alongside=alongside if companions or secure is not None else None,
        )
    except PenstockError as error:
        raise CommandFailed(str(error)) from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise CommandFailed(f"cannot start: {where}{error.strerror or error}") from error
    finally:
        for companion in companions:
            companion.abandon()
    if code:
        raise click.exceptions.Exit(FAILED)
