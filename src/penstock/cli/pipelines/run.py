"""`penstock pipeline run`: the flows of a project, once or until they are stopped."""

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

from penstock.cli.failure import CommandFailed
from penstock.cli.options.properties import key_values
from penstock.cli.options.shared import FILE, json_option
from penstock.cli.pipelines.connectors import DEFAULT_URL, create, declared
from penstock.cli.pipelines.projects import one_line, open_project, project_argument
from penstock.cli.pipelines.view import LiveTable, event_lines
from penstock.errors import PenstockError
from penstock.pipelines.project.project import Project
from penstock.pipelines.run.state import StateDirectory

if TYPE_CHECKING:
    from penstock.pipelines.run.flow_state import RunOptions
    from penstock.web.metrics import MetricsSettings

_JVM_GONE_SECONDS = 30.0


@click.command()
@project_argument
@click.option(
    "--once",
    is_flag=True,
    help="Process the available data once and exit, with Spark's own `spark-pipelines`.",
)
@click.option(
    "--dry-run", is_flag=True, help="Check the project with Spark and exit; nothing is read or written."
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
@click.option(
    "--keep",
    metavar="FLOW",
    multiple=True,
    help="Continue with the state and the rows of this flow, although its query has changed, if the state "
    "can be used (repeatable).",
)
@click.option("--trigger", metavar="INTERVAL", default="1 second", show_default=True,
              help="How often a flow looks for new data; 0 means without a pause.")  # fmt: skip
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
    help="File of users who may read the metrics, one per line: `name: password`; see `penstock users hash`.",
)
@click.option(
    "--metrics-jwks",
    metavar="FILE|URL",
    help="Accept bearer tokens (JWT) for the metrics that one of these keys has signed.",
)
@click.option("--metrics-jwt-issuer", metavar="TEXT", help="Only tokens of this issuer.")
@click.option(
    "--metrics-jwt-audience", metavar="TEXT", multiple=True, help="Only tokens for one of these (repeatable)."
)
@click.option(
    "--metrics-max-request-rate",
    metavar="N",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Requests for metrics a second of one user, or of one address without logins.  [default: no limit]",
)
@click.option(
    "--metrics-tls-cert",
    metavar="FILE",
    type=FILE,
    help="A PEM file with a certificate and its key: serve the metrics over HTTPS.",
)
@click.option(
    "--connect",
    "connect_url",
    metavar="URL",
    envvar="PENSTOCK_CONNECT",
    show_envvar=True,
    default=DEFAULT_URL,
    show_default=True,
    help="The Connect worker for the connectors of the project.",
)
@click.option(
    "--progress-to",
    metavar="HOST:PORT",
    help="Brokers whose topic __penstock_queries gets the progress, or none.  [default: the project's]",
)
@click.option(
    "--run-seconds", metavar="N", type=click.FloatRange(min=0), help="Stop this many seconds after the start."
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
    keep: tuple[str, ...],
    trigger: str,
    refresh_every: float,
    no_watch: bool,
    metrics_port: int | None,
    metrics_auth_file: str | None,
    metrics_jwks: str | None,
    metrics_jwt_issuer: str | None,
    metrics_jwt_audience: tuple[str, ...],
    metrics_max_request_rate: float,
    metrics_tls_cert: str | None,
    connect_url: str,
    progress_to: str | None,
    run_seconds: float | None,
    as_json: bool,
) -> None:
    """Keep the flows of a project running, until Ctrl-C or `penstock pipeline stop`.

    Connectors that the project declares in `connectors/` are created at the Connect worker first, or
    changed if their files have changed. They keep running when the pipeline stops.

    A failed flow restarts from its checkpoint, with increasing backoff. Changes of the files are shown and
    applied while it runs. A change that would discard state stays pending until `penstock pipeline apply`.

    \b
      penstock pipeline run
      penstock pipeline run shop --master spark://10.0.0.5:7077 --metrics-port 9100
      penstock pipeline run shop --once
    """
    selecting = bool(full_refresh or full_refresh_all or refresh)
    if selecting and not once:
        raise click.UsageError("--full-refresh and --refresh require --once; without it, use --rebuild FLOW")
    if rebuild and (once or dry_run):
        raise click.UsageError("--rebuild is for continuous runs; with --once, use --full-refresh TABLE")
    metrics = _metrics(
        metrics_port,
        metrics_tls_cert,
        users_file=metrics_auth_file,
        jwks=metrics_jwks,
        issuer=metrics_jwt_issuer,
        audience=metrics_jwt_audience,
        rate=metrics_max_request_rate,
    )
    settings = key_values(conf, "--conf")
    with one_line():
        opened, state = open_project(project)
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
                    _run_once(opened, state, master, settings, arguments, keep, stop, out, as_json)
                else:
                    from penstock.pipelines.run.flow_state import RunOptions

                    connectors = declared(opened)
                    names = [each["name"] for each in connectors]
                    create(connectors, connect_url)
                    state.announce_connectors(connect_url, names)
                    if names and not as_json:
                        print(f"connectors at {connect_url}: {', '.join(names)}", file=out, flush=True)

                    options = RunOptions(
                        trigger=None if trigger.strip() == "0" else trigger,
                        apply=apply,
                        rebuild=rebuild,
                        keep=keep,
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
                        metrics,
                        progress_to,
                        run_seconds,
                    )
        finally:
            state.release()


def _metrics(port: int | None, certificate: str | None, **access: Any) -> MetricsSettings | None:
    if port is None:
        if certificate or any(access.values()):
            raise click.UsageError("the other options --metrics-… require --metrics-port")
        return None
    if access["jwks"] is None and (access["issuer"] or access["audience"]):
        raise click.UsageError("--metrics-jwt-issuer and --metrics-jwt-audience require --metrics-jwks")
    from penstock.web.access import AccessSettings
    from penstock.web.metrics import MetricsSettings

    return MetricsSettings(port, AccessSettings(**access), certificate)


def _run_once(
    project: Project,
    state: StateDirectory,
    master: str,
    settings: Mapping[str, str],
    arguments: list[str],
    keep: tuple[str, ...],
    stop: threading.Event,
    out: TextIO,
    as_json: bool,
) -> None:
    from penstock.pipelines.run.once import run_once

    status: dict[str, Any] = {"pipeline": project.name, "state": "running", "once": True, "flows": [],
                              "started_at": round(time.time(), 3)}  # fmt: skip
    state.announce({"pid": os.getpid(), "master": master, "once": True})
    state.write_status(status)

    def show(line: str) -> None:
        print(line, file=sys.stderr, flush=True)  # the log
        if not as_json:
            print(line, file=out, flush=True)

    try:
        run_once(project, state, master, settings, arguments, show, stop, keep)
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
    from penstock.pipelines.run.service import serve

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
