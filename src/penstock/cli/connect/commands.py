"""`penstock connect`: start a worker, or see and change the connectors of one that runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import click

from penstock.admin.connect_worker import ConnectWorker
from penstock.cli.connect.files import read_connector
from penstock.cli.connect.serve import run_worker, worker_options
from penstock.cli.connect.tables import FORMATS, VALUES, table_config
from penstock.cli.failure import CommandFailed
from penstock.cli.options.properties import key_values
from penstock.cli.options.shared import FILE, json_option
from penstock.cli.output import emit_json, note, table
from penstock.cli.schemas.registry_options import RegistryAt, registry_options

DEFAULT_URL = "http://127.0.0.1:8083"
_FIRST_STATUS_SECONDS = 10.0
_USER, _CA = "PENSTOCK_CONNECT_USER", "PENSTOCK_CONNECT_CA"


@click.group(invoke_without_command=True)
@worker_options()
@click.pass_context
def connect(context: click.Context, /, **given: Any) -> None:
    """Run a Connect worker, or manage the connectors of one.

    Without a command it runs a worker with Kafka Connect's REST API, until Ctrl-C or SIGTERM. Start several
    with the same --group: they share the work, and take over from one that dies. The commands send requests
    to a running worker at --url; they log in as PENSTOCK_CONNECT_USER (NAME:PASSWORD), and trust the
    authority in the file PENSTOCK_CONNECT_CA.

    \b
      penstock connect --bootstrap kafka-1:9092
      penstock connect create lines connector.class=FileStreamSource file=/var/log/app.log topic=lines
      penstock connect status lines
    """
    if context.invoked_subcommand is None:
        run_worker(**given)


def url_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--url",
        metavar="URL",
        envvar="PENSTOCK_CONNECT",
        show_envvar=True,
        default=DEFAULT_URL,
        show_default=True,
        help="A worker of the group.",
    )(command)


name_argument = click.argument("name")


def ask(url: str, method: str, path: str, body: Any = None) -> Any:
    """The JSON of the response. An error has the worker's message."""
    user, ca = os.environ.get(_USER), os.environ.get(_CA)
    return ConnectWorker(url, user, ca, hint="name another with --url").ask(method, path, body)


def _path(name: str, *more: str) -> str:
    return "/".join(["/connectors", quote(name, safe=""), *more])


@connect.command()
@click.option("--all", "everything", is_flag=True, help="Converters, transforms and predicates, too.")
@url_option
@json_option
def plugins(everything: bool, url: str, as_json: bool) -> None:
    """List the connectors that a worker can run.

    \b
      penstock connect plugins --all
    """
    found = ask(url, "GET", f"/connector-plugins?connectorsOnly={'false' if everything else 'true'}")
    if as_json:
        emit_json(found)
    else:
        table(["class", "type", "version"], [(p["class"], p["type"], p.get("version")) for p in found])


@connect.command()
@name_argument
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--file", "path", metavar="FILE", type=FILE, help="Settings from a .properties or .json file.")
@click.option("--update", is_flag=True, help="Replace the settings of a connector that exists.")
@url_option
@json_option
def create(
    name: str, settings: tuple[str, ...], path: str | None, update: bool, url: str, as_json: bool
) -> None:
    """Create a connector with these settings.

    \b
      penstock connect create lines connector.class=FileStreamSource file=app.log topic=lines
      penstock connect create lines --file lines.json --update
    """
    config = read_connector(path) if path else {}
    config |= key_values(settings, "KEY=VALUE")
    config["name"] = name
    _create(config, update, url, as_json)


def _create(config: dict[str, str], update: bool, url: str, as_json: bool) -> None:
    name = config["name"]
    if update:
        found = ask(url, "PUT", _path(name, "config"), config)
    else:
        found = ask(url, "POST", "/connectors", {"name": name, "config": config})
    if as_json:
        emit_json(found)
    else:
        _done(name, "updated" if update else "created", as_json)


