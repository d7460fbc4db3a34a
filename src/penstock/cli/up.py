"""`penstock up`: the whole platform on this machine, for now one broker, in this process."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.failure import FAILED, CommandFailed
from penstock.cli.options import json_option
from penstock.cli.output import emit_json
from penstock.cli.properties import key_values
from penstock.errors import PenstockError


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
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on, which is also the one that clients are told.",
)
@click.option(
    "--ready-file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Written as JSON (bootstrap, brokers) when all listens.",
)
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="A broker setting by Kafka's name (repeatable).",
)
@json_option
def up(
    data: str, port: int, host: str, ready_file: str | None, settings: tuple[str, ...], as_json: bool
) -> None:
    """Start Penstock on this machine.

    It runs until Ctrl-C, which stops it cleanly.

    \b
      penstock up
      penstock up --data /tmp/p --port 0 --ready-file ready.json --set auto.create.topics.enable=false
    """
    address = f"[{host}]" if ":" in host else host
    values = {"listeners": f"PLAINTEXT://{address}:{port}", "log.dirs": data, **key_values(settings, "--set")}
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
        click.echo(f"Ready at {ready['bootstrap']}, data in {data}. Ctrl-C stops it.")

    run_broker(values, ready_file, announce)


def run_broker(values: dict[str, str], ready_file: str | None, announce: Any) -> None:
    """Run a broker in this process until a signal stops it; what prevents it is one line."""
    from penstock.broker.main import run
    from penstock.config import BrokerConfig

    try:
        code = run(BrokerConfig.parse(values), ready_file=ready_file, announce=announce)
    except PenstockError as error:
        raise CommandFailed(str(error)) from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise CommandFailed(f"cannot start: {where}{error.strerror or error}") from error
    if code:
        raise click.exceptions.Exit(FAILED)
