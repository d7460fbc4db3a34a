"""One run of a pipeline from the start of Spark to its end: session, progress, runner."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from penstock.errors import PenstockError
from penstock.pipelines.errors import PipelineError
from penstock.pipelines.failures import cause
from penstock.pipelines.project.project import Project
from penstock.pipelines.run.engine import find_bootstrap, jvm_pid, open_session
from penstock.pipelines.run.flow_state import RunOptions
from penstock.pipelines.run.runner import Event, Runner
from penstock.pipelines.run.state import StateDirectory
from penstock.spark.progress import Watch, watch
from penstock.web.metrics import MetricsSettings

Show = Callable[[Callable[[], dict[str, Any]]], AbstractContextManager[Any] | None]


def serve(
    project: Project,
    state: StateDirectory,
    master: str,
    settings: Mapping[str, str],
    options: RunOptions,
    report: Callable[[Event], None],
    stop: threading.Event,
    show: Show,
    metrics: MetricsSettings | None,
    progress_to: str | None,
) -> None:
    """Runs until `stop`; PipelineError when the project cannot be started at all, or Spark dies."""
    from py4j.protocol import Py4JError

    about: dict[str, Any] = {"pid": os.getpid(), "master": master, "metrics_port": None}
    state.announce(about)
    state.write_status({"pipeline": project.name, "state": "starting", "flows": []})
    spark = None
    watching: Watch | None = None
    try:
        spark = open_session(project, master, settings)
        state.announce(about | {"jvm": jvm_pid(spark)})
        runner = Runner(project, spark, state, options, report)
        runner.load()
        bootstrap = progress_to or _bootstrap_of(runner)
        try:
            watching = watch(
                spark,
                bootstrap=None if bootstrap in (None, "", "none") else bootstrap,
                metrics=metrics,
                pipeline=project.name,
                on_progress=runner.on_progress,
            )
        except OSError as error:
            port = metrics.port if metrics is not None else None
            raise PenstockError(f"metrics port {port}: {error.strerror or error}") from error
        about |= {"jvm": jvm_pid(spark), "metrics_port": watching.metrics_port}
        state.announce(about)
        report(
            {
                "event": "ready",
                "pipeline": project.name,
                "master": master,
                "metrics_port": watching.metrics_port,
                "metrics_scheme": "https" if metrics is not None and metrics.certificate else "http",
            }
        )
        with show(runner.status) or nullcontext():
            runner.run(stop)
    except (Py4JError, ConnectionError) as error:
        message = f"Spark has ended: {cause(error)}; `penstock pipeline logs --all` may say why. Run it again"
        state.write_status({"pipeline": project.name, "state": "failed", "error": message, "flows": []})
        raise PipelineError(message) from error
    except PenstockError as error:
        state.write_status({"pipeline": project.name, "state": "failed", "error": str(error), "flows": []})
        raise
    finally:
        for part in (watching, spark):
            try:
                if part:
                    part.stop()
            except (Py4JError, ConnectionError):
                pass  # its JVM is gone already


def _bootstrap_of(runner: Runner) -> str | None:
    """The brokers that the project's own sources and sinks name, the first of them."""
    for flow in runner.flows.values():
        found = find_bootstrap(flow.graph.target_of(flow.resolved.definition).options)
        if found:
            return found
    for flow in runner.flows.values():
        for source in flow.resolved.print.sources:
            _, sign, rest = source.partition("kafka.bootstrap.servers=")
            if sign:
                return rest.split(", ")[0].rstrip(")")
    return None
