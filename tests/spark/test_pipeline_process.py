"""`penstock pipeline` as processes: killed and run again, seen and stopped from elsewhere, run once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

pytestmark = pytest.mark.timeout(600)
WAIT_SECONDS = 240.0
ROWS = 300

FLOWS = """
from pyspark import pipelines as dp

@dp.table
def numbers():
    return (spark.readStream.schema("n INT").option("maxFilesPerTrigger", 1).json("{source}"))
"""
SQL = """CREATE STREAMING TABLE even AS SELECT n FROM STREAM numbers WHERE n % 2 = 0;
CREATE MATERIALIZED VIEW total AS SELECT sum(n) AS n FROM even;
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "shop"
    (root / "transformations").mkdir(parents=True)
    (root / "in").mkdir()
    (root / "spark-pipeline.yml").write_text(
        f"name: shop\nstorage: {(root / 'storage').as_uri()}\n"
        "libraries:\n  - glob:\n      include: transformations/**\n"
    )
    (root / "transformations" / "flows.py").write_text(FLOWS.format(source=root / "in"))
    (root / "transformations" / "more.sql").write_text(SQL)
    return root


def feed(project: Path, first: int, count: int) -> None:
    hidden = project / "in" / f".{first}"
    hidden.write_text("".join(f'{{"n": {n}}}\n' for n in range(first, first + count)))
    hidden.rename(project / "in" / f"{first}.json")


def penstock(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "pipeline", *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    if check:
        assert done.returncode == 0, done.stderr
    return done


@contextmanager
def running(project: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "penstock",
            "pipeline",
            "run",
            str(project),
            "--master",
            "local[2]",
            *arguments,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        jvm = runner_of(project).get("jvm")
        process.kill()
        process.communicate()
        wait_for(lambda: not isinstance(jvm, int) or not Path(f"/proc/{jvm}").exists())


def runner_of(project: Path) -> dict[str, Any]:
    path = project / "storage" / "_penstock" / "run.json"
    return json.loads(path.read_text()) if path.exists() else {}


def status(project: Path) -> dict[str, Any]:
    path = project / "storage" / "_penstock" / "status.json"
    return json.loads(path.read_text()) if path.exists() else {"state": "none", "flows": []}


def wait_for(done: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_SECONDS
    while not (result := done()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return result


def batches(project: Path, flow: str) -> int:
    found = [entry for entry in status(project)["flows"] if entry["name"] == flow]
    progress = found[0]["progress"] if found else None
    return progress["batch_id"] + 1 if progress else 0


def even(project: Path) -> list[int]:
    """The rows that batches have committed, by the log that Spark's file sink keeps in the table."""
    import pyarrow.parquet as pq

    table = project / "storage" / "tables" / "even"
    files = set()
    for entry in (table / "_spark_metadata").glob("[0-9]*"):
        lines = entry.read_text().splitlines()[1:]
        files |= {json.loads(line)["path"].rpartition("/")[2] for line in lines}
    return sorted(n for name in files for n in pq.ParquetFile(table / name).read()["n"].to_pylist())


@pytest.mark.promise(
    "pipelines", "After kill -9 a run continues from its checkpoints; other terminals can show and stop it"
)
def test_a_killed_run_goes_on_from_its_checkpoints_and_other_terminals_see_and_stop_it(project: Path):
    for first in range(0, ROWS, 100):
        feed(project, first, 100)
    with running(project, "--json", "--progress-to", "none") as process:
        wait_for(lambda: len(even(project)) >= 1 or process.poll() is not None)
        assert process.poll() is None, process.communicate()[0]
        assert "is running already" in penstock("run", str(project), check=False).stderr
        process.send_signal(signal.SIGKILL)
        process.wait(WAIT_SECONDS)
    assert json.loads(penstock("list", str(project.parent), "--json").stdout)[0]["state"] == "died"
    assert penstock("status", str(project), check=False).returncode == 1
    assert "is not running" in penstock("stop", str(project), check=False).stderr

    feed(project, ROWS, 100)
    with running(project, "--json", "--metrics-port", "0", "--progress-to", "none") as process:
        wait_for(
            lambda: (batches(project, "even") and len(even(project)) >= 200) or process.poll() is not None
        )
        assert process.poll() is None, process.communicate()[0]
        seen = json.loads(penstock("status", str(project), "--json").stdout)
        assert (seen["state"], seen["pid"]) == ("running", process.pid)
        assert seen["metrics_port"] > 0
        assert {flow["name"] for flow in seen["flows"]} == {"numbers", "even", "total"}
        assert "even runs" in penstock("logs", str(project)).stdout
        penstock("stop", str(project))
        output, _ = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == 0
        events = [json.loads(line)["event"] for line in output.splitlines()]
        assert events[0] == "ready"
        assert events[-1] == "stopped"
    assert status(project)["state"] == "stopped"
    assert even(project) == list(range(0, ROWS + 100, 2))


@pytest.mark.promise(
    "pipelines", "`run --once` uses Spark's own runner, and can alternate with continuous runs"
)
def test_once_is_sparks_own_run_and_takes_turns_with_the_runs_that_go_on(project: Path):
    feed(project, 0, 100)
    first = penstock("run", str(project), "--once", "--master", "local[2]")
    assert "Run is COMPLETED." in first.stdout
    feed(project, 100, 100)
    with running(project, "--json", "--progress-to", "none") as process:
        wait_for(lambda: len(even(project)) >= 100 or process.poll() is not None)
        assert process.poll() is None, process.communicate()[0]
        process.send_signal(signal.SIGINT)  # Ctrl-C
        process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == 0
    assert even(project) == list(range(0, 200, 2))

    (project / "transformations" / "more.sql").write_text(
        "CREATE MATERIALIZED VIEW m AS SELECT nope FROM numbers"
    )
    failed = penstock("run", str(project), "--once", "--master", "local[2]", check=False)
    assert failed.returncode == 1
    assert "nope" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert json.loads(penstock("status", str(project), "--json", check=False).stdout)["state"] == "failed"


COUNTED = """
from pyspark import pipelines as dp
from pyspark.sql import functions as F

@dp.table
def counted():
    timed = spark.readStream.table("numbers").withColumn("t", F.timestamp_seconds("n"))
    timed = timed.withWatermark("t", "1 second")
    return timed.groupBy(F.window("t", "{size}")).count().select("count")
"""


@pytest.mark.promise(
    "pipelines", "`run --once` rejects state that does not fit the query, and records what it ran"
)
def test_once_goes_on_only_with_state_that_fits(project: Path):
    once = ("run", str(project), "--once", "--master", "local[2]")
    flow = project / "transformations" / "counted.py"
    flow.write_text(COUNTED.format(size="10 seconds"))
    feed(project, 0, 15)
    penstock(*once)
    flow.write_text(COUNTED.format(size="20 seconds"))
    refused = penstock(*once, check=False)
    assert refused.returncode == 1
    assert "a grouping key changed" in refused.stderr and "--full-refresh TABLE" in refused.stderr
    # And so does a run that goes on.
    with running(project, "--json", "--progress-to", "none"):
        wait_for(lambda: [each["flow"] for each in status(project).get("pending", [])] == ["counted"])
    feed(project, 15, 30)
    penstock(*once, "--refresh", "numbers")
    penstock(*once, "--full-refresh", "counted")
    penstock(*once)
    files = sorted((project / "storage" / "tables" / "counted").glob("part-*.parquet"))
    import pyarrow.parquet as pq

    assert sorted(n for file in files for n in pq.ParquetFile(file).read()["count"].to_pylist()) == [20, 20]
