"""SQL: an editor, statements run against a SQL server, rows as they come, and a chart of them.

A text runs only when somebody presses the button or Ctrl-Enter: a link fills the editor, and runs nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from nicegui import background_tasks, ui
from starlette.requests import Request

from penstock.admin.failure import CommandFailed
from penstock.console.parts import format as f
from penstock.console.parts.acting import read, sentence_of, show_failure, soon
from penstock.console.parts.chart import RowChart
from penstock.console.parts.frame import command_line, frame
from penstock.console.parts.paged_table import NO_DATA
from penstock.console.parts.sql_editor import SqlEditor
from penstock.console.reads.charting import is_number
from penstock.console.reads.sql import SqlServer, check_text, topics_of
from penstock.console.site import Site
from penstock.console.viewer import Viewer
from penstock.sql.errors import SqlError
from penstock.sql.shell.client import Line
from penstock.sql.shell.completion import Known
from penstock.web.access import Role

log = logging.getLogger(__name__)

MOST_RUNS = 32
"""Statements that run at the same time for all users."""
_DRAW_SECONDS = 0.5
_NAMES_SECONDS = 15.0
_MOST_ROWS = 5_000
"""A query that is not live ends after so many rows."""
_KEPT_ROWS = 2_000
"""The newest rows, for the chart."""
_TABLE_ROWS = 200
_MOST_CHARACTERS = 1_000
"""Of one cell."""
_HISTORY = 50
_START = "-- Ctrl-Enter runs it. Tab or Ctrl-Space completes names.\nSHOW TOPICS;\n"
_REMEMBER = """(() => {
  const text = TEXT;
  let kept = [];
  try { kept = JSON.parse(localStorage.getItem("penstock-sql") || "[]"); } catch { }
  if (!Array.isArray(kept)) kept = [];
  kept = [text, ...kept.filter(each => each !== text)].slice(0, MOST);
  localStorage.setItem("penstock-sql", JSON.stringify(kept));
  return kept;
})()"""

_running = 0


@dataclass
class Rows:
    """What a statement has given until now."""

    columns: list[tuple[str, str]] = field(default_factory=list)
    live: bool = False
    count: int = 0
    kept: deque[list[Any]] = field(default_factory=lambda: deque(maxlen=_KEPT_ROWS))
    arrived: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT_ROWS))

    def add(self, row: list[Any], now: float) -> None:
        self.count += 1
        self.kept.append([_short(each) for each in row])
        self.arrived.append(now)


def register(site: Site) -> None:
    @ui.page("/sql")
    async def sql(request: Request, q: str = "") -> None:
        server = site.sql
        url = ("--server", server.url) if server is not None else ()
        command = " ".join(("penstock sql", *url))
        with frame(site, request, "SQL", command, section="/sql") as viewer:
            if server is None:
                show_failure(CommandFailed("this console has no SQL server: start it with --sql URL."))
                return
            _Workbench(site, server, viewer, q[: _MOST_CHARACTERS * 20])


class _Workbench:
    """One open page."""

    def __init__(self, site: Site, server: SqlServer, viewer: Viewer, text: str) -> None:
        self._site, self._server, self._viewer = site, server, viewer
        self._properties: dict[str, str] = {}
        self._variables: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None
        self._attempt = 0
        self._rows = Rows()
        self._drawn = -1
        self._begun = 0.0
        self._history: list[str] = []
        self._shown: list[tuple[str, str, list[Any]]] | None = None
        with ui.element("div").classes("sql-page w-full"):
            with ui.element("div").classes("sql-main"):
                self._editor = SqlEditor(text or _START, self._run)
                with ui.row().classes("w-full items-center gap-2 q-mt-sm"):
                    self._go = ui.button("Run", icon="play_arrow", on_click=self._run).props("no-caps")
                    self._stop = ui.button("Cancel", icon="stop", on_click=self._cancel)
                    self._stop.props("no-caps outline").set_visibility(False)
                    with ui.button("History", icon="history").props("no-caps flat"):
                        self._menu = ui.menu().props('max-height="50vh"').style("max-width: min(640px, 90vw)")
                    ui.space()
                    self._state = ui.label("").classes("muted").props('role="status"')
                self._problem = ui.element("div").classes("w-full")
                self._messages = ui.column().classes("w-full gap-1")
            with ui.element("div").classes("card sql-names"):
                ui.label("Streams and tables").classes("font-bold")
                self._names = ui.column().classes("w-full gap-0")
        self._chart = RowChart()
        self._holder = ui.element("div").classes("w-full")
        self._table: ui.table | None = None
        self._command = ui.element("div").classes("w-full")
        ui.context.client.on_delete(self._end)
        soon(self._load_names)
        soon(self._load_history)
        ui.timer(_NAMES_SECONDS, self._load_names, immediate=False)
        ui.timer(_DRAW_SECONDS, self._draw, immediate=False)

    # Names for the completion, and beside the editor

    async def _load_names(self) -> None:
        try:
            relations = await read(self._server.relations)
            queries = await read(self._server.queries)
        except Exception as error:  # noqa: BLE001 - shown instead of them
            if not self._names.default_slot.children:
                with self._names:
                    ui.label(sentence_of(error)).classes("muted")
            return
        self._editor.known = Known.of(relations, queries)
        found = sorted(relations.get("relations", ()), key=lambda each: str(each["name"]).casefold())
        shown = [(str(each["name"]), str(each.get("kind", "")), each.get("columns") or []) for each in found]
        if self._shown == shown:
            return
        self._shown = shown
        self._names.clear()
        with self._names:
            for name, kind, columns in shown[:200]:
                with ui.expansion(name, caption=kind).props("dense").classes("w-full"):
                    for column, type_ in columns:
                        with ui.row().classes("w-full no-wrap justify-between"):
                            ui.label(str(column)).classes("mono ellipsis")
                            ui.label(str(type_)).classes("muted ellipsis")
            if not shown:
                ui.label("None yet: CREATE STREAM makes one.").classes("muted")

    async def _load_history(self) -> None:
        try:
            found = await ui.run_javascript(
                'try { return JSON.parse(localStorage.getItem("penstock-sql") || "[]") } catch { return [] }'
            )
        except TimeoutError:
            return
        self._show_history(found)

    def _show_history(self, found: Any) -> None:
        texts = [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
        self._history = texts[:_HISTORY]
        self._menu.clear()
        with self._menu:
            for text in self._history:
                # Kept in this browser; shown as text.
                ui.menu_item(" ".join(text.split())[:120], lambda text=text: self._take(text))
            if not self._history:
                ui.menu_item("Nothing was run in this browser yet.").props("disable")

    def _take(self, text: str) -> None:
        self._editor.text = text

    # Running

    async def _run(self) -> None:
        global _running
        text = self._editor.text
        if not text.strip():
            return
        self._end()
        self._attempt += 1
        attempt = self._attempt
        self._editor.unmark()
        self._problem.clear()
        self._messages.clear()
        self._command.clear()
        self._rows, self._drawn, self._begun = Rows(), -1, time.monotonic()
        self._holder.clear()
        self._table = None
        self._chart.area.set_visibility(False)
        self._state.text = "Running…"
        try:
            self._viewer.require(Role.READ, "run SQL")
            if _running >= MOST_RUNS:
                raise CommandFailed(f"{MOST_RUNS} statements are running already: cancel one, or wait.")
            relations = {} if self._viewer.may(Role.ADMIN) else topics_of(await read(self._server.relations))
            check_text(self._viewer.effective, text, relations, self._properties, self._variables)
        except Exception as error:  # noqa: BLE001 - shown in place
            self._fail(error)
            return
        if attempt != self._attempt:
            return  # Run was pressed again meanwhile
        log.info("user %s runs SQL: %s", self._viewer.principal.name, " ".join(text.split())[:500])
        with self._command:
            command_line(self._site.sql_command(text))
        self._go.disable()
        self._stop.set_visibility(True)
        self._task = background_tasks.create(self._stream(text), name="sql")
        try:
            self._show_history(await ui.run_javascript(_remember(text), timeout=3.0))
        except TimeoutError:
            pass  # a browser that keeps nothing

    async def _stream(self, text: str) -> None:
        """Reads the answer until it ends, or this task is cancelled, which ends the query."""
        global _running
        _running += 1
        outcome = "Cancelled"
        try:
            session, running = self._server.run(text, self._properties, self._variables)
            async with running as lines:
                async for line in lines:
                    if not self._take_line(line):
                        outcome = f"The first {_MOST_ROWS:,} rows; the query was ended"
                        break
                else:
                    outcome = "Done"
            self._properties, self._variables = session.properties, session.variables
        except SqlFailed as error:
            outcome = ""
            self._fail_line(error.line)
        except asyncio.CancelledError:
            pass  # whoever cancelled it shows that
        except Exception as error:  # noqa: BLE001 - shown in place
            outcome = ""
            self._fail(error)
        finally:
            _running -= 1
            if self._task is asyncio.current_task():
                self._task = None
                self._ended(outcome)

    def _take_line(self, line: Line) -> bool:
        """False when no more rows are wanted."""
        if "error" in line:
            raise SqlFailed(line)
        if "columns" in line:
            self._rows = Rows([(str(name), str(type_)) for name, type_ in line["columns"]])
            self._rows.live, self._drawn = bool(line.get("live")), -1
        elif "row" in line:
            self._rows.add(line["row"], time.time())
            return self._rows.live or self._rows.count < _MOST_ROWS
        elif "done" in line:
            with self._messages:
                ui.label(str(line["done"])).classes("muted break-words")
        return True

    def _cancel(self) -> None:
        self._end()
        self._ended("Cancelled")

    def _end(self) -> None:
        """Also when the page is left: the query ends with its connection."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    def _ended(self, outcome: str) -> None:
        self._go.enable()
        self._stop.set_visibility(False)
        self._draw()
        self._state.text = f"{outcome}. {self._progress()}" if outcome else ""

    def _progress(self) -> str:
        seconds = time.monotonic() - self._begun
        rows = f"{f.count(self._rows.count)} rows, " if self._rows.columns else ""
        return f"{rows}{seconds:.1f} s"

    # Showing

    def _fail(self, error: Exception) -> None:
        if isinstance(error, SqlError):
            self._fail_line(error.as_json())
        else:
            self._fail_line({"message": sentence_of(error)})

    def _fail_line(self, line: Line) -> None:
        self._state.text = ""
        text = str(line.get("message", "it failed"))
        place = line.get("line"), line.get("column")
        if isinstance(place[0], int) and isinstance(place[1], int):
            self._editor.mark(place[0], place[1])
            text = f"Line {place[0]}, column {place[1]}: {text}"
        with self._problem:
            show_failure(ValueError(text))

    def _draw(self) -> None:
        if self._task is not None:
            self._state.text = f"{'Live' if self._rows.live else 'Running'}: {self._progress()}"
        rows = self._rows
        if not rows.columns or rows.count == self._drawn:
            return
        if self._table is None or self._drawn < 0:
            self._begin_table(rows)
            self._chart.begin(rows.columns, live=rows.live)
        self._drawn = rows.count
        self._chart.area.set_visibility(rows.count > 0 and self._chart.possible)
        newest = list(rows.kept)[-_TABLE_ROWS:] if rows.live else list(rows.kept)[:_TABLE_ROWS]
        first = max(0, rows.count - len(newest)) if rows.live else 0
        shown = [
            {"n": first + at + 1, **{f"c{i}": _said(cell) for i, cell in enumerate(row)}}
            for at, row in enumerate(newest)
        ]
        assert self._table is not None
        self._table.rows = shown[::-1] if rows.live else shown
        self._table.update()
        self._chart.show(list(rows.kept), list(rows.arrived))

    def _begin_table(self, rows: Rows) -> None:
        self._holder.clear()
        with self._holder:
            self._table = (
                ui.table(
                    columns=[
                        {
                            "name": f"c{i}",
                            "label": name,
                            "field": f"c{i}",
                            "align": "right" if is_number(type_) else "left",
                            "classes": "cell",
                        }
                        for i, (name, type_) in enumerate(rows.columns)
                    ],
                    rows=[],
                    row_key="n",
                    pagination=25,
                )
                .classes("w-full")
                .props("flat dense")
            )
            self._table.props["no-data-label"] = "No rows yet." if rows.live else "No rows."
            self._table.add_slot("no-data", NO_DATA)


class SqlFailed(Exception):
    """The server answered with an error."""

    def __init__(self, line: Line) -> None:
        super().__init__(str(line.get("message")))
        self.line = line


def _remember(text: str) -> str:
    return _REMEMBER.replace("MOST", str(_HISTORY)).replace("TEXT", json.dumps(text))


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _MOST_CHARACTERS:
        return f"{value[:_MOST_CHARACTERS]}…"
    if isinstance(value, dict | list):
        return _short(json.dumps(value, ensure_ascii=False))
    return value


def _said(value: Any) -> str:
    if value is None:
        return "null"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
