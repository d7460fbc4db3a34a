"""A run of the demo: platform, topics, flights, pipeline, results, summary."""

from __future__ import annotations

import json
import re
import shutil
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.demo import summary
from penstock.demo.board import Board
from penstock.demo.children import Child, ChildFailed
from penstock.demo.data import directory as flights_directory
from penstock.demo.data import load
from penstock.demo.feeder import Feeder, events_after
from penstock.demo.reader import ResultReader
from penstock.demo.replay import FLIGHTS, WEATHER, Event, Replay
from penstock.demo.table import read_rows, row_count
from penstock.demo.topics import DemoConflict, Home, ReplaySettings, Topics
from penstock.demo.view import Status, View

PLATFORM_START_S = 60.0
PIPELINE_STOP_S = 45.0
STARTING_STOP_S = 3.0
PLATFORM_STOP_S = 30.0
# Stop sending flights this long before the end of a limited run, so that it ends in time.
DRAIN_S = 12.0
# The timeout for the pipeline to process what was sent; a cold Spark on a busy machine takes most of a
# minute.
DRAIN_TIMEOUT_S = 180.0
PAGE, PAGE_PATH = "penstock.demo.page", "/flights"
"""The page of the demonstration in the console, whose extra may be missing here."""
_REGISTRY_PORT = 8081
_TICK_S = 0.5
_RATE_S = 5.0


@dataclass(frozen=True)
class DemoSettings:
    """The options of the command line."""

    data: Path
    port: int
    start: datetime
    seed: int
    speed: float
    seconds: float | None
    fresh: bool
    master: str
    console_port: int = 0
    """0 means any free port; so does a port that is in use."""


@dataclass(frozen=True)
class Ended:
    """The result of a run."""

    counts: dict[str, int]
    reasons: Counter[str]
    checks: list[summary.Check]
    first_result_s: float | None
    """From the broker's start to the first result of the pipeline."""
    console: str | None = None
    """The address of the web console; None if its extra is not installed."""

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)


