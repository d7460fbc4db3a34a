"""Pipelines of this machine: their projects, state and log; start and stop."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.admin.failure import CommandFailed, needs_extra
from penstock.errors import PenstockError
from penstock.pipelines.project.project import find_projects, load_project
from penstock.pipelines.run.state import StateDirectory

_STOP_SECONDS = 90.0
_START_SECONDS = 20.0
_LOOK_SECONDS = 0.05
_LOG_BYTES = 256 << 10
_OURS = " penstock: "
"""What marks the pipeline's own lines in a log that also has Spark's."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    name: str
    project: str
    """Its directory."""
    state: str
    error: str | None
    flows: tuple[dict[str, Any], ...]
    """As `penstock pipeline status --json` has them."""
    pending: tuple[dict[str, Any], ...] = ()
    pid: int | None = None
    master: str | None = None

    @property
    def running(self) -> bool:
        return self.pid is not None

    @property
    def failed(self) -> bool:
        return (
            self.error is not None
            or self.state in ("failed", "died", "broken")
            or any(flow.get("error") for flow in self.flows)
        )


class Pipelines:
    """The projects in some directories, and below them."""

    def __init__(self, directories: Sequence[str]) -> None:
        self.directories = tuple(directories)
        self._started: list[subprocess.Popen[bytes]] = []

    def found(self) -> list[Pipeline]:
        self._started = [each for each in self._started if each.poll() is None]
        with needs_extra("pipelines", "spark"):
            import yaml  # type: ignore[import-untyped]  # noqa: F401 - of the projects
        specs: dict[Path, None] = {}
        for directory in self.directories:
            specs.update(dict.fromkeys(find_projects(Path(directory))))
        return [_pipeline(spec) for spec in specs]

    def one(self, name: str) -> Pipeline:
        for each in self.found():
            if each.name == name:
                return each
        raise CommandFailed(f"no pipeline '{name}' in {', '.join(self.directories)}.")

    def _state(self, name: str) -> StateDirectory:
        project = load_project(Path(self.one(name).project))
        return StateDirectory(project.state_directory, project.name)

    def start(self, name: str) -> None:
        """With the master of its last run. Returns when it has taken over; it outlives the console."""
        pipeline, state = self.one(name), self._state(name)
        words = ["pipeline", "run", pipeline.project, "--master", pipeline.master or "local[*]"]
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "penstock", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,  # only until it has its log
                start_new_session=True,
            )
            self._started.append(process)
            deadline = time.monotonic() + _START_SECONDS
            while not (state.is_running() and state.runner().get("pid") == process.pid):
                if process.poll() is not None:
                    errors.seek(0)
                    said = errors.read().decode(errors="replace").strip().splitlines()
                    raise CommandFailed((said or [f"it ended with exit code {process.returncode}"])[-1])
                if time.monotonic() > deadline:
                    return  # it may wait for the Spark of its last run to end
                time.sleep(_LOOK_SECONDS)

    def stop(self, name: str) -> None:
        self._state(name).stop(_STOP_SECONDS)

    def log(self, name: str, lines: int = 200, *, everything: bool = False) -> list[str]:
        """The last lines of the current run, or of the last one; with `everything`, Spark's too."""
        path = self._state(name).log
        try:
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _LOG_BYTES))
                found = file.read().decode(errors="replace").splitlines()
        except FileNotFoundError:
            raise CommandFailed(f"pipeline '{name}' has no log: it has never run.") from None
        own = found if everything else [line for line in found if _OURS in line]
        return (own or found)[-lines:]


def pipelines_of(pipelines: Pipelines | None) -> Pipelines:
    if pipelines is None:
        raise CommandFailed("this console has no pipelines: start it with --pipelines DIR.")
    return pipelines


def _pipeline(spec: Path) -> Pipeline:
    try:
        project = load_project(spec)
        state = StateDirectory(project.state_directory, project.name)
        status = state.status()
        runner = state.runner()
        pid = runner.get("pid") if state.is_running() else None
    except (PenstockError, OSError) as error:
        return Pipeline(spec.parent.name, str(spec.parent), "broken", str(error), ())
    return Pipeline(
        project.name,
        str(project.root),
        str(status["state"]),
        status.get("error") or status.get("file_error"),
        tuple(status.get("flows", ())),
        tuple(status.get("pending", ())),
        pid if isinstance(pid, int) else None,
        runner.get("master"),
    )
