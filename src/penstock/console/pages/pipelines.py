"""Pipelines and SQL queries: every streaming query with its figures; one of them with its curves and offsets;
a pipeline with its flows and log. Start, pause, resume and stop.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial
from typing import Any

from nicegui import ui
from starlette.requests import Request

from penstock.admin.failure import CommandFailed
from penstock.console.parts import format as f
from penstock.console.parts.acting import attempt, read, show_failure, soon
from penstock.console.parts.curves import Curves
from penstock.console.parts.dialogs import confirm_by_name
from penstock.console.parts.frame import command_line, frame
from penstock.console.parts.live import Redrawn, Tiles
from penstock.console.parts.paged_table import LINK, STATUS, Column, PagedTable, Wanted
from penstock.console.reads.pipelines import Pipeline, pipelines_of
from penstock.console.reads.sql import server_of
from penstock.console.reads.streaming import SQL, StreamingQuery, Streams
from penstock.console.site import Site
from penstock.console.viewer import Viewer
from penstock.sqltext.identifiers import quoted
from penstock.web.access import Role

_LIVE_SECONDS = 2.0
_COLUMNS = (
    Column("name", "Query", link=True),
    Column("owner", "Of", link=True),
    Column("state", "State", status=True),
    Column("input", "In", number=True),
    Column("rate", "Processed", number=True),
    Column("batch", "Batch took", number=True),
    Column("lag", "Lag", number=True),
    Column("rows", "State", number=True),
    Column("watermark", "Watermark"),
)
_TILES = (
    "State",
    "Input rate",
    "Processing rate",
    "Batch took",
    "Lag",
    "State rows",
    "State size",
    "Watermark",
)
_LOOKS = {"RUNNING": "ok", "FAILED": "bad", "DIED": "bad", "DISCONNECTED": "bad", "DEGRADED": "warn"}


def register(site: Site) -> None:
    @ui.page("/pipelines")
    async def pipelines(request: Request) -> None:
        site.streams.watch()
        command = site.command("consume", "__penstock_queries")
        with frame(site, request, "Pipelines and SQL queries", command, section="/pipelines") as viewer:
            _list(site, viewer, request.query_params.get("q", ""))
            if site.sql is not None:
                command_line(site.sql_command("SHOW QUERIES;"))
            for directory in site.settings.pipelines:
                command_line(shlex.join(("penstock", "pipeline", "list", directory)))

    @ui.page("/query")
    async def query(request: Request, owner: str = SQL, name: str = "") -> None:
        site.streams.watch()
        statement = f"DESCRIBE {quoted(name)};"
        command = (
            site.sql_command(statement) if owner == SQL else site.command("consume", "__penstock_queries")
        )
        with frame(
            site, request, name or "Query", command, section="/pipelines", subtitle=_kind(owner)
        ) as viewer:
            _one_query(site, viewer, owner, name)

    @ui.page("/pipeline")
    async def pipeline(request: Request, name: str = "") -> None:
        site.streams.watch()
        command = shlex.join(("penstock", "pipeline", "status", *_project(site, name)))
        with frame(
            site, request, name or "Pipeline", command, section="/pipelines", subtitle="Pipeline"
        ) as viewer:
            _one_pipeline(site, viewer, name)


def _kind(owner: str) -> str:
    return "SQL query" if owner == SQL else f"Flow of the pipeline {owner}"


def _project(site: Site, name: str) -> list[str]:
    last = site.streams.last
    return [each.project for each in (last.pipelines if last is not None else ()) if each.name == name]


async def _sample(site: Site) -> Streams | None:
    site.streams.watch()
    if site.streams.last is None:
        await read(site.streams.wait, site.settings.timeout + 5.0)
    return site.streams.last


# The list


def _list(site: Site, viewer: Viewer, text: str) -> None:
    problems = Redrawn(ui.column().classes("w-full gap-2"))
    cards = Redrawn(ui.element("div").classes("tiles"))

    async def load(wanted: Wanted) -> tuple[list[dict[str, Any]], int]:
        ui.navigate.history.replace(f.link("/pipelines", q=wanted.text))
        found = await _sample(site)
        if found is None:
            raise CommandFailed(site.streams.failure or "nothing has answered yet.")
        problems.show(found.problems, lambda: _show_problems(found.problems))
        shown = [(each.name, each.state, len(each.flows), each.error) for each in found.pipelines]
        cards.show(shown, lambda: _pipeline_cards(found.pipelines))
        text = wanted.text.lower()
        rows = [each for each in found.queries.values() if text in f"{each.name} {each.owner}".lower()]
        rows.sort(key=lambda each: each.key)
        rows.sort(key=lambda each: _sort_key(each, wanted.sort), reverse=wanted.descending)
        return [_row(each) for each in rows[wanted.first : wanted.first + wanted.count]], len(rows)

    holder = ui.row().classes("w-full items-center")
    table = PagedTable(_COLUMNS, load, key="id", sort="name", text=text)
    table.filter.move(holder)
    soon(table.refresh)
    ui.timer(_LIVE_SECONDS, table.refresh, immediate=False)


def _show_problems(problems: Sequence[str]) -> None:
    for each in problems:
        show_failure(ValueError(each))


def _pipeline_cards(found: Sequence[Pipeline]) -> None:
    for each in found:
        with ui.element("div").classes("card"):
            ui.link(each.name, f.link("/pipeline", name=each.name)).classes("link font-bold break-all")
            with ui.row().classes("items-center gap-2"):
                ui.label(each.state).classes(_LOOKS.get(each.state.upper(), "muted"))
                ui.label(f"{len(each.flows)} flows").classes("muted")


def _sort_key(query: StreamingQuery, sort: str) -> tuple[float | str, ...]:
    numbers = {
        "input": query.input_rate, "rate": query.rate, "batch": query.batch_seconds, "lag": query.lag,
        "rows": query.state_rows,
    }  # fmt: skip
    if sort in numbers:
        number = numbers[sort]
        return (-1.0 if number is None else float(number),)
    texts = {"owner": query.owner, "state": query.state, "watermark": query.watermark or ""}
    return (texts.get(sort, query.name).lower(),)


def link_of(query: StreamingQuery) -> str:
    return f.link("/query", owner=query.owner, name=query.name)


def _row(query: StreamingQuery) -> dict[str, Any]:
    return {
        "id": f"{query.owner}\0{query.name}",
        "name": query.name,
        "name_href": link_of(query),
        "owner": query.owner,
        "owner_href": "/sql" if query.owner == SQL else f.link("/pipeline", name=query.owner),
        "state": _state(query),
        "input": f.rate(query.input_rate),
        "rate": f.rate(query.rate),
        "batch": f.seconds(query.batch_seconds),
        "lag": f.count(query.lag),
        "rows": f.count(query.state_rows) if query.state_rows else "-",
        "watermark": _time(query.watermark),
    }


def _state(query: StreamingQuery) -> str:
    """In capitals, as Spark's and Connect's: the table colours them."""
    return query.state.upper()


def _time(text: str | None) -> str:
    return "-" if not text else text.replace("T", " ").removesuffix("Z").partition(".")[0]


# One query


def _one_query(site: Site, viewer: Viewer, owner: str, name: str) -> None:
    with ui.row().classes("gap-2") as actions:
        if owner == SQL:
            _sql_actions(site, viewer, name)
        else:
            ui.link(f"Pipeline {owner}", f.link("/pipeline", name=owner)).classes("link break-all")
    problem = Redrawn(ui.element("div").classes("w-full"))
    tiles = Tiles([(each, "") for each in _TILES])
    with ui.element("div").classes("curves"):
        rates = Curves("Rows per second")
        lag = Curves("Lag", "records")
        took = Curves("Batch duration", "seconds")
        state = Curves("State", "rows")
    detail = Redrawn(ui.column().classes("w-full gap-3"))

    async def refresh() -> None:
        found = await _sample(site)
        query = found.queries.get((owner, name)) if found is not None else None
        if query is None or found is None:
            text = _missing(site, found, owner, name)
            problem.show(text, lambda: show_failure(ValueError(text)))
            actions.set_visibility(False)
            return
        actions.set_visibility(query.steered)
        problem.show(query.error, lambda: show_failure(ValueError(query.error)) if query.error else None)
        tiles.show(_values(query))
        points = list(site.streams.points.get(query.key, ()))
        times = [each.at for each in points]
        rates.show(times, {"in": [p.input_rate for p in points], "processed": [p.rate for p in points]})
        lag.show(times, {"lag": [p.lag for p in points]})
        took.show(times, {"batch": [p.batch_seconds for p in points]})
        state.show(times, {"rows": [p.state_rows for p in points]})
        shown = (query.statement, query.reads, query.writes, query.tables, query.target, query.groups)
        detail.show((*shown, query.offsets), lambda: _detail(query))

    soon(refresh)
    ui.timer(_LIVE_SECONDS, refresh, immediate=False)


def _missing(site: Site, found: Streams | None, owner: str, name: str) -> str:
    if found is None:
        return site.streams.failure or "nothing has answered yet."
    return f"no query '{name}' of {owner}. " + " ".join(found.problems)


def _values(query: StreamingQuery) -> list[tuple[str, str]]:
    """Values for _TILES, in its order."""
    return [
        (_state(query).capitalize(), _LOOKS.get(_state(query), "")),
        (f.rate(query.input_rate), ""),
        (f.rate(query.rate), ""),
        (f.seconds(query.batch_seconds), ""),
        (f.count(query.lag), ""),
        (f.count(query.state_rows), ""),
        (f.size(query.state_bytes), ""),
        (_time(query.watermark), ""),
    ]


def _detail(query: StreamingQuery) -> None:
    with ui.element("div").classes("card w-full"):
        for title, names, page in (
            ("Reads", query.reads, "/topics/"),
            ("Writes", query.writes, "/topics/"),
            ("Groups", query.groups, ""),
        ):
            with ui.row().classes("w-full items-baseline gap-2"):
                ui.label(title).classes("muted")
                for each in names:
                    target = f.topic_link(each) if page else f.link("/group", id=each)
                    ui.link(each, target).classes("link mono break-all")
                if not names:
                    ui.label("-").classes("muted")
        others = [*query.tables, *((query.target,) if query.target else ())]
        if others:
            ui.label(f"Tables: {', '.join(others)}").classes("muted break-all")
    for source in query.offsets:
        with ui.element("div").classes("card w-full"):
            ui.label(source.name).classes("font-bold break-all")
            for title, text in (("read to", source.end), ("of", source.latest)):
                with ui.row().classes("w-full items-baseline gap-2 no-wrap"):
                    ui.label(title).classes("muted whitespace-nowrap")
                    ui.label(text).classes("mono break-all")
    if query.statement:
        ui.label(query.statement).classes("mono pre card w-full")


def _sql_actions(site: Site, viewer: Viewer, name: str) -> None:
    if not viewer.may(Role.WRITE):
        return

    async def change(verb: str, done: str) -> bool:
        return await attempt(
            viewer,
            Role.WRITE,
            f"{verb.lower()} the query '{name}'",
            partial(lambda: server_of(site.sql).execute(f"{verb} {quoted(name)};")),
            done=done,
        )

    async def terminate() -> None:
        if await change("TERMINATE", f"The query {name} was terminated."):
            ui.navigate.to("/pipelines")

    ui.button("Pause", icon="pause", on_click=lambda: change("PAUSE", "The query is paused.")).props(
        "no-caps outline"
    )
    ui.button("Resume", icon="play_arrow", on_click=lambda: change("RESUME", "The query continues.")).props(
        "no-caps outline"
    )
    dialog = confirm_by_name(
        "Terminate the query",
        "It ends permanently: its state and its position are deleted. Its output is kept.",
        name,
        "Terminate",
        terminate,
    )
    ui.button("Terminate", icon="stop", on_click=dialog.open).props("no-caps outline color=negative")


# One pipeline


def _one_pipeline(site: Site, viewer: Viewer, name: str) -> None:
    buttons: dict[str, ui.button] = {}
    if viewer.may(Role.ADMIN):

        async def start() -> None:
            buttons["start"].disable()
            await attempt(
                viewer,
                Role.ADMIN,
                f"start the pipeline '{name}'",
                lambda: pipelines_of(site.pipelines).start(name),
                done="The pipeline starts; Spark takes some seconds.",
            )
            buttons["start"].enable()

        async def stop() -> None:
            await attempt(
                viewer,
                Role.ADMIN,
                f"stop the pipeline '{name}'",
                lambda: pipelines_of(site.pipelines).stop(name),
                done="The pipeline has stopped.",
            )

        dialog = confirm_by_name(
            "Stop the pipeline",
            "Its flows end after their current batch; the next start continues from there.",
            name,
            "Stop",
            stop,
        )
        with ui.row().classes("gap-2"):
            buttons["start"] = ui.button("Start", icon="play_arrow", on_click=start).props("no-caps outline")
            buttons["stop"] = ui.button("Stop", icon="stop", on_click=dialog.open).props(
                "no-caps outline color=negative"
            )
        for each in buttons.values():
            each.set_visibility(False)
    summary = ui.label("").classes("muted break-all")
    problem = Redrawn(ui.column().classes("w-full gap-2"))
    flows = Redrawn(ui.element("div").classes("w-full"))
    with ui.row().classes("w-full items-center gap-2"):
        ui.label("Log").classes("font-bold")
        spark = ui.switch("Spark's lines, too") if viewer.may(Role.ADMIN) else None
    with ui.element("div").classes("card w-full log-lines").props('tabindex="0" aria-label="Log"'):
        lines = ui.label("").classes("mono pre")

    async def refresh() -> None:
        try:
            found = await read(pipelines_of(site.pipelines).one, name)
        except Exception as error:  # noqa: BLE001 - shown on the page
            failure = error
            problem.show(str(failure), lambda: show_failure(failure))
            return
        wrong = _wrong(found)
        problem.show(wrong, lambda: _show_problems(wrong))
        where = f", process {found.pid} on {found.master}" if found.running else ""
        summary.text = f"{found.state}{where}, {found.project}"
        if buttons:
            buttons["start"].set_visibility(not found.running)
            buttons["stop"].set_visibility(found.running)
        sample = await _sample(site)
        queries = [each for each in (sample.queries.values() if sample else ()) if each.owner == name]
        rows = [_row(each) for each in queries]
        flows.show(rows, lambda: _flow_table(rows))
        try:
            everything = spark is not None and bool(spark.value) and viewer.may(Role.ADMIN)
            found_lines = await read(pipelines_of(site.pipelines).log, name, everything=everything)
            lines.text = "\n".join(found_lines)
        except CommandFailed as error:
            lines.text = error.message

    if spark is not None:
        spark.on_value_change(refresh)
    soon(refresh)
    ui.timer(_LIVE_SECONDS, refresh, immediate=False)
    for words in (("logs",), ("stop",), ("run",)):
        command_line(shlex.join(("penstock", "pipeline", *words, *(_project(site, name) or [name]))))


def _wrong(found: Pipeline) -> list[str]:
    wrong = [found.error] if found.error else []
    wrong += [f"{flow['name']}: {flow['error']}" for flow in found.flows if flow.get("error")]
    for change in found.pending:
        wrong.append(f"pending until `penstock pipeline apply`: {change.get('action')} {change.get('flow')}")
    return wrong


def _flow_table(rows: list[dict[str, Any]]) -> None:
    table = (
        ui.table(
            columns=[
                {
                    "name": each.name,
                    "label": each.label,
                    "field": each.name,
                    "align": "right" if each.number else "left",
                    "classes": "cell",
                }
                for each in _COLUMNS
                if each.name != "owner"
            ],
            rows=rows,
            row_key="id",
        )
        .classes("w-full")
        .props('flat dense no-data-label="No flows: it has not run yet."')
    )
    table.add_slot("body-cell-name", LINK)
    table.add_slot("body-cell-state", STATUS)