@connect.command("table")
@click.argument("topic")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--format",
    "table_format",
    type=click.Choice(FORMATS),
    default="delta",
    show_default=True,
    help="The table format.",
)
@click.option(
    "--to", "place", metavar="DIR|URL", required=True, help="A directory or s3://bucket/prefix of the worker."
)
@click.option("--name", metavar="NAME", help="The name of the connector. Default: table-TOPIC.")
@click.option(
    "--values",
    type=click.Choice(VALUES),
    default="registry",
    show_default=True,
    help="The encoding of values: that of the registered schema, JSON without a schema, or text.",
)
@click.option("--update", is_flag=True, help="Replace the settings of a connector that exists.")
@registry_options
@url_option
@json_option
def keep_table(
    topic: str,
    settings: tuple[str, ...],
    table_format: str,
    place: str,
    name: str | None,
    values: str,
    update: bool,
    registry: RegistryAt,
    url: str,
    as_json: bool,
) -> None:
    """Keep a Delta or Iceberg table of a topic, exactly once.

    The columns are those of the schema that is registered for TOPIC-value, and follow it when it changes.
    The table also has kafka_key, kafka_partition, kafka_offset and kafka_timestamp. Records without a value
    have no row. Further settings are those of the connector TableSink.

    \b
      penstock connect table orders --format delta --to /data/tables
      penstock connect table orders --format iceberg --to /data/warehouse
      penstock connect table events --to s3://bucket/tables --values json s3.region=eu-central-1
    """
    config = table_config(topic, table_format, place, values, registry)
    config |= key_values(settings, "KEY=VALUE")
    config["name"] = name or f"table-{topic}"
    _create(config, update, url, as_json)


@connect.command("list")
@url_option
@json_option
def list_connectors(url: str, as_json: bool) -> None:
    """List connectors with the states of their tasks.

    \b
      penstock connect list
    """
    found = ask(url, "GET", "/connectors?expand=info&expand=status")
    if as_json:
        emit_json(found)
        return
    rows = []
    for name, each in sorted(found.items()):
        status = each.get("status") or {}
        tasks = [task["state"] for task in status.get("tasks", ())]
        counts = ", ".join(f"{tasks.count(state)} {state}" for state in dict.fromkeys(tasks))
        config = each["info"]["config"]
        rows.append(
            (
                name,
                each["info"]["type"],
                config.get("connector.class"),
                (status.get("connector") or {}).get("state"),
                counts,
            )
        )
    table(["name", "type", "class", "state", "tasks"], rows)


@connect.command()
@name_argument
@url_option
@json_option
def status(name: str, url: str, as_json: bool) -> None:
    """Show where a connector and its tasks run, their errors, and how far a snapshot is.

    \b
      penstock connect status lines
    """
    found = _status(url, name)
    if as_json:
        emit_json(found)
        return
    rows: list[tuple[Any, ...]] = [
        ("connector", found["connector"]["state"], found["connector"]["worker_id"])
    ]
    rows += [(f"task {task['id']}", task["state"], task["worker_id"]) for task in found["tasks"]]
    table(["what", "state", "worker"], rows)
    for task in found["tasks"]:
        snapshot = task.get("progress", {}).get("snapshot")
        if snapshot:
            estimate = snapshot["estimated_rows"]
            about = "" if estimate is None else f" of about {estimate:,}"
            note(
                f"task {task['id']}: snapshot of {snapshot['table']} (table {snapshot['table_number']} of "
                f"{snapshot['tables']}): {snapshot['rows']:,}{about} rows"
            )
    for label, each in (("connector", found["connector"]), *((f"task {t['id']}", t) for t in found["tasks"])):
        if each.get("trace"):
            note(f"{label}: {each['trace'].rstrip()}")


def _status(url: str, name: str) -> Any:
    """Waits a moment for the status of a connector that was just created."""
    deadline = time.monotonic() + _FIRST_STATUS_SECONDS
    while True:
        try:
            return ask(url, "GET", _path(name, "status"))
        except CommandFailed:
            if time.monotonic() > deadline or name not in ask(url, "GET", "/connectors"):
                raise
        time.sleep(0.1)


