"""`penstock mcp`: a Model Context Protocol server on standard input and output."""

from __future__ import annotations

import os

import click

from penstock.admin.cluster import Cluster
from penstock.cli.failure import needs_extra
from penstock.cli.options.shared import FILE, Options, cluster_options, options


def _server(name: str, what: str, variable: str) -> Options:
    """The address, login and authority of a server."""
    return options(
        click.option(
            f"--{name}", metavar="URL", envvar=variable, show_envvar=True, help=f"{what}. Default: none."
        ),
        click.option(
            f"--{name}-user",
            metavar="NAME:PASSWORD",
            envvar=f"{variable}_USER",
            show_envvar=True,
            help="User and password for it.",
        ),
        click.option(
            f"--{name}-ca",
            metavar="FILE",
            type=FILE,
            envvar=f"{variable}_CA",
            show_envvar=True,
            help="PEM: its certificate authority.",
        ),
    )


@click.command()
@_server("registry", "The schema registry", "PENSTOCK_REGISTRY")
@_server("connect", "A Connect worker", "PENSTOCK_CONNECT")
@_server("sql", "A SQL server", "PENSTOCK_SQL")
@click.option(
    "--allow-writes",
    is_flag=True,
    help="Also offer to create topics, to write messages, and to run any SQL statement.",
)
@cluster_options
def mcp(
    registry: str | None,
    registry_user: str | None,
    registry_ca: str | None,
    connect: str | None,
    connect_user: str | None,
    connect_ca: str | None,
    sql: str | None,
    sql_user: str | None,
    sql_ca: str | None,
    allow_writes: bool,
    cluster: Cluster,
) -> None:
    """Let language models look at a cluster, through the Model Context Protocol.

    A program such as an editor or assistant starts this command and talks to it on standard input and output.
    It offers topics, messages, groups and their lag, transactions, and what `penstock doctor` finds; with
    --registry schemas, with --connect connectors, with --sql queries. It is read-only without --allow-writes,
    and can see and do no more than the users it logs in as.

    \b
      penstock mcp --bootstrap kafka-1:9092 --client-config client.properties --registry http://127.0.0.1:8081
    """
    with needs_extra("penstock mcp", "mcp"):
        from penstock.admin.connect_worker import ConnectWorker
        from penstock.mcp.server import serve
        from penstock.mcp.tools import Tools
        from penstock.registry.client import RegistrySettings
    cluster.reach()
    tools = Tools(
        cluster,
        RegistrySettings(registry, registry_user, registry_ca) if registry else None,
        ConnectWorker(connect, connect_user, connect_ca) if connect else None,
    )
    reading, writing = tools.reading(), tools.writing() if allow_writes else []
    if sql is not None:
        with needs_extra("SQL in penstock mcp", "sql"):
            from penstock.mcp.sql import SqlTools
            from penstock.sql.shell.client import Session
        url, token = sql, os.environ.get("PENSTOCK_SQL_TOKEN")

        def session(seconds: float) -> Session:
            return Session(url, user=sql_user, token=token, ca=sql_ca, read_timeout=seconds)

        sql_tools = SqlTools(session, may_write=allow_writes)
        (writing if allow_writes else reading).append(sql_tools.run_sql)
    try:
        serve(reading, writing, cluster.bootstrap)
    finally:
        tools.close()
