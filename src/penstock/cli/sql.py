"""`penstock sql`: a shell for continuous SQL over topics, and `penstock sql serve`, the server behind it."""

from __future__ import annotations

import functools
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from penstock.cli.failure import FAILED, CommandFailed, needs_extra
from penstock.cli.options.properties import key_values
from penstock.cli.options.secret_files import write_secret
from penstock.cli.options.serving import access_of, serving_options
from penstock.cli.options.shared import FILE, address_options, client_of, json_option, options
from penstock.cli.output import emit_json, note
from penstock.cli.schemas.registry_options import registry_address
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.sql.settings import EngineSettings

_START_SECONDS = 180.0
_STOP_SECONDS = 60.0
_REACH_SECONDS = 10.0
PORT = 8088


class _Where:
    """The options that say where the cluster, the registry, the storage and Spark are."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        given["bootstrap"], self._kafka = client_of(
            given["bootstrap"], given["client_config"], given["client_settings"]
        )

    def words(self) -> list[str]:
        """As a command line of a server."""
        given = self._given
        words = ["-b", given["bootstrap"], "--data", str(given["data"]), "--master", given["master"]]
        words += ["--no-registry"] if given["no_registry"] else ["--registry", given["registry"]]
        for option in ("client_config", "registry_user", "registry_ca", "registry_cert", "registry_key"):
            if given[option] is not None:
                words += [f"--{option.replace('_', '-')}", given[option]]
        for setting in given["client_settings"]:
            words += ["-X", setting]
        for setting in given["conf"]:
            words += ["--conf", setting]
        return words

    def check(self) -> None:
        """Said at once, and not after Spark has started: that there is no broker."""
        from penstock.admin.cluster import Cluster
        from penstock.client.librdkafka_names import translate

        Cluster(self._given["bootstrap"], translate(self._kafka), timeout=_REACH_SECONDS).topics()

    def settings(self, *, python_functions: bool, as_user: bool) -> EngineSettings:
        from penstock.client.settings import kafka_names
        from penstock.sql.settings import EngineSettings

        given = self._given
        kafka = dict(self._kafka)
        named = {
            "schema.registry.basic.auth.user.info": given["registry_user"],
            "schema.registry.ssl.ca.location": given["registry_ca"],
            "schema.registry.ssl.certificate.location": given["registry_cert"],
            "schema.registry.ssl.key.location": given["registry_key"],
        }
        data = str(given["data"])
        return EngineSettings(
            bootstrap=given["bootstrap"],
            registry_url=None if given["no_registry"] else given["registry"],
            storage=f"{data.rstrip('/')}/sql" if "://" in data else str(Path(data).absolute() / "sql"),
            kafka=kafka_names(kafka),
            registry={name: value for name, value in named.items() if value is not None},
            master=given["master"],
            conf=key_values(given["conf"], "--conf"),
            python_functions=python_functions,
            as_user=as_user,
        )


_WHERE = options(
    address_options("client"),
    registry_address("The schema registry with the types of topics."),
    click.option("--no-registry", is_flag=True, help="Use no registry: only declared streams and tables."),
    click.option(
        "--data",
        metavar="DIR",
        envvar="PENSTOCK_DATA",
        show_envvar=True,
        default="data",
        show_default=True,
        help="Where queries keep their checkpoints: below DIR/sql. Servers of one group share it.",
    ),
    click.option(
        "--master",
        metavar="URL",
        default="local[*]",
        show_default=True,
        help="Where Spark runs: local[N], spark://…, yarn, k8s://…",
    ),
    click.option("--conf", metavar="KEY=VALUE", multiple=True, help="A Spark setting (repeatable)."),
)


def _where_options(command: Callable[..., None]) -> Callable[..., None]:
    names = [
        *("bootstrap", "client_config", "client_settings", "registry", "no_registry", "registry_user"),
        *("registry_ca", "registry_cert", "registry_key", "data", "master", "conf"),
    ]

    @functools.wraps(command)
    def with_where(*args: Any, **kwargs: Any) -> None:
        where = _Where({name: kwargs.pop(name) for name in names})
        command(*args, where=where, **kwargs)

    return _WHERE(with_where)


@click.group(invoke_without_command=True)
@click.option(
    "--server",
    metavar="URL",
    envvar="PENSTOCK_SQL",
    show_envvar=True,
    help="A SQL server. Without it, one is started for as long as this command runs.",
)
@click.option(
    "--server-user",
    metavar="NAME:PASSWORD",
    envvar="PENSTOCK_SQL_USER",
    show_envvar=True,
    help="User and password for the SQL server; or a bearer token in PENSTOCK_SQL_TOKEN.",
)
@click.option(
    "--server-ca",
    metavar="FILE",
    type=FILE,
    envvar="PENSTOCK_SQL_CA",
    show_envvar=True,
    help="The authority of the server's certificate, PEM.",
)
@click.option(
    "--execute",
    "-e",
    "statements",
    metavar="SQL",
    multiple=True,
    help="Run this statement and exit (repeatable).",
)
@click.option(
    "--file",
    "-f",
    "files",
    metavar="FILE",
    multiple=True,
    type=FILE,
    help="Run the statements of a file first (repeatable).",
)
@click.option(
    "--set", "properties", metavar="KEY=VALUE", multiple=True, help="As SET: a property (repeatable)."
)
@click.option(
    "--define", "variables", metavar="NAME=VALUE", multiple=True, help="As DEFINE: a variable (repeatable)."
)
@click.option(
    "--history",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the prompt's history.  [default: ~/.penstock_sql_history]",
)
@_where_options
@json_option
@click.pass_context
def sql(
    context: click.Context,
    where: _Where,
    server: str | None,
    server_user: str | None,
    server_ca: str | None,
    statements: tuple[str, ...],
    files: tuple[str, ...],
    properties: tuple[str, ...],
    variables: tuple[str, ...],
    history: Path | None,
    as_json: bool,
) -> None:
    """Query topics in SQL, continuously or once.

    Opens a prompt on a terminal; otherwise runs the statements on stdin. Files run before -e, and the first
    error ends the run. With --json each line of the server's answer is printed as it is.

    \b
      penstock sql
      penstock sql -e "SELECT region, count(*) FROM orders GROUP BY region;"
      penstock sql --server http://127.0.0.1:8088 -f views.sql
      echo "SHOW QUERIES;" | penstock sql --json
    """
    if context.invoked_subcommand is not None:
        for parameter in context.command.params:
            name = parameter.name or ""
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise click.UsageError(
                    f"{parameter.opts[-1]} is the shell's here: write it after {context.invoked_subcommand}"
                )
        return
    with needs_extra("SQL", "sql"):
        import prompt_toolkit  # noqa: F401 - said before a server is started

        from penstock.sql.shell.client import Session
        from penstock.sql.shell.printing import is_terminal
        from penstock.sql.shell.shell import Shell, run_all
    given = (key_values(properties, "--set"), key_values(variables, "--define"))
    texts = [*(_text_of(each) for each in files), *statements]
    if not texts and not is_terminal():
        texts = [sys.stdin.read()]
    with _server(server, server_user, server_ca, where) as (url, user, ca):
        session = Session(url, *given, user=user, token=os.environ.get("PENSTOCK_SQL_TOKEN"), ca=ca)
        shell = Shell(session, as_json=as_json)
        try:
            if texts:
                went_well = run_all(shell, texts)
            else:
                shell.prompt(history or Path.home() / ".penstock_sql_history")
                went_well = True
        finally:
            session.close()
    if not went_well:
        raise click.exceptions.Exit(FAILED)


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{path} is not text in UTF-8 (byte {error.start}).") from error


@contextmanager
def _server(
    url: str | None, user: str | None, ca: str | None, where: _Where
) -> Iterator[tuple[str, str | None, str | None]]:
    """The server that was named, or one of our own, which ends with this command: its URL, user and CA."""
    if url is not None:
        yield url, user, ca
        return
    where.check()
    with tempfile.TemporaryDirectory(prefix="penstock-sql-") as directory:
        ready_file, log = Path(directory) / "ready.json", Path(directory) / "server.log"
        words = [sys.executable, "-m", "penstock", "sql", "serve", "--from-parent", "--port", "0"]
        # Who runs the server is who types the statements: nobody else on this machine has the password.
        password = secrets.token_urlsafe(24)
        write_secret(Path(directory) / "users", f"shell: {password}\n")
        # The server's own login at the cluster is that of who uses the shell.
        words += [
            "--allow-python-functions",
            "--run-as",
            "server",
            "--auth-file",
            str(Path(directory) / "users"),
        ]
        with log.open("wb") as out:
            # In a session of its own a Ctrl-C does not reach it: it is stopped by the pipe.
            process = subprocess.Popen(
                [*words, "--ready-file", str(ready_file), *where.words()],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        try:
            ready = _wait(process, ready_file, log)
            note(
                f"A SQL server of this command's own runs at {ready['sql']}; continuous queries run until it "
                "ends, unless a `penstock sql serve` goes on with them."
            )
            yield ready["sql"], f"shell:{password}", None
        finally:
            _end(process)


def _wait(process: subprocess.Popen[bytes], ready_file: Path, log: Path) -> dict[str, Any]:
    from rich.console import Console

    deadline = time.monotonic() + _START_SECONDS
    with Console(stderr=True).status("Starting a SQL server (Spark takes some seconds)"):
        while not ready_file.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise CommandFailed(f"the SQL server did not start: {_last_words(log)}")
            time.sleep(0.05)
    ready: dict[str, Any] = json.loads(ready_file.read_text())
    return ready


def _last_words(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("penstock sql:", "Error:"))]
    words = (errors or lines or ["it printed nothing"])[-1]
    return words.removeprefix("penstock sql:").removeprefix("Error:").strip()


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    try:
        process.stdin.close()
        process.wait(_STOP_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt, OSError):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


@sql.command()
@_where_options
@serving_options(
    what="server",
    others="servers",
    of_one="cluster",
    topic="the topic __penstock_sql",
    port=PORT,
    group="penstock-sql",
    ready="(sql, pid, leads) when the server accepts statements",
)
@click.option(
    "--max-requests",
    metavar="N",
    type=click.IntRange(1),
    default=256,
    show_default=True,
    help="How many requests, including push queries, may run at the same time.",
)
@click.option(
    "--allow-python-functions",
    is_flag=True,
    help="Allow CREATE FUNCTION … LANGUAGE PYTHON. Anyone who can send statements can then run code here.",
)
@click.option(
    "--run-as",
    type=click.Choice(("user", "server")),
    default="user",
    show_default=True,
    help="Whose ACLs at the cluster count for statements: the logged-in user's, or the server's.",
)
@click.option("--from-parent", is_flag=True, hidden=True, help="Of the shell: ends when stdin is closed.")
@json_option
def serve(
    where: _Where,
    ready_file: str | None,
    allow_python_functions: bool,
    run_as: str,
    from_parent: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Run a SQL server: statements over HTTP, continuous queries on Spark.

    Queries are kept in the topic __penstock_sql, and continue where they stopped when a server restarts.
    Start several on one cluster: one leads and runs them, the others forward statements and take over when
    it dies.
    It runs until Ctrl-C or SIGTERM, which stop it cleanly.

    \b
      penstock sql serve --bootstrap kafka-1:9092 --registry http://registry:8081 --data /var/lib/penstock
      curl -N --json '{"sql": "SHOW TOPICS;"}' http://127.0.0.1:8088/sql
    """
    with needs_extra("SQL", "sql"):
        from penstock.sql.server import main as server

    def announce(ready: dict[str, Any]) -> None:
        if as_json:
            emit_json(ready)
        elif not from_parent:
            click.echo(
                f"SQL server at {ready['sql']}{', which leads' if ready['leads'] else ''}. Ctrl-C stops it."
            )

    access = access_of(given)
    engine = where.settings(python_functions=allow_python_functions, as_user=run_as == "user")
    settings = server.ServerSettings(engine=engine, **access, **given)
    parent = sys.stdin.fileno() if from_parent else None
    try:
        code = server.serve(settings, ready_file=ready_file, announce=announce, parent=parent)
    except PenstockError as error:
        raise CommandFailed(str(error)) from error
    if code:
        raise click.exceptions.Exit(FAILED)
