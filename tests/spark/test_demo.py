"""`penstock demo`, as `make run` starts it: all flights are accounted for, and nothing is left running."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doc_blocks import commands
from tests.doc_shell import Shell

pytestmark = pytest.mark.timeout(600)

WAIT_S = 400
SENT = re.compile(r"\| in ([\d,]+) ")
# So many flights have some of everything that can go wrong with them.
ENOUGH = 1000
SPEED = "21600"
# Inherited by all that a demonstration starts: platform, pipeline, Spark's JVM and its Python workers.
MARK = "PENSTOCK_DEMO_TEST"


def command(data: Path, *arguments: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "penstock",
        "demo",
        "--data",
        str(data),
        "--port",
        "0",
        "--speed",
        SPEED,
        *arguments,
    ]


def environment(data: Path, **more: str) -> dict[str, str]:
    return {**os.environ, MARK: str(data), **more}


def processes_left(data: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            marked = f"{MARK}={data}".encode() in (process / "environ").read_bytes()
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        # A process that has ended and was not waited for yet has an empty line.
        if marked and line:
            found.append(f"{process.name}: {line}")
    return found


def logs(data: Path) -> str:
    return "".join(f"\n== {file.name}\n{file.read_text()[-3000:]}" for file in data.glob("demo/*.log"))


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "data"
    yield directory
    assert processes_left(directory) == []


def run_commands_of_the_page(data: Path, said: str) -> None:
    """Those that show a run while it runs; the flows' groups and topics may come a moment later."""
    bootstrap = re.search(r"Penstock is ready at ([^,]+),", said)
    assert bootstrap is not None, said
    shell = Shell(data.parent, {"PENSTOCK_BOOTSTRAP": bootstrap[1]})
    for line in commands("docs/demo.md"):
        shell.run(f"for i in $(seq 60); do {line} && exit; sleep 1; done; exit 1")


@pytest.mark.promise("docs", "The commands of demo.md that show a run work as printed while it runs")
@pytest.mark.promise(
    "demo",
    "`penstock demo`: Ctrl-C leaves no process, the next run continues, and every flight is accounted for",
)
def test_ctrl_c_stops_everything_and_the_next_run_goes_on_until_every_flight_is_accounted_for(
    data: Path,
) -> None:
    with subprocess.Popen(
        command(data), env=environment(data), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as first:
        assert first.stdout is not None
        said = []
        for line in first.stdout:
            said.append(line)
            if (sent := SENT.search(line)) and int(sent[1].replace(",", "")) >= ENOUGH:
                break
        run_commands_of_the_page(data, "".join(said))
        first.send_signal(signal.SIGINT)
        said += first.stdout
        assert first.wait(WAIT_S) == 0, "".join(said) + logs(data)
    assert any("A new replay" in line for line in said), said
    assert any("not yet done" in line for line in said), said
    assert processes_left(data) == []

    second = subprocess.run(
        command(data, "--json"), env=environment(data, RUN_SECONDS="20"),
        capture_output=True, text=True, timeout=WAIT_S,
    )  # fmt: skip
    assert second.returncode == 0, second.stdout + second.stderr + logs(data)
    assert "continues after" in second.stderr
    told = json.loads(second.stdout)
    assert told["ok"] and all(check["ok"] for check in told["checks"]), told
    assert told["flights_in"] == told["parsed"] + told["dead"]
    assert told["parsed"] == told["delta_rows"] == told["joined"] + told["without_weather"]
    assert told["not_yet_done"] == 0
    # Or nothing would be shown by the checks.
    for what in ("weather_in", "joined", "dead", "windows", "alerts", "sent_broken"):
        assert told[what] > 0, (what, told)


@pytest.mark.promise("demo", "A replay with other settings, or of a day that is not in the data, is rejected")
def test_a_replay_with_other_settings_does_not_mix_with_the_one_that_is_there(data: Path) -> None:
    (data / "demo").mkdir(parents=True)
    (data / "demo" / "replay.json").write_text(
        '{"start": "2013-05-01T00:00:00+00:00", "seed": 1, "partitions": "by key"}\n'
    )
    done = subprocess.run(
        command(data), env=environment(data), capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 1
    assert "--fresh" in done.stderr and "2013-05-01" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.promise("demo", "A replay with other settings, or of a day that is not in the data, is rejected")
@pytest.mark.parametrize("day", ["2014-01-01", "yesterday"])
def test_a_day_that_is_not_in_the_data_is_refused(data: Path, day: str) -> None:
    done = subprocess.run(
        command(data, "--from", day), env=environment(data), capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 2
    assert day in done.stderr and "Traceback" not in done.stderr
