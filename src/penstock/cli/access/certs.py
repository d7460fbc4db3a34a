"""`penstock certs`: a certificate authority for tests, and certificates of it, as PEM files."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.failure import CommandFailed
from penstock.cli.options.shared import json_option
from penstock.cli.output import emit_json

_HOSTS = ("localhost", "127.0.0.1", "::1")


@click.group()
def certs() -> None:
    """Create a test authority and certificates, as PEM files."""


@certs.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), default=Path("certs"))
@click.option(
    "--host",
    "hosts",
    metavar="NAME",
    multiple=True,
    help=f"A name or address of the server (repeatable).  [default: {', '.join(_HOSTS)}]",
)
@click.option("--server", metavar="NAME", default="server", show_default=True, help="The server's file.")
@click.option(
    "--client",
    "clients",
    metavar="NAME",
    multiple=True,
    help="Also create a certificate for this client (repeatable).",
)
@click.option(
    "--days",
    metavar="N",
    type=click.IntRange(1, 3650),
    default=365,
    show_default=True,
    help="How long the certificates are valid.",
)
@json_option
def create(
    directory: Path, hosts: tuple[str, ...], server: str, clients: tuple[str, ...], days: int, as_json: bool
) -> None:
    """Create a certificate authority, a server certificate and client certificates in DIRECTORY.

    ca.pem is for clients to trust. SERVER.pem and NAME.pem each have a key and its certificate, for
    `ssl.keystore.location`. An existing authority issues the new certificates. Its key, ca.key,
    is not encrypted: use it for tests and for one machine.

    \b
    penstock certs create
    penstock certs create certs --host kafka-1.example --server kafka-1 --client alice
    """
    from penstock.cli.access.authority import Authority, valid_name

    names = (server, *clients)
    for name in names:
        if not valid_name(name) or name == "ca":
            raise click.UsageError(f"'{name}' cannot be a certificate's name: use letters, digits and .@_-")
    if len(set(names)) != len(names):
        raise click.UsageError("each --server and --client needs its own name")
    try:
        authority = Authority.open(directory, "Penstock test CA", days)
        served = hosts or _HOSTS
        made = {server: str(authority.issue(directory / f"{server}.pem", served[0], served, days))}
        for client in clients:
            made[client] = str(authority.issue(directory / f"{client}.pem", client, days=days))
    except OSError as error:
        raise CommandFailed(f"{error.filename or directory}: {error.strerror}.") from error
    if as_json:
        emit_json({"ca": str(authority.certificate_file), "certificates": made})
        return
    click.echo(f"authority: {authority.certificate_file}")
    for name, path in made.items():
        what = f"server ({', '.join(served)})" if name == server else "client"
        click.echo(f"{what} {name}: {path}")
