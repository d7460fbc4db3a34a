"""`penstock pipeline`: projects of Spark's declarative pipelines, run once or kept running."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from penstock.cli.failure import FAILED, CommandFailed
from penstock.cli.options import FILE, json_option
from penstock.cli.output import emit_json, note, table
from penstock.cli.pipelines.view import COLUMNS, LiveTable, event_lines, offsets, problems, row
from penstock.cli.properties import key_values
from penstock.errors import PenstockError
from penstock.pipelines.project import Project, find_projects, load_project
from penstock.pipelines.state import StateDirectory

if TYPE_CHECKING:
    from penstock.pipelines.flow_state import RunOptions
    from penstock.web.metrics import MetricsSettings

_JVM_GONE_SECONDS = 30.0
_BOOTSTRAP = "127.0.0.1:9092"

project_argument = click.argument(
    "project", type=click.Path(path_type=Path), default=Path("."), required=False
)


@contextmanager
def _one_line() -> Iterator[None]:
    """What a pipeline or its project gets wrong, as one line and exit code 1."""
    try:
        yield
    except PenstockError as error:
        raise CommandFailed(str(error)) from error
    except ModuleNotFoundError as error:
        raise CommandFailed(
            f"no module {error.name}: pipelines need `pip install penstock[spark]`"
        ) from error


def _open(where: Path) -> tuple[Project, StateDirectory]:
    project = load_project(where)
    return project, StateDirectory(project.state_directory, project.name)


@click.group()
def pipeline() -> None:
    """Run Spark pipelines, once or all the time.

    A project is a `spark-pipeline.yml` with Python and SQL files in the format of Spark's
    declarative pipelines; `spark-pipelines` runs it as well. PROJECT is its directory, or one in it;
    the current one by default.
    """


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
@json_option
def init(name: str, bootstrap: str, source: str, sink: str, as_json: bool) -> None:
    """Make a project that runs, with an example in Python and one in SQL."""
    from penstock.pipelines.template import make_project

    with _one_line():
        files = make_project(Path.cwd(), name, source, sink)
    if as_json:
        emit_json({"name": name, "files": [str(file) for file in files]})
        return
    for file in files:
        click.echo(file.relative_to(Path.cwd()))
    where = "" if bootstrap == _BOOTSTRAP else f"  export PENSTOCK_BOOTSTRAP={bootstrap}\n"
    note(
        f"Try it:\n{where}  penstock topics create {source}\n"
        f"  penstock topics create {sink}\n"
        f"  penstock pipeline run {name}"
    )


@pipeline.command()
@project_argument
@click.option(
    "--once", is_flag=True, help="Process what is there and end, with Spark's own `spark-pipelines`."
)
@click.option(
    "--dry-run", is_flag=True, help="Check the project with Spark and end; nothing is read or written."
)
@click.option(
    "--full-refresh", metavar="TABLE,…", multiple=True, help="With --once: tables to compute from scratch."
)
@click.option("--full-refresh-all", is_flag=True, help="With --once: compute all tables from scratch.")
@click.option("--refresh", metavar="TABLE,…", multiple=True, help="With --once: only these tables.")
@click.option(
    "--master",
    metavar="URL",
    default="local[*]",
    show_default=True,
    help="Where Spark runs: local[N], spark://…, yarn, k8s://…",
)
@click.option("--conf", metavar="KEY=VALUE", multiple=True, help="A Spark setting (repeatable).")
@click.option("--apply", type=click.Choice(["all", "compatible", "never"]), default="compatible",
              show_default=True,
              help="Which changes of the files are applied without asking.")  # fmt: skip
@click.option(
    "--rebuild",
    metavar="FLOW",
    multiple=True,
    help="Empty this flow's table and state and read from the start (repeatable).",
)
@click.option("--trigger", metavar="INTERVAL", default="1 second", show_default=True,
              help="How often a flow looks for new data; 0 is without a pause.")  # fmt: skip
@click.option("--refresh-every", metavar="SECONDS", type=click.FloatRange(min=0), default=10.0,
              show_default=True,
              help="A materialized view is computed again at most this often.")  # fmt: skip
@click.option("--no-watch", is_flag=True, help="Do not follow changes of the project's files.")
@click.option(
    "--metrics-port",
    metavar="N",
    type=click.IntRange(0, 65535),
    help="Serve Prometheus metrics on 127.0.0.1; 0 takes any free port.",
)
@click.option(
    "--metrics-auth-file",
    metavar="FILE",
    type=FILE,
    help="Who may read the metrics: `name: password`, one a line; see `penstock users hash`.",
)
@click.option(
    "--metrics-tls-cert",
    metavar="FILE",
    type=FILE,
    help="A PEM file with a certificate and its key: serve the metrics over HTTPS.",
)
@click.option(
    "--progress-to",
    metavar="HOST:PORT",
    help="Brokers whose topic __penstock_queries gets the progress, or none.  [default: the project's]",
)
@click.option(
    "--run-seconds", metavar="N", type=click.FloatRange(min=0), help="Stop so long after its start."
)
@json_option
def run(
    project: Path,
    once: bool,
    dry_run: bool,
    full_refresh: tuple[str, ...],
    full_refresh_all: bool,
    refresh: tuple[str, ...],
    master: str,
    conf: tuple[str, ...],
    apply: str,
    rebuild: tuple[str, ...],
    trigger: str,
    refresh_every: float,
    no_watch: bool,
    metrics_port: int | None,
    metrics_auth_file: str | None,
    metrics_tls_cert: str | None,
    progress_to: str | None,
    run_seconds: float | None,
    as_json: bool,
) -> None:
    """Keep the flows of a project running, until Ctrl-C or `penstock pipeline stop`.

    A flow that fails is started again from its checkpoint, after a pause that grows. Changes of the files are
    followed: what they mean for each flow is shown, then applied; what would throw away state waits for
    `penstock pipeline apply`.

    \b
      penstock pipeline run
      penstock pipeline run shop --master spark://10.0.0.5:7077 --metrics-port 9100
      penstock pipeline run shop --once
    """
    selecting = bool(full_refresh or full_refresh_all or refresh)
    if selecting and not once:
        raise click.UsageError("--full-refresh and --refresh go with --once; without it, use --rebuild FLOW")
    if rebuild and (once or dry_run):
        raise click.UsageError("--rebuild is for a run that goes on; with --once, use --full-refresh TABLE")
    if metrics_port is None and (metrics_auth_file or metrics_tls_cert):
        raise click.UsageError("--metrics-auth-file and --metrics-tls-cert go with --metrics-port")
    settings = key_values(conf, "--conf")
    with _one_line():
        opened, state = _open(project)
        state.acquire()
        try:
            if not state.wait_for_last_jvm(_JVM_GONE_SECONDS):
                raise CommandFailed(
                    f"the Spark of the last run (process {state.runner().get('jvm')}) has not ended yet: "
                    "wait for it, or end it"
                )
            with _signals() as stop, _spark_log(state) as out:
                if once or dry_run:
                    arguments = ["dry-run" if dry_run else "run"]
                    arguments += [f"--full-refresh={tables}" for tables in full_refresh]
                    arguments += [f"--refresh={tables}" for tables in refresh]
                    arguments += ["--full-refresh-all"] if full_refresh_all else []
                    _run_once(opened, state, master, settings, arguments, stop, out, as_json)
                else:
                    from penstock.pipelines.flow_state import RunOptions

                    options = RunOptions(
                        trigger=None if trigger.strip() == "0" else trigger,
                        apply=apply,
                        rebuild=rebuild,
                        watch=not no_watch,
                        refresh_every=refresh_every,
                    )
                    _keep_running(
                        opened,
                        state,
                        master,
                        settings,
                        options,
                        stop,
                        out,
                        as_json,
                        _metrics(metrics_port, metrics_auth_file, metrics_tls_cert),
                        progress_to,
                        run_seconds,
                    )
        finally:
            state.release()


def _metrics(port: int | None, auth_file: str | None, certificate: str | None) -> MetricsSettings | None:
    if port is None:
        return None
    from penstock.web.access import AccessSettings
    from penstock.web.metrics import MetricsSettings

    return MetricsSettings(port, AccessSettings(users_file=auth_file), certificate)


def _run_once(
    project: Project,
    state: StateDirectory,
    master: str,
    settings: Mapping[str, str],
    arguments: list[str],
    stop: threading.Event,
    out: TextIO,
    as_json: bool,
) -> None:
    from penstock.pipelines.once import run_once

    status: dict[str, Any] = {"pipeline": project.name, "state": "running", "once": True, "flows": [],
                              "started_at": round(time.time(), 3)}  # fmt: skip
    state.announce({"pid": os.getpid(), "master": master, "once": True})
    state.write_status(status)

    def show(line: str) -> None:
        print(line, file=sys.stderr, flush=True)  # the log
        if not as_json:
            print(line, file=out, flush=True)

    try:
        run_once(project, state, master, settings, arguments, show, stop)
    except PenstockError as error:
        state.write_status(
            {**status, "state": "failed", "error": str(error), "updated_at": round(time.time(), 3)}
        )
        if as_json:
            _json_line(out, {"event": "failed", "error": str(error)})
        raise
    state.write_status({**status, "state": "stopped", "updated_at": round(time.time(), 3)})
    if as_json:
        _json_line(out, {"event": "stopped" if stop.is_set() else "done"})


def _keep_running(
    project: Project,
    state: StateDirectory,
    master: str,
    settings: Mapping[str, str],
    options: RunOptions,
    stop: threading.Event,
    out: TextIO,
    as_json: bool,
    metrics: MetricsSettings | None,
    progress_to: str | None,
    run_seconds: float | None,
) -> None:
    from penstock.pipelines.service import serve

    live: LiveTable | None = None

    def report(event: dict[str, Any]) -> None:
        detail = event.pop("detail", None)
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        for line in event_lines(event):
            print(f"{stamp} penstock: {line}", file=sys.stderr, flush=True)
        if detail:
            print(f"{stamp} penstock: {detail}", file=sys.stderr, flush=True)
        if as_json:
            _json_line(out, {"time": round(time.time(), 3), **event})
        elif live:
            live.event(event)
        else:
            for line in event_lines(event):
                print(f"{stamp} {line}", file=out, flush=True)

    def running(status: Any) -> Any:
        nonlocal live
        if run_seconds is not None:
            timer = threading.Timer(run_seconds, stop.set)
            timer.daemon = True
            timer.start()
        if as_json or not out.isatty():
            return None
        live = LiveTable(out, status)
        return live

    if not as_json:
        print(f"Spark starts on {master} …", file=out, flush=True)
    try:
        serve(project, state, master, settings, options, report, stop, running, metrics, progress_to)
    except PenstockError as error:
        if as_json:
            _json_line(out, {"event": "failed", "error": str(error)})
        raise


def _json_line(out: TextIO, value: Mapping[str, Any]) -> None:
    import json

    print(json.dumps(value, ensure_ascii=False, separators=(",", ":")), file=out, flush=True)


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM end the run in order; a second Ctrl-C ends it at once."""
    stop = threading.Event()

    def asked(number: int, frame: object) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _spark_log(state: StateDirectory) -> Iterator[TextIO]:
    """Sends stdout and stderr, which Spark's JVM and its Python workers inherit, to the pipeline's log.

    Gives the real stdout. The log of the run before is kept beside it.
    """
    state.directory.mkdir(parents=True, exist_ok=True)
    if state.log.exists():
        os.replace(state.log, state.log.with_suffix(".log.1"))
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    log = os.open(state.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    out = os.fdopen(os.dup(saved[0]), "w", encoding="utf-8", errors="replace")
    try:
        yield out
    finally:
        try:
            out.close()
        except OSError:
            pass  # the reader of a pipe is gone
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in enumerate(saved, start=1):
            os.dup2(copy, number)
            os.close(copy)


@pipeline.command("list")
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False), default=Path("."))
@json_option
def list_(directory: Path, as_json: bool) -> None:
    """List the projects in a directory and below it, and whether they run."""
    found: list[dict[str, Any]] = []
    for spec in find_projects(directory):
        try:
            project, state = _open(spec)
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
@click.option("--offsets", "show_offsets", is_flag=True, help="Show where each source stands.")
@json_option
def status(project: Path, show_offsets: bool, as_json: bool) -> None:
    """Show a pipeline's flows and what is wrong with them.

    The exit code is 0 while it runs well, 1 when it does not run, or a flow has failed or waits.
    """
    with _one_line():
        _, state = _open(project)
        now = state.status()
    runner = state.runner()
    if as_json:
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
        for flow in now["flows"] if show_offsets else []:
            for source in offsets(flow):
                click.echo(f"{flow['name']}: {source['source']} at {source['end']} of {source['latest']}")
        for line in problems(now):
            note(line)
    if now["state"] != "running":
        raise click.exceptions.Exit(FAILED)


