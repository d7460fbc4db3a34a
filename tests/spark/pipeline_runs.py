"""A project in a directory of the test's own, run step by step in the Spark that all tests share."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.pipelines.project.project import Project, load_project
from penstock.pipelines.run.engine import quiet, use_database
from penstock.pipelines.run.flow_state import RunOptions
from penstock.pipelines.run.runner import Event, Runner
from penstock.pipelines.run.state import StateDirectory
from penstock.restarts import Backoff
from penstock.spark.progress import watch

WAIT_SECONDS = 150.0
"""Spark gives up a Python worker that is not up within 10 s, which a busy machine does not always manage."""
QUICK = {
    "trigger": "100 milliseconds",
    "poll": 0.0,
    "refresh_every": 0.0,
    "backoff": Backoff(first=0.2, limit=1.0, quiet_after=15.0),
}


class PipelineRun:
    """One project and its runner. `events` has all that was reported."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.directory = directory
        self.database = f"t{uuid.uuid4().hex[:10]}"
        self.events: list[Event] = []
        self.runner: Runner | None = None
        self._read: dict[str, tuple[frozenset[tuple[str, int]], list[Any]]] = {}
        (directory / "transformations").mkdir(parents=True, exist_ok=True)
        if not (directory / "spark-pipeline.yml").exists():
            (directory / "spark-pipeline.yml").write_text(
                f"name: shop\nstorage: {(directory / 'storage').as_uri()}\n"
                "libraries:\n  - glob:\n      include: transformations/**\n"
            )
        with (directory / "spark-pipeline.yml").open("a") as spec:
            spec.write(f"database: {self.database}\n")

    def write(self, name: str, text: str) -> None:
        (self.directory / "transformations" / name).write_text(text)

    def feed(self, source: str, *rows: dict[str, Any]) -> None:
        """Rows for `spark.readStream.json(<directory>/<source>)`, as one file that is there at once."""
        target = self.directory / source
        target.mkdir(exist_ok=True)
        hidden = target / f".{uuid.uuid4().hex}"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        hidden.rename(target / f"{uuid.uuid4().hex}.json")

    @property
    def project(self) -> Project:
        return load_project(self.directory)

    @contextmanager
    def running(self, **options: Any) -> Iterator[Runner]:
        """The pipeline, loaded; `until` steps it."""
        quiet()
        project = self.project
        use_database(project, self.spark)
        runner = Runner(
            project,
            self.spark,
            StateDirectory(project.state_directory, project.name),
            RunOptions(**{**QUICK, **options}),
            self.events.append,
        )
        self.runner = runner
        watching = watch(self.spark, pipeline=project.name, on_progress=runner.on_progress)
        try:
            runner.load()
            yield runner
        finally:
            runner.shut_down()
            watching.stop()

    def until(self, done: Callable[[], Any]) -> Any:
        """Steps the runner until `done()` is true, and gives what it gave."""
        assert self.runner is not None
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            asked = time.monotonic()
            self.runner.step()
            result = done()
            if result:
                return result
            assert time.monotonic() < deadline, json.dumps(self.runner.status(), indent=1, default=str)
            # As long again as the question took: the cores are for the flows that are awaited.
            time.sleep(max(0.05, time.monotonic() - asked))

    def rows(self, table: str) -> list[Any]:
        """The table as another reader would see it, sorted; read again only when a file of a table is new."""
        files = self._files()
        if table not in self._read or self._read[table][0] != files:
            name = f"{self.database}.{table}"
            self.spark.catalog.refreshTable(name)
            found = sorted((tuple(row) for row in self.spark.table(name).collect()), key=str)
            self._read[table] = (files, found)
        return list(self._read[table][1])

    def _files(self) -> frozenset[tuple[str, int]]:
        """Of all tables and checkpoints: a Spark job at each look would take the cores from the flows."""
        warehouse = str(self.spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:")
        found = set()
        for top in (self.directory / "storage", Path(warehouse) / f"{self.database}.db"):
            for directory, _, names in os.walk(top):
                for name in names:
                    try:
                        found.add((f"{directory}/{name}", os.stat(f"{directory}/{name}").st_mtime_ns))
                    except FileNotFoundError:
                        pass  # renamed or deleted meanwhile: the next look sees that
        return frozenset(found)

    def flow(self, name: str) -> dict[str, Any]:
        assert self.runner is not None
        return next(flow for flow in self.runner.status()["flows"] if flow["name"] == name)

    def event(self, kind: str) -> Event | None:
        """The newest event of a kind."""
        return next((event for event in reversed(self.events) if event["event"] == kind), None)

    def drop(self) -> None:
        self.spark.sql("USE spark_catalog.default")
        self.spark.sql(f"DROP DATABASE IF EXISTS {self.database} CASCADE")
        for table in self.spark.catalog.listTables():
            if table.isTemporary:
                self.spark.catalog.dropTempView(table.name)
