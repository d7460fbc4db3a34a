"""`penstock users`: SCRAM users, over AlterUserScramCredentials and DescribeUserScramCredentials."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

import click

from penstock.admin.cluster import Cluster
from penstock.admin.wire_client import WireCluster
from penstock.cli.failure import CommandFailed, did_you_mean
from penstock.cli.options.secret_files import password_options, read_password
from penstock.cli.options.shared import cluster_options, json_option
from penstock.cli.output import emit_json, note, table
from penstock.credentials.scram import MAX_ITERATIONS, MIN_ITERATIONS, salted_password
from penstock.errors import error_for_code
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

_NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_NAMES = {number: name for name, number in _NUMBERS.items()}
DEFAULT_MECHANISM = "SCRAM-SHA-512"
_SALT_BYTES = 20

_mechanism_option = click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(tuple(_NUMBERS), case_sensitive=False),
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
        found = known_users(wire)
        if name not in found:
            raise CommandFailed(f"no user '{name}'.{did_you_mean(name, found)}")
        have = sorted(mechanism for mechanism, _ in found[name])
        missing = sorted(set(mechanisms) - set(have))
        if missing:
            raise CommandFailed(f"user '{name}' has no {missing[0]} password: it has {', '.join(have)}.")
        deleted = sorted(mechanisms) or have
        deletions = [Message(name=name, mechanism=_NUMBERS[mechanism]) for mechanism in deleted]
        _alter(wire, deletions, [], f"cannot delete user '{name}'")
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


def set_password(
    wire: WireCluster,
    name: str,
    password: str,
    mechanisms: Iterable[str] = (DEFAULT_MECHANISM,),
    iterations: int = MIN_ITERATIONS,
) -> None:
    """The salt is new each time; the password itself is not sent."""
    upsertions = []
    for mechanism in mechanisms:
        salt = secrets.token_bytes(_SALT_BYTES)
        upsertions.append(
            Message(
                name=name,
                mechanism=_NUMBERS[mechanism],
                iterations=iterations,
                salt=salt,
                salted_password=salted_password(mechanism, password, salt, iterations),
            )
        )
    _alter(wire, [], upsertions, f"cannot add user '{name}'")


def known_users(wire: WireCluster) -> dict[str, list[tuple[str, int]]]:
    """Mechanisms and iterations of each user."""
    answer = wire.brokers()[0].request(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, Message(users=None))
    _check(answer.error_code, answer.error_message, "cannot list users")
    found: dict[str, list[tuple[str, int]]] = {}
    for one in answer.results:
        _check(one.error_code, one.error_message, f"cannot describe user '{one.user}'")
        found[one.user] = [
            (_NAMES.get(info.mechanism, str(info.mechanism)), info.iterations)
            for info in one.credential_infos
        ]
    return found


def _alter(wire: WireCluster, deletions: list[Message], upsertions: list[Message], doing: str) -> None:
    request = Message(deletions=deletions, upsertions=upsertions)
    answer = wire.brokers()[0].request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request)
    for result in answer.results:
        _check(result.error_code, result.error_message, doing)


def _row(user: str, mechanism: str, iterations: int) -> dict[str, str | int]:
    return {"user": user, "mechanism": mechanism, "iterations": iterations}


def _check(code: int, message: str | None, doing: str) -> None:
    if code:
        raise CommandFailed(f"{doing}: {message or type(error_for_code(code)).__name__}")