@pipeline.command()
@project_argument
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=90.0,
    show_default=True,
    help="How long to wait for its end.",
)
@json_option
def stop(project: Path, timeout: float, as_json: bool) -> None:
    """Stop a running pipeline in order; it goes on from there when it is run again."""
    with _one_line():
        opened, state = _open(project)
        pid = state.runner().get("pid")
        state.stop(timeout)
    if as_json:
        emit_json({"pipeline": opened.name, "stopped": True, "pid": pid})
    else:
        note(f"{opened.name} has stopped")


@pipeline.command()
@click.argument("words", nargs=-1, metavar="[PROJECT] [FLOW]...")
@json_option
def apply(words: tuple[str, ...], as_json: bool) -> None:
    """Agree to changes that wait in a running pipeline: to all of them, or to the named flows.

    A rebuild empties the flow's table and reads its sources from the start; `status` shows what waits. The
    first word is PROJECT if it is a path that exists; for a flow of such a name, write `.` before it.

    \b
      penstock pipeline apply
      penstock pipeline apply hourly
      penstock pipeline apply shop hourly daily
    """
    named = bool(words) and Path(words[0]).exists()
    project, flows = (Path(words[0]), words[1:]) if named else (Path("."), words)
    with _one_line():
        opened, state = _open(project)
        pending = state.status().get("pending", [])
        waiting = [change["flow"] for change in pending]
        for flow in flows:
            if flow not in waiting:
                others = f"Pending: {', '.join(waiting)}" if waiting else "No changes are pending"
                raise CommandFailed(f"No pending change for flow '{flow}'. {others}")
        state.request_apply(list(flows))
    if as_json:
        emit_json({"pipeline": opened.name, "applied": list(flows) or waiting})
    elif waiting:
        note(f"{opened.name} applies: {', '.join(flows or waiting)}")
    else:
        note(f"{opened.name}: nothing waits")


@pipeline.command()
@project_argument
@click.option(
    "--follow", "-f", is_flag=True, help="Go on as the log grows, until Ctrl-C or the pipeline's end."
)
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
    """Show the log of the run that goes on, or of the last one."""
    with _one_line():
        _, state = _open(project)
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