class Demo:
    """One run. `stop` is set by a signal; `say` prints progress before there is a view."""

    def __init__(
        self,
        settings: DemoSettings,
        stop: threading.Event,
        say: Callable[[str], None],
        make_view: Callable[[Board], View],
    ) -> None:
        self._settings = settings
        self._stop = stop
        self._say = say
        self._make_view = make_view
        self._home = Home(settings.data.resolve())
        self._board = Board()
        self._first_result_s: float | None = None
        self._console: str | None = None
        self._began = time.monotonic()
        self._history: list[tuple[float, int, int]] = []

    def run(self) -> Ended:
        """The whole run; in any case, no process is left."""
        flights_directory()  # says what to install before anything is started
        if self._settings.fresh:
            self._home.forget()
        with ExitStack() as stack:
            self._began = time.monotonic()
            platform, bootstrap = self._start_platform(stack)
            topics = Topics(bootstrap)
            there = self._prepare(topics)
            self._write_project(bootstrap)
            pipeline = Child(
                "the pipeline",
                ["pipeline", "run", str(self._home.project), "--master", self._settings.master],
                self._home.directory / "pipeline.log",
            )
            stack.callback(self._stop_pipeline, pipeline)
            settings = self._settings
            feeder = Feeder(
                bootstrap, events_after(there, settings.start, settings.seed), speed=settings.speed
            )
            feeder.start()
            stack.callback(feeder.stop)
            view = self._make_view(self._board)
            stack.callback(view.close)
            reader = ResultReader(bootstrap, self._board, self._note_first(view.result))
            reader.start()
            stack.callback(reader.stop)

            lags: dict[str, int] = {}

            def tick(state: str) -> None:
                for part in (platform, pipeline):
                    part.check()
                for failure in (feeder.failure, reader.failure):
                    if failure:
                        raise ChildFailed(failure)
                lags.update(topics.lags())
                view.status(self._status(state, bootstrap, feeder, there, lags))

            self._show(tick, pipeline)
            feeder.stop()
            sent = self._sent(topics.end_offsets(FLIGHTS, WEATHER))
            self._drain(tick, sent)
            view.status(self._status("stopping", bootstrap, feeder, there, lags))
            self._stop_pipeline(pipeline)
            # The last batch may have ended while the pipeline stopped.
            time.sleep(_TICK_S)
            reader.stop()
            view.close()
            # Only a signal is a reason for flights to be left over: what is missing for another fails.
            return self._sum_up(sent, drained=not self._stop.is_set())

    def _start_platform(self, stack: ExitStack) -> tuple[Child, str]:
        port = self._home.port(self._settings.port)
        # Not in the data directory, which may hold the file of a run that was killed.
        scratch = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        ready_file = scratch / "ready.json"
        self._home.directory.mkdir(parents=True, exist_ok=True)
        arguments = ["up", "--data", str(self._home.data), "--port", str(port), "--no-connect"]
        arguments += ["--console-port", str(free_or_any(self._settings.console_port))]
        # Of a replay that goes on, the broker's port is kept; no flow knows that of the registry.
        arguments += ["--registry-port", str(free_or_any(_REGISTRY_PORT) if self._settings.port else 0)]
        platform = Child(
            "the platform",
            [*arguments, "--ready-file", str(ready_file)],
            self._home.directory / "platform.log",
            # For the console that it starts.
            {"PENSTOCK_CONSOLE_PAGES": PAGE, "PENSTOCK_PIPELINES": str(self._home.directory)},
        )
        stack.callback(platform.stop, PLATFORM_STOP_S)
        ready = platform.wait_until_ready(ready_file, PLATFORM_START_S)
        bootstrap: str = ready["bootstrap"]
        self._home.keep_port(int(bootstrap.rpartition(":")[2]))
        self._say(f"Penstock is ready at {bootstrap}, data in {self._settings.data}.")
        self._console = ready.get("console")
        if self._console is not None:
            self._say(f"Web console: {self._console}")
            self._say(f"The flights as they come: {self._console}{PAGE_PATH}")
        return platform, bootstrap

    def _prepare(self, topics: Topics) -> dict[tuple[str, int], int]:
        """The topics, and how many records of the replay they have."""
        settings = self._settings
        if settings.fresh:
            topics.delete()
        goes_on = self._home.begin(ReplaySettings(settings.start.isoformat(), settings.seed))
        topics.create()
        there = topics.end_offsets(FLIGHTS, WEATHER)
        flights = sum(count for (topic, _), count in there.items() if topic == FLIGHTS)
        if not goes_on and any(there.values()):
            self._home.forget()
            raise DemoConflict(
                f"the topics {FLIGHTS} and {WEATHER} in {settings.data} have records of something else: "
                f"use another --data, or --fresh to delete them"
            )
        if goes_on:
            self._say(
                f"The replay in {settings.data} continues after {flights:,} flights (--fresh starts over)."
            )
        else:
            self._say(f"A new replay of the flights of 2013, from {settings.start:%d %B} on.")
        self._say("Spark is starting; first results in less than a minute. Ctrl-C stops everything.")
        return there

    def _stop_pipeline(self, pipeline: Child) -> None:
        # A Spark that is still starting has nothing to end in order.
        pipeline.stop(PIPELINE_STOP_S if self._first_result_s is not None else STARTING_STOP_S)

    def _write_project(self, bootstrap: str) -> None:
        """The project of the package, with the addresses of this run."""
        target = self._home.project
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(
            Path(__file__).parent / "project", target, ignore=shutil.ignore_patterns("__pycache__")
        )
        spec = target / "spark-pipeline.yml"
        # Quoted as JSON, which YAML reads. The file ends with its configuration.
        lines = [
            f"  penstock.demo.bootstrap: {json.dumps(bootstrap)}",
            f"  penstock.demo.table: {json.dumps(str(self._home.table))}",
            f"storage: {json.dumps((self._home.directory / 'storage').as_uri())}",
        ]
        spec.write_text(spec.read_text() + "\n".join(lines) + "\n")

    def _note_first(self, show: Callable[[Any], None]) -> Callable[[Any], None]:
        def noted(result: Any) -> None:
            if self._first_result_s is None:
                self._first_result_s = time.monotonic() - self._began
            show(result)

        return noted

    def _state(self, pipeline: Child) -> str:
        if self._first_result_s is not None:
            return "running"
        # What the pipeline said last, without the time: it starts one flow after the other.
        said = re.sub(r"^[\d-]+ [\d:]+ ", "", pipeline.last_line())
        return f"Spark is starting: {said}" if said else "Spark is starting"

    def _show(self, tick: Callable[[str], None], pipeline: Child) -> None:
        """Until a signal, or until there is just time enough left to finish what was sent."""
        seconds = self._settings.seconds
        until = None if seconds is None else self._began + max(seconds - DRAIN_S, 1.0)
        while not self._stop.is_set() and (until is None or time.monotonic() < until):
            tick(self._state(pipeline))
            self._stop.wait(_TICK_S)

    def _drain(self, tick: Callable[[str], None], sent: list[Event]) -> None:
        """Waits until everything sent has been processed; a signal ends the wait."""
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        flights = sum(event.topic == FLIGHTS for event in sent)
        while not self._stop.is_set() and time.monotonic() < deadline:
            tick("finishing")
            if row_count(self._home.table) + len(self._board.outcome.dead) >= flights:
                if all(check.ok for check in self._checks(sent, drained=True)):
                    return
            self._stop.wait(_TICK_S)

    def _checks(self, sent: list[Event], *, drained: bool) -> list[summary.Check]:
        outcome = self._board.outcome
        outcome.table = read_rows(self._home.table)
        return summary.checks(sent, outcome, drained=drained)

    def _status(
        self,
        state: str,
        bootstrap: str,
        feeder: Feeder,
        there: dict[tuple[str, int], int],
        lags: dict[str, int],
    ) -> Status:
        now = time.monotonic() - self._began
        sent = feeder.sent.flights + sum(count for (topic, _), count in there.items() if topic == FLIGHTS)
        rows = row_count(self._home.table)
        through = rows + len(self._board.outcome.dead)
        self._history.append((now, sent, through))
        while self._history[0][0] < now - _RATE_S:
            self._history.pop(0)
        then, sent_then, through_then = self._history[0]
        span = max(now - then, _TICK_S)
        return Status(
            state=state,
            bootstrap=bootstrap,
            seconds=now,
            speed=self._settings.speed,
            event_time=feeder.sent.now,
            flights_sent=sent,
            in_per_second=(sent - sent_then) / span,
            out_per_second=(through - through_then) / span,
            lag=max(lags.values(), default=None),
            table_rows=rows,
        )

    def _sent(self, there: dict[tuple[str, int], int]) -> list[Event]:
        """The records sent in all runs: the topics show how many, and the replay is always the same."""
        settings = self._settings
        sent: list[Event] = []
        left = dict(there)
        for event in Replay(load(), start=settings.start, seed=settings.seed).events():
            place = (event.topic, event.partition)
            if left[place] > 0:
                left[place] -= 1
                sent.append(event)
            if not any(left.values()):
                break
        return sent

    def _sum_up(self, sent: list[Event], *, drained: bool) -> Ended:
        checks = self._checks(sent, drained=drained)
        counts = summary.counts(sent, self._board.outcome)
        return Ended(counts, self._board.reasons, checks, self._first_result_s, self._console)


def free_or_any(port: int) -> int:
    """The port if nothing listens on it, else 0."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
        except OSError:
            return 0
    return port


def parse_start(text: str) -> datetime:
    """A date of 2013; ValueError for others."""
    day = datetime.fromisoformat(text).replace(tzinfo=UTC)
    if day.year != 2013:
        raise ValueError("the flights are those of 2013")
    return day
