"""`run --once`: Spark's own pipelines command, unchanged, with a Spark Connect server that Penstock starts.

The server has the settings that a spec cannot contain: the master, and a persistent catalog. It listens on a
free port of loopback and requires a token that only this process and its child know.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipelines.errors import PipelineError
from penstock.pipelines.failures import shorten
from penstock.pipelines.plans.changes import Action, plan_changes
from penstock.pipelines.plans.fingerprint import FlowPrint
from penstock.pipelines.project.loading import load_graph
from penstock.pipelines.project.project import Project, spec_for_spark
from penstock.pipelines.run.engine import jvm_pid, open_session
from penstock.pipelines.run.recorded import Recorded
from penstock.pipelines.run.resolving import Resolver
from penstock.pipelines.run.state import StateDirectory
from penstock.pipelines.run.storage import Storage
from penstock.pipelines.run.tables import PipelineTables
from penstock.pipelines.run.writing import Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_SERVER = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
}
# Two lines or more: the event with the flow's name, and its error up to the next event or the traceback.
_FLOW_ERROR = re.compile(
    r"^\d{4}-\d\d-\d\d [\d:]+: [^\n]*[Ff]low:? '?(?P<flow>[\w`-]+(?:\.[\w`-]+)*)[^\n]*\n"
    r"Error: (?P<error>.*?)(?=^\d{4}-\d\d-\d\d |^Traceback|\Z)",
    re.MULTILINE | re.DOTALL,
)


def run_once(
    project: Project,
    state: StateDirectory,
    master: str,
    settings: Mapping[str, str],
    arguments: Sequence[str],
    on_line: Callable[[str], None],
    stop: threading.Event,
    keep: Sequence[str] = (),
) -> None:
    """One triggered run; PipelineError says why it failed. `arguments` are those of `spark-pipelines`."""
    token = secrets.token_hex(16)
    os.environ[_TOKEN] = token
    spark = open_session(project, master, {**settings, **_SERVER})
    try:
        state.announce({"pid": os.getpid(), "jvm": jvm_pid(spark), "master": master, "once": True})
        recorded = None if "dry-run" in arguments else _recorded(project, spark, state, arguments, keep)
        service = getattr(spark._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
        port = int(getattr(service, "MODULE$").localPort())
        with spec_for_spark(project) as spec:
            code, lines = _run_cli(port, token, project.root, spec, arguments, on_line, stop)
    finally:
        spark.stop()
        os.environ.pop(_TOKEN, None)
    if code and not stop.is_set():
        raise PipelineError(reason(lines) or f"spark-pipelines ended with code {code}")
    if recorded is not None and not code:
        recorded.write()


def _recorded(
    project: Project,
    spark: SparkSession,
    state: StateDirectory,
    arguments: Sequence[str],
    keep: Sequence[str],
) -> Recorded | None:
    """Records what the flows are run with. What comes back is to be written when the run has succeeded;
    None where only Spark can read the project.

    PipelineError if a flow would continue with state that does not fit it: Spark does not compare that.
    """
    storage = Storage(spark)
    tables = PipelineTables(project, spark, storage)
    resolver = Resolver(project, spark, tables)
    recorded = Recorded(state, Writer(resolver, tables, storage, None))
    try:
        resolution = resolver.resolve(load_graph(project, spark))
    except PipelineError:
        return None  # AUTO CDC, or a mistake, which Spark reports itself
    full = _tables(arguments, "--full-refresh=")
    chosen = full | _tables(arguments, "--refresh=")
    prints = resolution.prints()
    now = {name: each for name, each in prints.items() if not chosen or each.target.lower() in chosen}
    changes = plan_changes(
        recorded.against(resolution), prints, replaced_tables=resolution.replaced, keep=keep
    )
    rebuilds = [change for change in changes if change.action is Action.REBUILD and change.flow in now]
    lost = [
        f"flow '{change.flow}': {'; '.join(change.reasons)}"
        for change in rebuilds
        if "--full-refresh-all" not in arguments and now[change.flow].target.lower() not in full
    ]
    if lost:
        raise PipelineError(
            f"{'; '.join(lost)}. --full-refresh TABLE empties a table and its state, and reads its sources "
            "from the start; --keep FLOW continues with the state and the rows that are there, where it can"
        )
    for name, print_ in now.items():
        recorded.apply(name, print_)
    for change in rebuilds:
        # Until it has been emptied, its state is of the query before.
        recorded.apply(change.flow, FlowPrint.unknown())
    recorded.write()
    for change in rebuilds:
        recorded.apply(change.flow, now[change.flow])
    return recorded


def _tables(arguments: Sequence[str], option: str) -> set[str]:
    given = [each.removeprefix(option) for each in arguments if each.startswith(option)]
    return {name.strip().lower() for each in given for name in each.split(",") if name.strip()}


def _run_cli(
    port: int,
    token: str,
    root: Path,
    spec: Path,
    arguments: Sequence[str],
    on_line: Callable[[str], None],
    stop: threading.Event,
) -> tuple[int, list[str]]:
    import pyspark.pipelines.cli as cli

    environment = {
        **{key: value for key, value in os.environ.items() if key not in ("MASTER", "SPARK_API_MODE")},
        "SPARK_REMOTE": f"sc://localhost:{port}",
        "SPARK_CONNECT_MODE_ENABLED": "1",
        _TOKEN: token,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    command = [sys.executable, str(Path(cli.__file__)), *arguments, "--spec", str(spec)]
    child = subprocess.Popen(
        command,
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C is for us: we end it in order
    )
    ended = threading.Event()

    def end_when_asked() -> None:
        while not ended.is_set():
            if stop.wait(0.2):
                child.send_signal(signal.SIGINT)
                if not ended.wait(10):
                    child.kill()
                return

    watcher = threading.Thread(target=end_when_asked, daemon=True)
    watcher.start()
    lines: list[str] = []
    assert child.stdout is not None
    for line in child.stdout:
        lines.append(line.rstrip("\n"))
        on_line(lines[-1])
    code = child.wait()
    ended.set()
    watcher.join(15)
    return code, lines


def reason(lines: Sequence[str]) -> str:
    """What `spark-pipelines` said before it failed: a flow's first error, or the end of its traceback."""
    text = "\n".join(lines)
    failed = _FLOW_ERROR.search(text)
    if failed:
        return f"flow '{failed['flow'].rpartition('.')[2]}': {shorten(failed['error'])}"
    raised = list(re.finditer(r"^[\w.]*(?:Exception|Error): ", text, re.MULTILINE))
    if raised:
        return shorten(text[raised[-1].end() :])
    return shorten(lines[-1]) if lines else ""
