"""`penstock users`: SCRAM users, over AlterUserScramCredentials and DescribeUserScramCredentials."""

from __future__ import annotations

import click

from penstock.admin.access.users import (
    DEFAULT_MECHANISM,
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    delete_user,
    known_users,
    set_password,
)
from penstock.admin.cluster import Cluster
from penstock.admin.wire_client import WireCluster
from penstock.cli.options.secret_files import password_options, read_password
from penstock.cli.options.shared import cluster_options, json_option
from penstock.cli.output import emit_json, note, table

_mechanism_option = click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(MECHANISMS, case_sensitive=False),
    multiple=True,
    help="For logins with this mechanism (repeatable).",
)


@click.group()
def users() -> None:
    """Add, list and delete users that log in with a password (SCRAM)."""


@users.command()
@click.argument("name")
@password_options
@_mechanism_option
@click.option(
    "--iterations",
    metavar="N",
    type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS),
    default=MIN_ITERATIONS,
    show_default=True,
    help="How often the password is hashed.",
)
@json_option
@cluster_options
def add(
    name: str,
    password_file: str | None,
    password_env: str | None,
    mechanisms: tuple[str, ...],
    iterations: int,
    as_json: bool,
    cluster: Cluster,
) -> None:
    """Add a user, or give a user a new password.

    Without an option, prompts for the password. Only a salted hash is sent. The default mechanism is
    SCRAM-SHA-512. On a cluster with ACLs, a new user may do nothing until `penstock acls allow` allows it.

    \b
    penstock users add alice
    penstock users add alice --password-file alice.password
    """
    password = read_password(name, password_file, password_env)
    chosen = mechanisms or (DEFAULT_MECHANISM,)
    with WireCluster(cluster) as wire:
        set_password(wire, name, password, chosen, iterations)
    if as_json:
        emit_json([_row(name, mechanism, iterations) for mechanism in chosen])
    else:
        click.echo(f"User '{name}' can log in with {' and '.join(chosen)}.")


@users.command("list")
@json_option
@cluster_options
def list_users(as_json: bool, cluster: Cluster) -> None:
    """List all users and their mechanisms.

    \b
      penstock users list
    """
    with WireCluster(cluster) as wire:
        found = known_users(wire)
    rows = [(user, *one) for user, credentials in sorted(found.items()) for one in sorted(credentials)]
    if as_json:
        emit_json([_row(*row) for row in rows])
    elif rows:
        table(("user", "mechanism", "iterations"), rows)
    else:
        note("No users.")


@users.command()
@click.argument("name")
@_mechanism_option
@json_option
@cluster_options
def delete(name: str, mechanisms: tuple[str, ...], as_json: bool, cluster: Cluster) -> None:
    """Delete a user, or only its login with a mechanism.

    Existing sessions continue until they expire (connections.max.reauth.ms). New logins fail immediately.

    \b
      penstock users delete alice
    """
    with WireCluster(cluster) as wire:
        deleted = delete_user(wire, name, mechanisms)
    if as_json:
        emit_json([{"user": name, "mechanism": mechanism} for mechanism in deleted])
    else:
        click.echo(f"User '{name}' can no longer log in with {' and '.join(deleted)}.")


@users.command("hash")
@click.argument("name")
@password_options
@click.option(
    "--role",
    type=click.Choice(("read", "write", "admin")),
    help="What the user may do on HTTP servers.  [default: everything]",
)
@json_option
def hash_password(
    name: str, password_file: str | None, password_env: str | None, role: str | None, as_json: bool
) -> None:
    """Print the line of a user for a users file, with a salted hash of the password.

    Such files are for the registry, the SQL server and metrics (--auth-file), and, without a role, for PLAIN
    on brokers (penstock.sasl.plain.users.file). Needs no cluster.

    \b
    penstock users hash alice --role write >> users
    """
    from penstock.credentials.users_file import hashed

    if ":" in name or "," in name or name != name.strip() or name[:1] in ("", "#", "!"):
        raise click.UsageError(f"'{name}' cannot be a name in a users file")
    password = read_password(name, password_file, password_env)
    line = f"{name}: {hashed(password)}{f', {role}' if role else ''}"
    if as_json:
        emit_json({"user": name, "line": line})
    else:
        click.echo(line)


def _row(user: str, mechanism: str, iterations: int) -> dict[str, str | int]:
    return {"user": user, "mechanism": mechanism, "iterations": iterations}
