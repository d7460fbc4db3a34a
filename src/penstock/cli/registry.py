"""`penstock registry`: a schema registry on any Kafka cluster."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from penstock.cli.failure import FAILED, CommandFailed
from penstock.cli.options import json_option
from penstock.cli.output import emit_json
from penstock.cli.properties import key_values, read_properties
from penstock.errors import PenstockError


@click.command()
@click.option(
    "--bootstrap",
    "-b",
    metavar="HOST:PORT",
    envvar="PENSTOCK_BOOTSTRAP",
    show_envvar=True,
    default="127.0.0.1:9092",
    show_default=True,
    help="A broker of the cluster, or several with commas.",
)
@click.option(
    "--client-config",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="A .properties file of librdkafka settings (TLS, SASL).",
)
@click.option("-X", "client_settings", metavar="KEY=VALUE", multiple=True, help="One librdkafka setting.")
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=8081,
    show_default=True,
    help="Where the registry listens; 0 takes any free port.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--topic", default="_schemas", show_default=True, help="The topic that holds the schemas.")
@click.option(
    "--group",
    default="schema-registry",
    show_default=True,
    help="The group in which the registries of one topic choose their leader.",
)
@click.option(
    "--advertised-url", metavar="URL", help="How the other registries reach this one, if not by --host."
)
@click.option("--read-only", is_flag=True, help="Never become the leader.")
@click.option(
    "--replication-factor",
    metavar="N",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Of the topic if it is made: at most as many as there are brokers.",
)
@click.option(
    "--auth-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Who may use it: `name: password`, one a line.",
)
@click.option(
    "--tls-cert", metavar="FILE", type=click.Path(exists=True, dir_okay=False), help="PEM: speak HTTPS."
)
@click.option("--tls-key", metavar="FILE", type=click.Path(exists=True, dir_okay=False), help="Its key.")
@click.option(
    "--tls-ca",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="PEM: who signed the certificates of the other registries.",
)
@click.option(
    "--max-body-bytes",
    metavar="N",
    type=click.IntRange(1024),
    default=4 << 20,
    show_default=True,
    help="The largest request body that is taken.",
)
@click.option(
    "--session-timeout-ms",
    metavar="N",
    type=click.IntRange(1000),
    default=10_000,
    show_default=True,
    help="How long a dead leader is waited for.",
)
@click.option(
    "--ready-file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Written as JSON (registry, pid, topic) when it listens.",
)
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
    tls_cert: str | None,
    tls_key: str | None,
    read_only: bool,
    **given: Any,
) -> None:
    """Run a schema registry with Confluent's REST API.

    Schemas are kept in a topic of the cluster. Start several on one topic: one leads and writes, all answer.
    It runs until Ctrl-C or SIGTERM, which stop it cleanly.

    \b
      penstock registry --bootstrap kafka-1:9092,kafka-2:9092
      penstock registry --port 8082 --auth-file users --tls-cert cert.pem --tls-key key.pem
    """
    try:
        from penstock.registry.main import Settings, run
    except ImportError as error:
        raise CommandFailed(
            f"the schema registry needs {error.name}: install it with `pip install 'penstock[registry]'`."
        ) from error
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key go together")
    client = read_properties(client_config) if client_config else {}
    client |= key_values(client_settings, "-X")
    parent = None
    if from_parent:
        # `penstock up` tells the address when its broker has one, and closes the pipe when it is gone.
        parent = sys.stdin.fileno()
        told = os.read(parent, 4096).decode().strip()
        if not told:
            return
        bootstrap = told
    client["bootstrap.servers"] = bootstrap

    def announce(ready: dict[str, Any]) -> None:
        if as_json:
            emit_json(ready)
        elif not from_parent:
            click.echo(f"schema registry at {ready['registry']}, schemas in {ready['topic']}")

    settings = Settings(
        client=client, tls_certificate=tls_cert, tls_key=tls_key, eligible=not read_only, **given
    )
    try:
        code = run(settings, ready_file=ready_file, announce=announce, parent=parent)
    except PenstockError as error:
        raise CommandFailed(str(error)) from error
    if code:
        raise click.exceptions.Exit(FAILED)
