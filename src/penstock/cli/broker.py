"""`penstock broker`: one broker with Kafka-named settings, as a server.properties has them."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli.options.properties import key_values, read_properties, resolved
from penstock.cli.options.serving import log_format_option
from penstock.cli.options.shared import json_option
from penstock.cli.output import emit_json
from penstock.cli.up.commands import run_broker


@click.command()
@click.option(
    "--config",
    "path",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="A .properties file of broker settings.",
)
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="A setting that overrides the file (repeatable).",
)
@click.option(
    "--ready-file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Written as JSON (bootstrap, brokers) when it listens.",
)
@log_format_option
@json_option
def broker(path: str | None, settings: tuple[str, ...], ready_file: str | None, as_json: bool) -> None:
    """Run one broker with Kafka-named settings.

    It runs until Ctrl-C or SIGTERM, which stop it cleanly.

    \b
      penstock broker --config server.properties --set log.dirs=/var/lib/penstock
    """
    values = read_properties(path) if path else {}
    values |= resolved(key_values(settings, "--set"))

    def announce(ready: dict[str, Any]) -> None:
        if as_json:
            emit_json(ready)
        else:
            click.echo(f"listening on {ready['bootstrap']}")

    run_broker(values, ready_file, announce)
