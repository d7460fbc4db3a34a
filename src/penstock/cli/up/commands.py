"""`penstock up`: the platform on this machine: a broker in this process, a schema registry and a Connect
worker beside it.

With --brokers N a cluster of processes: up_brokers.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failure import FAILED, CommandFailed
from penstock.cli.options import json_option
from penstock.cli.output import emit_json
from penstock.cli.properties import key_values
from penstock.errors import PenstockError

if TYPE_CHECKING:
    import asyncio

    from penstock.cli.up.companion import Companion

REGISTRY_PORT = 8081
CONNECT_PORT = 8083
_NEEDS = ("uvicorn", "httptools", "starlette", "httpx", "prometheus_client", "fastavro")
# One that starts alone need not wait for others: the first write would wait with it.
_DEFAULTS = {"group.initial.rebalance.delay.ms": "0"}


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
    help="The address to listen on, which is also the one that clients are told.",
)
@click.option(
    "--ready-file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Written as JSON (bootstrap, brokers, zookeeper, registry, connect) when all listens.",
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
    "--connect-port",
    metavar="N",
    type=click.IntRange(0, 65535),
    help=f"Where the Connect worker listens; 0 takes any free port.  [default: {CONNECT_PORT}, "
    "or any with --port 0]",
)
@click.option("--no-connect", is_flag=True, help="Start no Connect worker.")
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="A broker setting by Kafka's name (repeatable).",
)
@json_option
def up(
    data: str,
    port: int,
    brokers: int,
    host: str,
    ready_file: str | None,
    registry_port: int | None,
    no_registry: bool,
    connect_port: int | None,
    no_connect: bool,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Start Penstock on this machine.

    It runs until Ctrl-C, which stops it cleanly.

    \b
      penstock up
      penstock up --brokers 3
      penstock up --data /tmp/p --port 0 --ready-file ready.json --set auto.create.topics.enable=false
    """
    address = f"[{host}]" if ":" in host else host
    given = key_values(settings, "--set")
    values = {
        "listeners": f"PLAINTEXT://{address}:{port}",
        "log.dirs": data,
        **_DEFAULTS,
        **given,
    }
    if brokers > 1:
        _check_cluster(brokers, host, port, given)
    if host in ("0.0.0.0", "::", "") and "advertised.listeners" not in values:
        raise click.UsageError(
            f"--host {host or repr('')} is every address: say which one clients use, with "
            f"--set advertised.listeners=PLAINTEXT://NAME:{port}"
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
        if "connect" in ready:
            click.echo(f"Connect worker at {ready['connect']}")
        click.echo(f"Ready at {ready['bootstrap']}, data in {data}. Ctrl-C stops it.")

    if registry_port is None:
        registry_port = 0 if port == 0 else REGISTRY_PORT
    if connect_port is None:
        connect_port = 0 if port == 0 else CONNECT_PORT
    companions = _companions(
        host, None if no_registry else registry_port, None if no_connect else connect_port
    )
    if brokers > 1:
        from penstock.cli.up.brokers import run_cluster

        run_cluster(brokers, data, host, port, {**_DEFAULTS, **given}, ready_file, announce, companions)
        return
    run_broker(values, ready_file, announce, companions)


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
        raise click.UsageError(f"--port {port}: there are no {brokers} ports from there on")


def _companions(host: str, registry_port: int | None, connect_port: int | None) -> list[Companion]:
    """The processes beside the broker; one whose extra is not installed is left out."""
    from importlib.util import find_spec

    found: list[Companion] = []
    for name, key, port, early in (
        ("schema registry", "registry", registry_port, True),
        ("Connect worker", "connect", connect_port, False),
    ):
        if port is None:
            continue
        missing = [module for module in _NEEDS if find_spec(module) is None]
        if missing:
            what = f"no {name}: {missing[0]} is not installed (pip install 'penstock[{key}]')"
            click.echo(what, err=True)
            continue
        from penstock.cli.up.companion import Companion

        found.append(Companion(name, key, _command(key, host, port), early=early))
    return found


def _command(key: str, host: str, port: int) -> Callable[[dict[str, Any] | None], list[str]]:
    def command(ready: dict[str, Any] | None) -> list[str]:
        # Started again, it takes the port that its clients know.
        where = port if ready is None else int(ready[key].rpartition(":")[2])
        words = [key, "--from-parent", "--json", "--host", host, "--port", str(where)]
        return [sys.executable, "-m", "penstock", *words]

    return command


def run_broker(
    values: dict[str, str], ready_file: str | None, announce: Any, companions: Sequence[Companion] = ()
) -> None:
    """Run a broker in this process until a signal stops it; what prevents it is one line."""
    from penstock.broker.main import run
    from penstock.config import BrokerConfig

    def alongside(state: dict[str, Any], stopping: asyncio.Event) -> AbstractAsyncContextManager[None]:
        from penstock.cli.up.companion import all_beside

        return all_beside(companions, state, stopping)

    try:
        code = run(
            BrokerConfig.parse(values),
            ready_file=ready_file,
            announce=announce,
            alongside=alongside if companions else None,
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