def _changes(verb: str, doc: str) -> None:
    def change(name: str, url: str, as_json: bool) -> None:
        ask(url, "PUT", _path(name, verb))
        _done(name, f"{verb} is requested", as_json)

    change.__doc__ = f"{doc}\n\n\b\n  penstock connect {verb} lines"
    connect.command(verb)(name_argument(url_option(json_option(change))))


def _done(name: str, what: str, as_json: bool) -> None:
    if as_json:
        emit_json({"connector": name, "done": what})
    else:
        note(f"Connector {name}: {what}.")


_changes("pause", "Pause a connector: its tasks stay assigned and process nothing.")
_changes("resume", "Resume a connector that is paused or stopped.")
_changes("stop", "Stop a connector and its tasks; its offsets can then be changed.")


@connect.command()
@name_argument
@click.option("--task", type=click.IntRange(0), help="Only this task.")
@click.option("--tasks", "include_tasks", is_flag=True, help="The tasks, too.")
@click.option("--failed", "only_failed", is_flag=True, help="Only failed connectors and tasks.")
@url_option
@json_option
def restart(
    name: str, task: int | None, include_tasks: bool, only_failed: bool, url: str, as_json: bool
) -> None:
    """Restart a connector, one of its tasks, or all that failed.

    \b
      penstock connect restart lines --tasks --failed
    """
    if task is not None:
        ask(url, "POST", _path(name, "tasks", str(task), "restart"))
    else:
        query = f"?includeTasks={str(include_tasks).lower()}&onlyFailed={str(only_failed).lower()}"
        ask(url, "POST", _path(name, "restart") + query)
    _done(name, "restart is requested", as_json)


@connect.command()
@name_argument
@url_option
@json_option
def delete(name: str, url: str, as_json: bool) -> None:
    """Delete a connector. Its offsets are kept for a connector with the same name.

    \b
      penstock connect delete lines
    """
    ask(url, "DELETE", _path(name))
    _done(name, "deleted", as_json)


@connect.command()
@name_argument
@click.option("--reset", is_flag=True, help="Delete the offsets: the connector starts from the beginning.")
@click.option(
    "--set", "given", metavar="FILE", type=FILE, help="Set them from a JSON file, as --json prints it."
)
@url_option
@json_option
def offsets(name: str, reset: bool, given: str | None, url: str, as_json: bool) -> None:
    """Show the offsets of a connector; set or reset them while it is stopped.

    \b
      penstock connect offsets lines
      penstock connect offsets lines --reset
    """
    import json
    from pathlib import Path

    if reset and given:
        raise click.UsageError("--reset and --set exclude each other")
    if reset or given:
        if given:
            try:
                body = json.loads(Path(given).read_text(encoding="utf-8"))
            except ValueError as error:
                raise click.BadParameter(f"{given} is not JSON: {error}") from error
            found = ask(url, "PATCH", _path(name, "offsets"), body)
        else:
            found = ask(url, "DELETE", _path(name, "offsets"))
        if as_json:
            emit_json(found)
        else:
            note(found["message"])
        return
    found = ask(url, "GET", _path(name, "offsets"))
    if as_json:
        emit_json(found)
        return
    rows = [(json.dumps(each["partition"]), json.dumps(each["offset"])) for each in found["offsets"]]
    table(["partition", "offset"], rows)


@connect.command()
@click.argument("name")
@click.option(
    "--directory", metavar="DIR", type=click.Path(file_okay=False), help="The directory. Default: ./NAME."
)
@click.option("--sink", is_flag=True, help="Write a sink connector. Default: a source connector.")
@json_option
def new(name: str, directory: str | None, sink: bool, as_json: bool) -> None:
    """Write the skeleton of a connector, with a test that passes.

    \b
      penstock connect new my-source
      penstock connect new my-sink --sink
    """
    from penstock.cli.connect.skeleton import write

    written = write(name, directory, sink=sink)
    if as_json:
        emit_json({"files": written})
    else:
        for path in written:
            click.echo(path)
