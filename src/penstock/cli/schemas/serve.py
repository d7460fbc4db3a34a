"""`penstock registry`: a schema registry on any Kafka cluster."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from penstock.cli.failure import FAILED, CommandFailed, needs_extra
from penstock.cli.options.serving import access_of, serving_options
from penstock.cli.options.shared import address_options, client_of, json_option
from penstock.cli.output import emit_json
from penstock.cli.schemas.registry_options import LEVELS
from penstock.errors import PenstockError


@click.command()
@address_options("librdkafka")
@serving_options(
    what="registry",
    others="registries",
    of_one="topic",
    topic="the topic",
    port=8081,
    group="schema-registry",
    ready="(registry, pid, topic) when it listens",
)
@click.option("--topic", default="_schemas", show_default=True, help="The topic that holds the schemas.")
@click.option(
    "--compatibility",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="BACKWARD",
    show_default=True,
    help="The level where none is set with PUT /config; the same for all registries of a topic.",
)
@click.option("--read-only", is_flag=True, help="Never become the leader.")
@click.option(
    "--from-parent", is_flag=True, hidden=True, help="Of `penstock up`: the broker is named on stdin."
)
@json_option
def registry(
    bootstrap: str,
    client_config: str | None,
    client_settings: tuple[str, ...],
    ready_file: str | None,
    from_parent: bool,
    as_json: bool,
    read_only: bool,
    **given: Any,
) -> None:
    """Run a schema registry with Confluent's REST API.

    Schemas are kept in a topic of the cluster. Start several on one topic: one is the leader and writes, all
    respond. It runs until Ctrl-C or SIGTERM, which stop it cleanly.

    \b
      penstock registry --bootstrap kafka-1:9092,kafka-2:9092
      penstock registry --port 8082 --auth-file users --tls-cert cert.pem --tls-key key.pem
    """
    with needs_extra("the schema registry", "registry"):
        from penstock.registry.main import Settings, run
    access = access_of(given)
    bootstrap, client = client_of(bootstrap, client_config, client_settings)
    parent = None
    if from_parent:
        # `penstock up` writes the address when its broker has one, and closes the pipe when it is gone.
        parent = sys.stdin.fileno()
        address = os.read(parent, 4096).decode().strip()
        if not address:
            return
        bootstrap = address
    client["bootstrap.servers"] = bootstrap

    def announce(ready: dict[str, Any]) -> None:
        if as_json:
            emit_json(ready)
        elif not from_parent:
            click.echo(f"schema registry at {ready['registry']}, schemas in {ready['topic']}")

    settings = Settings(client=client, eligible=not read_only, **access, **given)
    try:
        code = run(settings, ready_file=ready_file, announce=announce, parent=parent)
    except PenstockError as error:
        raise CommandFailed(str(error)) from error
    if code:
        raise click.exceptions.Exit(FAILED)
