"""Connectors: the list, and one connector with its tasks and errors; pause, resume, restart, create,
delete.
"""

from __future__ import annotations

import shlex
from typing import Any

from nicegui import ui
from starlette.requests import Request

from penstock.console.pages.connector_form import NEEDED, connector_form
from penstock.console.parts import format as f
from penstock.console.parts.acting import attempt, read, show_failure, soon
from penstock.console.parts.dialogs import confirm_by_name
from penstock.console.parts.frame import frame
from penstock.console.parts.live import Redrawn
from penstock.console.parts.paged_table import Column, PagedTable, Wanted
from penstock.console.reads import connectors as reads
from penstock.console.site import Site
from penstock.console.viewer import Viewer
from penstock.web.access import Role

_COLUMNS = (
    Column("name", "Connector", link=True),
    Column("state", "State", status=True),
    Column("kind", "Type"),
    Column("plugin", "Class"),
    Column("tasks", "Tasks", sortable=False),
)
_LIVE_SECONDS = 3.0
_LOOKS = {"RUNNING": "positive", "FAILED": "negative"}


def register(site: Site) -> None:
    @ui.page("/connectors")
    async def connectors(request: Request) -> None:
        with frame(
            site, request, "Connectors", _command(site, "connect", "list"), section="/connectors"
        ) as viewer:

            async def load(wanted: Wanted) -> tuple[list[dict[str, Any]], int]:
                found = await read(reads.list_connectors, site.worker)
                found = [each for each in found if wanted.text.lower() in each.name.lower()]
                sort = wanted.sort if wanted.sort in ("state", "kind", "plugin") else "name"
                found.sort(key=lambda each: (getattr(each, sort), each.name), reverse=wanted.descending)
                shown = found[wanted.first : wanted.first + wanted.count]
                return [_row(each) for each in shown], len(found)

            with ui.row().classes("w-full items-center"):
                holder = ui.row().classes("grow")
                if viewer.may(NEEDED):
                    dialog = connector_form(site, viewer)
                    ui.button("Create connector", icon="add", on_click=dialog.open).props("no-caps")
            table = PagedTable(_COLUMNS, load, key="name", sort="name")
            table.filter.move(holder)
            soon(table.refresh)
            ui.timer(_LIVE_SECONDS, table.refresh, immediate=False)

    @ui.page("/connector")
    async def connector(request: Request, name: str = "") -> None:
        command = _command(site, "connect", "status", name)
        with frame(site, request, name or "Connector", command, section="/connectors") as viewer:
            if viewer.may(Role.WRITE):
                _actions(site, viewer, name)
            area = Redrawn(ui.column().classes("w-full gap-3"))

            async def refresh() -> None:
                try:
                    found = await read(reads.find_connector, site.worker, name)
                except Exception as error:  # noqa: BLE001 - shown on the page
                    failure = error
                    area.show(str(failure), lambda: show_failure(failure))
                    return
                area.show(found, lambda: _detail(site, viewer, found))

            soon(refresh)
            ui.timer(_LIVE_SECONDS, refresh, immediate=False)


def _command(site: Site, *words: str) -> str:
    return shlex.join(("penstock", *words, *(("--url", site.worker.url) if site.worker is not None else ())))


def _row(each: reads.Connector) -> dict[str, Any]:
    states = [task.state for task in each.tasks]
    return {
        "name": each.name,
        "name_href": f.link("/connector", name=each.name),
        "state": "FAILED" if each.failed else each.state,
        "kind": each.kind,
        "plugin": each.plugin,
        "tasks": ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)),
    }


def _actions(site: Site, viewer: Viewer, name: str) -> None:
    async def change(verb: str) -> None:
        await attempt(
            viewer,
            Role.WRITE,
            f"{verb} connector '{name}'",
            lambda: reads.change_state(site.worker, name, verb),
            done=f"{verb.title()} is requested.",
        )

    async def restart() -> None:
        await attempt(
            viewer,
            Role.WRITE,
            f"restart connector '{name}'",
            lambda: reads.restart(site.worker, name),
            done="Restart is requested.",
        )

    async def delete() -> None:
        done = await attempt(
            viewer,
            Role.ADMIN,
            f"delete connector '{name}'",
            lambda: reads.delete_connector(site.worker, name),
        )
        if done:
            ui.navigate.to("/connectors")

    with ui.row().classes("gap-2"):
        ui.button("Pause", icon="pause", on_click=lambda: change("pause")).props("no-caps outline")
        ui.button("Resume", icon="play_arrow", on_click=lambda: change("resume")).props("no-caps outline")
        ui.button("Restart", icon="restart_alt", on_click=restart).props("no-caps outline")
        if viewer.may(Role.ADMIN):
            deletion = confirm_by_name(
                "Delete the connector",
                "Its offsets are kept for a connector with the same name.",
                name,
                "Delete",
                delete,
            )
            ui.button("Delete", icon="delete", on_click=deletion.open).props("no-caps outline color=negative")


def _detail(site: Site, viewer: Viewer, found: reads.Connector) -> None:
    with ui.row().classes("items-center gap-2"):
        ui.badge(found.state).props(f"color={_LOOKS.get(found.state, 'grey')}")
        ui.label(f"{found.kind}, {found.plugin}, on {found.worker or 'no worker'}").classes("muted")
    if found.trace:
        ui.label(found.trace).classes("mono pre card bad w-full")
    for task in found.tasks:
        with ui.element("div").classes("card w-full"):
            with ui.row().classes("w-full items-center gap-2"):
                ui.label(f"Task {task.id}").classes("font-bold")
                ui.badge(task.state).props(f"color={_LOOKS.get(task.state, 'grey')}")
                ui.label(task.worker).classes("muted")
                ui.space()
                if viewer.may(Role.WRITE):
                    ui.button(
                        "Restart", on_click=lambda id=task.id: _restart_task(site, viewer, found.name, id)
                    ).props("flat dense no-caps")
            if task.trace:
                ui.label(task.trace).classes("mono pre bad")
    with ui.element("div").classes("card w-full"):
        ui.label("Configuration").classes("font-bold")
        for key, value in sorted(found.config.items()):
            with ui.row().classes("w-full gap-2"):
                ui.label(key).classes("mono muted")
                ui.label(str(value)).classes("mono break-all")


async def _restart_task(site: Site, viewer: Viewer, name: str, task: int) -> None:
    await attempt(
        viewer,
        Role.WRITE,
        f"restart task {task} of connector '{name}'",
        lambda: reads.restart(site.worker, name, task),
        done="Restart is requested.",
    )
