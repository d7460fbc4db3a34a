"""What a running pipeline shows about itself, in files that other terminals read.

_penstock/lock         held (flock) while the pipeline runs, so a dead process never looks alive
_penstock/run.json     who runs it: pids, start, master
_penstock/status.json  flows, progress, errors; replaced atomically
_penstock/flows.json   the prints of the flows whose checkpoints are there
_penstock/connectors.json  the connectors that the run has created, and at which worker
_penstock/apply.json   a request to apply rebuilds, taken by the runner
_penstock/run.log      the runner's and Spark's log
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.pipelines.errors import AlreadyRunning, NotRunning
from penstock.pipelines.plans.fingerprint import FlowPrint

STATUS_VERSION = 1


class StateDirectory:
    """The files of one pipeline. Reading works while another process writes."""

    def __init__(self, directory: Path, pipeline: str) -> None:
        self.directory = directory
        self.pipeline = pipeline
        self._lock: int | None = None

    # -- who runs it

    def acquire(self) -> None:
        """Becomes the one that runs the pipeline, until the process ends; AlreadyRunning names the other."""
        self.directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            pid = self.runner().get("pid", "?")
            raise AlreadyRunning(
                f"pipeline '{self.pipeline}' is running already (process {pid}); "
                "`penstock pipeline stop` stops it"
            ) from None
        self._lock = lock

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def is_running(self) -> bool:
        """Whether a process holds the lock now."""
        if self._lock is not None:
            return True
        try:
            lock = os.open(self.directory / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except OSError:
            return True
        finally:
            os.close(lock)

    def runner(self) -> dict[str, Any]:
        """What run.json says of the process that runs the pipeline, or ran it last."""
        return self._read("run.json")

    def announce(self, about: Mapping[str, Any]) -> None:
        self._write("run.json", dict(about))

    def announce_connectors(self, worker: str, names: list[str]) -> None:
        self._write("connectors.json", {"worker": worker, "names": names})

    def connectors(self) -> tuple[str | None, list[str]]:
        """The worker and the connectors of the last run."""
        found = self._read("connectors.json")
        return found.get("worker"), list(found.get("names", ()))

    def wait_for_last_jvm(self, timeout: float, sleep: Callable[[float], None] = time.sleep) -> bool:
        """After a kill -9 the JVM lives for a moment, with the catalog open; True when it is gone."""
        jvm = self.runner().get("jvm")
        deadline = time.monotonic() + timeout
        while isinstance(jvm, int) and _is_java(jvm):
            if time.monotonic() > deadline:
                return False
            sleep(0.1)
        return True

    def stop(self, timeout: float) -> None:
        """Asks the runner to stop and waits until it has; NotRunning if there is none."""
        pid = self.runner().get("pid")
        if not self.is_running() or not isinstance(pid, int):
            raise NotRunning(f"pipeline '{self.pipeline}' is not running")
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        deadline = time.monotonic() + timeout
        while self.is_running():
            if time.monotonic() > deadline:
                raise NotRunning(
                    f"pipeline '{self.pipeline}' (process {pid}) has not stopped within {timeout:g} s: "
                    f"wait more with --timeout, or end it with kill -9 {pid}, which loses nothing"
                )
            time.sleep(0.05)

    # -- what it does

    def status(self) -> dict[str, Any]:
        """The last status; `state` is what is true now: a run that died is `died`, never `running`."""
        status = self._read("status.json") or {"pipeline": self.pipeline, "state": "never run", "flows": []}
        if status["state"] not in ("stopped", "failed", "never run") and not self.is_running():
            status["state"] = "died"
            for flow in status.get("flows", []):
                flow["state"] = "died"
        return status

    def write_status(self, status: Mapping[str, Any]) -> None:
        self._write("status.json", {"version": STATUS_VERSION, **status})

    def prints(self) -> dict[str, FlowPrint]:
        """The flows whose checkpoints are in the storage, as they were when they last ran."""
        return self._prints("flows")

    def removed_prints(self) -> dict[str, FlowPrint]:
        """Those of flows that were removed from the files, and whose checkpoints have stayed."""
        return self._prints("removed")

    def _prints(self, which: str) -> dict[str, FlowPrint]:
        flows = self._read("flows.json").get(which, {})
        return {name: _print(data) for name, data in flows.items()}

    def write_prints(self, prints: Mapping[str, FlowPrint], removed: Mapping[str, FlowPrint]) -> None:
        both = {"flows": prints, "removed": removed}
        self._write(
            "flows.json",
            {
                which: {name: print_.to_json() for name, print_ in each.items()}
                for which, each in both.items()
            },
        )

    # -- requests

    def request_apply(self, flows: list[str], *, keep: bool = False) -> None:
        """Asks the runner to apply what waits for it: the named rebuilds, or all when there are no names.
        With `keep`, without emptying anything."""
        if not self.is_running():
            raise NotRunning(
                f"pipeline '{self.pipeline}' is not running; "
                "`penstock pipeline run --rebuild FLOW` rebuilds at a start"
            )
        self._write("apply.json", {"flows": flows, "keep": keep})

    def take_apply(self) -> tuple[list[str], bool] | None:
        """The flows that are to be applied, an empty list for all, and whether their state and rows are to be
        kept; None when nobody asked."""
        request = self._read("apply.json")
        if not request:
            return None
        (self.directory / "apply.json").unlink(missing_ok=True)
        return [str(flow) for flow in request.get("flows", [])], bool(request.get("keep"))

    @property
    def log(self) -> Path:
        return self.directory / "run.log"

    # -- files

    def _read(self, name: str) -> dict[str, Any]:
        try:
            data = json.loads((self.directory / name).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}

    def _write(self, name: str, data: Mapping[str, Any]) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / name
        scratch = path.with_name(f".{name}.{os.getpid()}")
        scratch.write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
        os.replace(scratch, path)


def _print(data: Any) -> FlowPrint:
    """A print; one of another version of Penstock that cannot be read says nothing of its flow."""
    try:
        return FlowPrint.from_json(data)
    except (KeyError, TypeError, ValueError):
        return FlowPrint.unknown()


def _is_java(pid: int) -> bool:
    """Whether a process of this pid is there and is a JVM (pids are used again)."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    try:
        return b"java" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True  # no /proc on this system
