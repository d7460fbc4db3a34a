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
    `ssl.keystore.location`. crl.pem lists revoked certificates, for `ssl.crl.location`; see
    `penstock certs revoke`. An existing authority issues the new certificates. Its key, ca.key,
    is not encrypted: use it for tests and for one machine.

    \b
    penstock certs create
    penstock certs create certs --host kafka-1.example --server kafka-1 --client alice
    """
    from penstock.cli.access.authority import Authority, valid_name

    names = (server, *clients)
    for name in names:
        if not valid_name(name) or name in ("ca", "crl"):
            raise click.UsageError(f"'{name}' cannot be a certificate's name: use letters, digits and .@_-")
    if len(set(names)) != len(names):
        raise click.UsageError("each --server and --client needs its own name")
    try:
        authority = Authority.open(directory, "Penstock test CA", days)
        served = hosts or _HOSTS
        made = {server: str(authority.issue(directory / f"{server}.pem", served[0], served, days))}
        for client in clients:
            made[client] = str(authority.issue(directory / f"{client}.pem", client, days=days))
        revocations, _ = authority.revoke([], days)
    except OSError as error:
        raise CommandFailed(f"{error.filename or directory}: {error.strerror}.") from error
    if as_json:
        files = {"ca": str(authority.certificate_file), "crl": str(revocations)}
        emit_json({**files, "certificates": made})
        return
    click.echo(f"authority: {authority.certificate_file}")
    for name, path in made.items():
        what = f"server ({', '.join(served)})" if name == server else "client"
        click.echo(f"{what} {name}: {path}")


@certs.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--days",
    metavar="N",
    type=click.IntRange(1, 3650),
    default=365,
    show_default=True,
    help="How long the list is valid. Brokers reject all certificates of the authority when it has expired.",
)
@json_option
def revoke(directory: Path, names: tuple[str, ...], days: int, as_json: bool) -> None:
    """Revoke certificates of the authority in DIRECTORY: they are listed in its crl.pem.

    NAME is that of `penstock certs create`, or a PEM file with the certificate. Brokers with
    `ssl.crl.location` read the changed list within seconds and refuse the next handshake with such a
    certificate. Open connections continue. To renew the list, revoke one of them again.

    \b
    penstock certs revoke certs alice
    """
    from penstock.cli.access.authority import Authority, is_authority, valid_name

    if not is_authority(directory):
        raise CommandFailed(f"{directory} has no authority: `penstock certs create {directory}` makes one.")
    try:
        authority = Authority.open(directory, "", days)
        paths = [directory / f"{name}.pem" if valid_name(name) else Path(name) for name in names]
        paths = [path if path.exists() else Path(name) for path, name in zip(paths, names, strict=True)]
        file, count = authority.revoke(paths, days)
    except OSError as error:
        raise CommandFailed(f"{error.filename or directory}: {error.strerror}.") from error
    if as_json:
        emit_json({"crl": str(file), "revoked": count})
        return
    click.echo(f"revoked: {', '.join(names)}")
    click.echo(f"{file} lists {count} certificate{'s' if count != 1 else ''}")
