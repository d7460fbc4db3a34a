"""What a running pipeline tells other terminals is true, also after it was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.pipelines.errors import AlreadyRunning, NotRunning
from penstock.pipelines.plans.fingerprint import FlowPrint
from penstock.pipelines.run.state import StateDirectory

HOLDER = """
import sys, os, signal
from pathlib import Path
from penstock.pipelines.run.state import StateDirectory
state = StateDirectory(Path(sys.argv[1]), "shop")
state.acquire()
state.announce({"pid": os.getpid()})
state.write_status({"pipeline": "shop", "state": "running", "flows": [{"name": "a", "state": "running"}]})
print("held", flush=True)
signal.sigwait({signal.SIGTERM})
state.write_status({"pipeline": "shop", "state": "stopped", "flows": []})
"""


@pytest.fixture
def holder(tmp_path: Path):
    """Another process that runs the pipeline."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_only_one_process_runs_a_pipeline(tmp_path: Path, holder):
    state = StateDirectory(tmp_path, "shop")
    assert state.is_running()
    with pytest.raises(AlreadyRunning, match=rf"process {holder.pid}\); `penstock pipeline stop`"):
        state.acquire()


@pytest.mark.promise(
    "pipelines", "After kill -9 a run continues from its checkpoints; other terminals can show and stop it"
)
def test_a_killed_run_is_told_as_dead_and_can_be_run_again(tmp_path: Path, holder):
    state = StateDirectory(tmp_path, "shop")
    holder.kill()
    holder.wait()
    status = state.status()
    assert status["state"] == "died"
    assert status["flows"][0]["state"] == "died"
    with pytest.raises(NotRunning):
        state.stop(1)
    state.acquire()
    state.release()


def test_stop_waits_until_the_run_has_ended(tmp_path: Path, holder):
    state = StateDirectory(tmp_path, "shop")
    state.stop(30)
    assert not state.is_running()
    assert state.status()["state"] == "stopped"
    assert holder.wait(10) == 0


def test_a_pid_that_was_used_again_is_never_signalled(tmp_path: Path):
    state = StateDirectory(tmp_path, "shop")
    state.announce({"pid": os.getpid(), "jvm": os.getpid()})
    with pytest.raises(NotRunning, match="'shop' is not running"):
        state.stop(1)
    assert state.wait_for_last_jvm(0)  # this process is no JVM


def test_requests_are_taken_once(tmp_path: Path):
    state = StateDirectory(tmp_path, "shop")
    with pytest.raises(NotRunning, match="--rebuild"):
        state.request_apply([])
    state.acquire()
    assert state.take_apply() is None
    state.request_apply(["a"])
    assert state.take_apply() == (["a"], False)
    state.request_apply(["a"], keep=True)
    assert state.take_apply() == (["a"], True)
    assert state.take_apply() is None
    state.release()


@pytest.mark.promise(
    "pipelines",
    "A removed flow leaves its table and checkpoint, and the plan says where; if the flow is added "
    "again, its state is kept only for the query that built it. State without a recorded query fits no "
    "query",
)
def test_prints_are_kept_and_those_that_cannot_be_read_say_nothing(tmp_path: Path):
    state = StateDirectory(tmp_path, "shop")
    assert state.prints() == {}
    prints = {"a": FlowPrint("t", "streaming table", ("s",), (), ("c int",), "p", conf=(("k", "v"),))}
    state.write_prints(prints, {"gone": prints["a"]})
    assert state.prints() == prints
    assert state.removed_prints() == {"gone": prints["a"]}
    (tmp_path / "flows.json").write_text('{"flows": {"a": {"target": "t"}}}')
    assert state.prints() == {"a": FlowPrint("", "", (), (), (), "")}


def test_a_pipeline_that_never_ran_says_so(tmp_path: Path):
    state = StateDirectory(tmp_path / "none", "shop")
    assert state.status()["state"] == "never run"
    assert not state.is_running()
    assert not (tmp_path / "none").exists()
