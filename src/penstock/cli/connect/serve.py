"""`penstock connect` without a command: a worker on any Kafka cluster."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from penstock.cli.failure import FAILED, CommandFailed, needs_extra
from penstock.cli.options.properties import key_values, read_properties
from penstock.cli.options.serving import access_of, serving_options
from penstock.cli.options.shared import FILE, Options, address_options, client_of, json_option, options
from penstock.cli.output import emit_json
from penstock.errors import PenstockError


def worker_options() -> Options:
    return options(
        address_options("librdkafka"),
        serving_options(
            what="worker",
            others="workers",
            of_one="cluster",
            topic="the three state topics",
            port=8083,
            group="connect-cluster",
            ready="(connect, pid, group) when it listens",
        ),
        click.option(
            "--config",
            "config_file",
            metavar="FILE",
            type=FILE,
            help="A worker's .properties file, with Kafka Connect's names.",
        ),
        click.option(
            "--set",
            "settings",
            metavar="KEY=VALUE",
            multiple=True,
            help="A worker setting by Kafka Connect's name (repeatable).",
        ),
        click.option(
            "--standalone",
            is_flag=True,
            help="One worker without a group: connectors from --connector, offsets in --offsets.",
        ),
        click.option(
            "--connector",
            "connector_files",
            metavar="FILE",
            type=FILE,
            multiple=True,
            help="With --standalone: a connector's .properties or .json file (repeatable).",
        ),
        click.option(
            "--offsets",
            "offsets_directory",
            metavar="DIR",
            type=click.Path(file_okay=False),
            help="With --standalone: where source offsets are kept.",
        ),
        click.option(
            "--from-parent", is_flag=True, hidden=True, help="Of `penstock up`: the broker is named on stdin."
        ),
        json_option,
    )


def run_worker(
    *,
    bootstrap: str,
    client_config: str | None,
    client_settings: tuple[str, ...],
    group: str,
    ready_file: str | None,
    config_file: str | None,
    settings: tuple[str, ...],
    standalone: bool,
    connector_files: tuple[str, ...],
    offsets_directory: str | None,
    from_parent: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Run a worker until a signal stops it."""
    with needs_extra("Connect", "connect"):
        from penstock.connect.worker.main import run
        from penstock.connect.worker.options import Options as WorkerOptions
    access = access_of(given)
    properties = read_properties(config_file) if config_file else {}
    properties |= key_values(settings, "--set")
    if "bootstrap.servers" in properties:
        context = click.get_current_context()
        if context.get_parameter_source("bootstrap") is click.core.ParameterSource.DEFAULT:
            bootstrap = properties["bootstrap.servers"]
    bootstrap, client = client_of(bootstrap, client_config, client_settings)
    parent = None
    if from_parent:
        # `penstock up` sends the address when its broker has one, and closes the pipe when it is gone.
        parent = sys.stdin.fileno()
        address = os.read(parent, 4096).decode().strip()
        if not address:
            return
        bootstrap = address
    client["bootstrap.servers"] = bootstrap
    if offsets_directory:
        properties["offset.storage.file.filename"] = offsets_directory
    properties.setdefault("group.id", group)
    if connector_files and not standalone:
        raise click.UsageError(
            "--connector requires --standalone; for a group of workers use `penstock connect create`"
        )
    from penstock.cli.connect.files import read_connector

    worker = WorkerOptions(
        client=client,
        properties=properties,
        standalone=standalone,
        connectors=tuple(read_connector(path) for path in connector_files),
        **access,
        **given,
    )

    def announce(ready: dict[str, Any]) -> None:
        if as_json:
            emit_json(ready)
        elif not from_parent:
            click.echo(f"Connect worker at {ready['connect']}, group {ready['group']}")

    try:
        code = run(worker, ready_file=ready_file, announce=announce, parent=parent)
    except PenstockError as error:
        raise CommandFailed(str(error)) from error
    if code:
        raise click.exceptions.Exit(FAILED)
