"""`penstock pipeline`: projects of Spark's declarative pipelines, run once or kept running."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failure import FAILED, CommandFailed
from penstock.cli.options.shared import json_option
from penstock.cli.output import emit_json, note, table
from penstock.cli.pipelines.connectors import COLUMNS as CONNECTOR_COLUMNS
from penstock.cli.pipelines.connectors import is_well
from penstock.cli.pipelines.connectors import row as connector_row
from penstock.cli.pipelines.connectors import states as connector_states
from penstock.cli.pipelines.projects import one_line, open_project, project_argument
from penstock.cli.pipelines.run import run
from penstock.cli.pipelines.view import COLUMNS, offsets, problems, row
from penstock.errors import PenstockError
from penstock.pipelines.project.project import find_projects

if TYPE_CHECKING:
    pass

_JVM_GONE_SECONDS = 30.0
_BOOTSTRAP = "127.0.0.1:9092"


@click.group()
def pipeline() -> None:
    """Run Spark pipelines, once or continuously.

    A project is a `spark-pipeline.yml` with Python and SQL files in the format of Spark's
    declarative pipelines; `spark-pipelines` runs it as well. PROJECT is its directory, or one in it;
    the current one by default.
    """


pipeline.add_command(run)


@pipeline.command()
@click.argument("name")
@click.option("--bootstrap", "-b", metavar="HOST:PORT", envvar="PENSTOCK_BOOTSTRAP", default=_BOOTSTRAP,
              show_default=True, help="The brokers that the commands shown at the end use.")  # fmt: skip
@click.option(
    "--source", metavar="TOPIC", default="orders", show_default=True, help="The topic that is read."
)
@click.option(
    "--sink", metavar="TOPIC", default="alerts", show_default=True, help="The topic that is written."
)
@click.option(
    "--from",
    "database",
    type=click.Choice(["postgres", "mysql"]),
    help="Read a table of a database: the project declares the connector, too.",
)
@json_option
def init(name: str, bootstrap: str, source: str, sink: str, database: str | None, as_json: bool) -> None:
    """Create a project that runs, with an example in Python and one in SQL.

    With --from the project has a connector that captures the changes of a table `orders`: edit
    `connectors/NAME.json` and the columns in `transformations/` to fit your database.

    \b
      penstock pipeline init shop
      penstock pipeline init shop --from postgres
    """
    from penstock.pipelines.project.database_template import make_database_project
    from penstock.pipelines.project.template import make_project

    with one_line():
        if database:
            files = make_database_project(Path.cwd(), name, database)
        else:
            files = make_project(Path.cwd(), name, source, sink)
    if as_json:
        emit_json({"name": name, "files": [str(file) for file in files]})
        return
    for file in files:
        click.echo(file.relative_to(Path.cwd()))
    if database:
        note(
            f"Edit {name}/connectors/{name}.json, then:\n"
            f"  penstock up                    # brokers and a Connect worker, in another terminal\n"
            f"  penstock pipeline run {name}\n"
            f"  penstock pipeline status {name}"
        )
        return
    where = "" if bootstrap == _BOOTSTRAP else f"  export PENSTOCK_BOOTSTRAP={bootstrap}\n"
    note(
        f"Try it:\n{where}  penstock topics create {source}\n"
        f"  penstock topics create {sink}\n"
        f"  penstock pipeline run {name}"
    )


@pipeline.command("list")
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False), default=Path("."))
@json_option
def list_(directory: Path, as_json: bool) -> None:
    """List the projects in a directory and below it, and whether they run.

    \b
      penstock pipeline list
    """
    found: list[dict[str, Any]] = []
    for spec in find_projects(directory):
        try:
            project, state = open_project(spec)
        except PenstockError as error:
            found.append({"name": None, "project": str(spec.parent), "state": "broken", "error": str(error)})
            continue
        status = state.status()
        flows = status["flows"]
        found.append(
            {
                "name": project.name,
                "project": str(project.root),
                "state": status["state"],
                "flows": len(flows),
                "failed": sum(1 for flow in flows if flow.get("error")),
                "pid": state.runner().get("pid") if state.is_running() else None,
            }
        )
    if as_json:
        emit_json(found)
        return
    columns = ("name", "state", "flows", "failed", "pid", "project")
    table(columns, [[entry.get(column) for column in columns] for entry in found])
    for entry in found:
        if entry.get("error"):
            note(f"{entry['project']}: {entry['error']}")


@pipeline.command()
@project_argument
@click.option("--offsets", "show_offsets", is_flag=True, help="Show the offsets of each source.")
@json_option
def status(project: Path, show_offsets: bool, as_json: bool) -> None:
    """Show a pipeline's flows and connectors, and what is wrong with them.

    The exit code is 0 while all flows and connectors run, and 1 when the pipeline is stopped, a flow has
    failed or has a pending change, or a connector has failed.

    \b
      penstock pipeline status shop
    """
    with one_line():
        _, state = open_project(project)
        now = state.status()
    runner = state.runner()
    worker, names = state.connectors()
    connectors = connector_states(names, worker) if worker and names else []
    if as_json:
        now["connectors"] = connectors
        emit_json({**now, **{key: runner.get(key) for key in ("pid", "master", "metrics_port", "once")}})
    else:
        where = (
            f", process {runner['pid']} on {runner['master']}"
            if state.is_running() and "pid" in runner
            else ""
        )
        table(
            COLUMNS, [row(flow) for flow in now["flows"]], title=f"{now['pipeline']}: {now['state']}{where}"
        )
        if connectors:
            rows = [connector_row(each) for each in connectors]
            table(CONNECTOR_COLUMNS, rows, title=f"connectors at {worker}")
        for flow in now["flows"] if show_offsets else []:
            for source in offsets(flow):
                click.echo(f"{flow['name']}: {source['source']} at {source['end']} of {source['latest']}")
        for line in problems(now):
            note(line)
        for each in connectors:
            if each["error"]:
                note(f"{each['name']}: {each['error']}")
    if now["state"] != "running" or not all(map(is_well, connectors)):
        raise click.exceptions.Exit(FAILED)


@pipeline.command()
@project_argument
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=90.0,
    show_default=True,
    help="How long to wait until it has stopped.",
)
@json_option
def stop(project: Path, timeout: float, as_json: bool) -> None:
    """Stop a running pipeline cleanly. The next run continues from there.

    \b
      penstock pipeline stop shop
    """
    with one_line():
        opened, state = open_project(project)
        pid = state.runner().get("pid")
        state.stop(timeout)
    if as_json:
        emit_json({"pipeline": opened.name, "stopped": True, "pid": pid})
    else:
        note(f"{opened.name} has stopped")


@pipeline.command()
@click.argument("words", nargs=-1, metavar="[PROJECT] [FLOW]...")
@click.option(
    "--keep",
    is_flag=True,
    help="Empty nothing: flows whose state can be used continue with it, and with the rows that they wrote.",
)
@json_option
def apply(words: tuple[str, ...], keep: bool, as_json: bool) -> None:
    """Apply the pending changes of a running pipeline: all of them, or those of the named flows.

    A rebuild empties the flow's table and reads its sources from the start; `status` shows pending changes.
    The first word is PROJECT if it is a path that exists; for a flow of such a name, write `.` before it.

    \b
      penstock pipeline apply
      penstock pipeline apply hourly
      penstock pipeline apply shop hourly daily
    """
    named = bool(words) and Path(words[0]).exists()
    project, flows = (Path(words[0]), words[1:]) if named else (Path("."), words)
    with one_line():
        opened, state = open_project(project)
        pending = state.status().get("pending", [])
        waiting = [change["flow"] for change in pending]
        for flow in flows:
            if flow not in waiting:
                others = f"Pending: {', '.join(waiting)}" if waiting else "No changes are pending"
                raise CommandFailed(f"No pending change for flow '{flow}'. {others}")
        state.request_apply(list(flows), keep=keep)
    if as_json:
        emit_json({"pipeline": opened.name, "applied": list(flows) or waiting})
    elif waiting:
        note(f"{opened.name} applies: {', '.join(flows or waiting)}")
    else:
        note(f"{opened.name}: no changes are pending")


@pipeline.command()
@project_argument
@click.option("--follow", "-f", is_flag=True, help="Follow the log until Ctrl-C or the pipeline's end.")
@click.option(
    "--lines",
    "-n",
    metavar="N",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="How many of the last lines.",
)
@click.option("--all", "everything", is_flag=True, help="Spark's own lines too, not only the pipeline's.")
@json_option
def logs(project: Path, follow: bool, lines: int, everything: bool, as_json: bool) -> None:
    """Show the log of the current run, or of the last one.

    \b
      penstock pipeline logs shop --follow
    """
    with one_line():
        _, state = open_project(project)
    if not state.log.exists():
        raise CommandFailed(f"pipeline '{state.pipeline}' has no log: it has never run")

    def wanted(line: str) -> bool:
        return everything or " penstock: " in line

    def show(line: str) -> None:
        if as_json:
            stamp, sign, text = line.partition(" penstock: ")
            emit_json({"time": stamp, "text": text} if sign else {"time": None, "text": line})
        else:
            click.echo(line)

    with state.log.open(encoding="utf-8", errors="replace") as file:
        chosen = [line.rstrip("\n") for line in file if wanted(line)]
        if not chosen and not everything:
            file.seek(0)
            chosen = [line.rstrip("\n") for line in file]
        for line in chosen[len(chosen) - lines if lines < len(chosen) else 0 :] if lines else []:
            show(line)
        while follow:
            line = file.readline()
            if line.endswith("\n"):
                if wanted(line):
                    show(line.rstrip("\n"))
            elif not state.is_running():
                break
            else:
                time.sleep(0.2)
