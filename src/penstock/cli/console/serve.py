"""`penstock console`: the web console of any Kafka cluster."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click

from penstock.cli.failure import FAILED, CommandFailed, needs_extra
from penstock.cli.options.serving import access_of, access_options, log_format_option
from penstock.cli.options.shared import FILE, address_options, client_of, json_option
from penstock.cli.output import emit_json
from penstock.errors import PenstockError


@click.command()
@address_options("librdkafka")
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Where the console listens; 0 takes any free port.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--name", metavar="TEXT", help="The cluster's name on the pages. Default: its bootstrap servers."
)
@click.option("--read-only", is_flag=True, help="Show everything, change nothing.")
@click.option(
    "--registry",
    metavar="URL",
    envvar="PENSTOCK_REGISTRY",
    show_envvar=True,
    help="The schema registry, for schemas and for keys and values that it describes.",
)
@click.option(
    "--registry-user",
    metavar="NAME:PASSWORD",
    envvar="PENSTOCK_REGISTRY_USER",
    show_envvar=True,
    help="User and password for the schema registry.",
)
@click.option(
    "--registry-ca",
    metavar="FILE",
    type=FILE,
    envvar="PENSTOCK_REGISTRY_CA",
    show_envvar=True,
    help="PEM: the certificate authority of the registry.",
)
@click.option(
    "--connect", metavar="URL", envvar="PENSTOCK_CONNECT", show_envvar=True, help="A Connect worker."
)
@click.option(
    "--connect-user",
    metavar="NAME:PASSWORD",
    envvar="PENSTOCK_CONNECT_USER",
    show_envvar=True,
    help="User and password for the Connect worker.",
)
@click.option(
    "--connect-ca",
    metavar="FILE",
    type=FILE,
    envvar="PENSTOCK_CONNECT_CA",
    show_envvar=True,
    help="PEM: the certificate authority of the Connect worker.",
)
@click.option(
    "--sql", metavar="URL", envvar="PENSTOCK_SQL", show_envvar=True, help="A SQL server (penstock sql serve)."
)
@click.option(
    "--sql-user",
    metavar="NAME:PASSWORD",
    envvar="PENSTOCK_SQL_USER",
    show_envvar=True,
    help="User and password for the SQL server.",
)
@click.option(
    "--sql-ca",
    metavar="FILE",
    type=FILE,
    envvar="PENSTOCK_SQL_CA",
    show_envvar=True,
    help="PEM: the certificate authority of the SQL server.",
)
@click.option(
    "--pipelines",
    metavar="DIR",
    multiple=True,
    type=click.Path(file_okay=False),
    envvar="PENSTOCK_PIPELINES",
    show_envvar=True,
    help="Pipeline projects of this machine: those in DIR and below it (repeatable).",
)
@click.option("--page", "pages", multiple=True, hidden=True, envvar="PENSTOCK_CONSOLE_PAGES",
              help="A Python module with a page of its own: of `penstock demo`.")  # fmt: skip
@click.option("--advertised-url", metavar="URL", help="How browsers reach this console, if not by --host.")
@click.option(
    "--allow-host",
    "allowed_hosts",
    metavar="NAME",
    multiple=True,
    envvar="PENSTOCK_ALLOW_HOST",
    show_envvar=True,
    help="A name under which browsers reach it, in addition to localhost and its address: NAME, *.NAME, "
    "or * for any (repeatable).",
)
@access_options("console", "servers")
@click.option(
    "--ready-file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Written as JSON (console, pid) when it listens.",
)
@click.option(
    "--from-parent", is_flag=True, hidden=True, help="Of `penstock up`: the addresses come on stdin."
)
@click.option("--listener", type=int, hidden=True, help="Of `penstock up`: the socket that listens.")
@log_format_option
@json_option
def console(
    bootstrap: str,
    client_config: str | None,
    client_settings: tuple[str, ...],
    registry: str | None,
    registry_user: str | None,
    registry_ca: str | None,
    connect: str | None,
    connect_user: str | None,
    connect_ca: str | None,
    sql: str | None,
    sql_user: str | None,
    sql_ca: str | None,
    ready_file: str | None,
    from_parent: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Run the web console of a Kafka cluster.

    It shows topics, messages, groups, schemas, connectors, pipelines and SQL queries, and changes them.
    People log in with the users of --auth-file. Their roles decide what they may do: `read` sees everything,
    `write` also produces, creates and registers, `admin` does everything. Without --auth-file, everyone who
    reaches the port is an administrator. It runs until Ctrl-C or SIGTERM.

    \b
      penstock console --bootstrap kafka-1:9092 --registry http://127.0.0.1:8081
      penstock console --sql http://127.0.0.1:8088 --pipelines ~/pipelines
      penstock console --read-only --auth-file users --tls-cert cert.pem --tls-key key.pem --host 0.0.0.0
    """
    with needs_extra("the console", "console"):
        from penstock.console.main import run
        from penstock.console.settings import ConnectSettings, Settings, SqlSettings
        from penstock.registry.client import RegistrySettings
    access = access_of(given)
    access.pop("tls_ca")
    bootstrap, client = client_of(bootstrap, client_config, client_settings)
    parent = None
    if from_parent:
        # `penstock up` sends the addresses when its broker has one, and closes the pipe when it is gone.
        parent = sys.stdin.fileno()
        text = os.read(parent, 4096).decode().strip()
        if not text:
            return
        where = json.loads(text) if text.startswith("{") else {"bootstrap": text}
        bootstrap = where["bootstrap"]
        registry, connect = where.get("registry", registry), where.get("connect", connect)
    client["bootstrap.servers"] = bootstrap

    def announce(ready: dict[str, Any]) -> None:
        if as_json:
            emit_json(ready)
        elif not from_parent:
            click.echo(f"console at {ready['console']}, for {bootstrap}")

    settings = Settings(
        client=client,
        registry=RegistrySettings(registry, registry_user, registry_ca) if registry else None,
        connect=ConnectSettings(connect, connect_user, connect_ca) if connect else None,
        sql=SqlSettings(sql, sql_user, sql_ca) if sql else None,
        **access,
        **given,
    )
    try:
        code = run(settings, ready_file=ready_file, announce=announce, parent=parent)
    except PenstockError as error:
        raise CommandFailed(str(error)) from error
    if code:
        raise click.exceptions.Exit(FAILED)
